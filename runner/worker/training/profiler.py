"""Profiles steps in turns of their own, after the timed ones, and outside of all timings."""

import gzip
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from torch.profiler import profile

from breakeven.runner.worker.compiler.observer import CompileObserver
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.process import loading
from breakeven.runner.worker.training.kernels import (
    by_collective,
    communication,
    cpu_costs,
    device_costs,
    host_seconds,
    most_costly,
    num_launches,
    underfilled_seconds,
)
from breakeven.runner.worker.training.trace import Trace, read_trace
from breakeven.runner.worker.turn_source import TurnSource

TURNS_OF_A_DEVICE = 3
"""Most turns in which a device that works by itself is profiled: their differences are the
uncertainty of its own time. Where the CPUs are the device, that time is the clock's, and one turn
suffices."""
AGREE = 0.005
"""Difference of the device's time, as a share of it, up to which two turns need no third."""
BUDGET_SECONDS = 3.0
"""That the profiles of a run may take in any case."""
BUDGET_SHARE = 0.05
"""Of the time that an experiment took so far; divided among its runs."""
GZIP_LEVEL = 1
"""Level 9 makes a trace 0.6 times as long, in nine times the time."""
WAITED_STEPS = 10
"""Steps of each such turn that are timed one by one, with the device waited for after each, as
PyTorch's Dynamo harness takes latencies."""
TRACE = "profile/trace.json.gz"
"""Of the last turn, beneath the run's artifacts."""

StepOf = Callable[[int], None]
"""Makes a step, given its number in its turn."""


def budget_seconds(elapsed: float, num_runs: int) -> float:
    """What the profiles of one run may take, `elapsed` seconds after it was loaded."""
    return max(BUDGET_SECONDS, BUDGET_SHARE * elapsed / num_runs)


def needs_turn(costs: Sequence[float], busy: Sequence[float], budget: float) -> bool:
    """Whether a turn is needed after turns that took `costs`, of which those that count have `busy`
    seconds of the device in a step: the first one always, others within the budget until two
    agree."""
    if not costs:
        return True
    agree = len(busy) > 1 and max(busy) - min(busy) <= AGREE * max(busy)
    return not agree and sum(costs) + max(costs) <= budget


class StepProfiler:
    """Writes down where the time of steps goes."""

    def __init__(self, context: RunContext, observer: CompileObserver) -> None:
        """Each rank profiles itself; of all but the first, only what is compared is recorded."""
        self._group, self._device, self._log = context.group, context.device, context.log
        self._communication: tuple[dict[str, float], list[dict[str, Any]]] | None = None
        """From the trace of the turn, until it is recorded."""
        self._since = time.monotonic()
        self._costs: list[float] = []
        """Seconds of each profiled turn."""
        self._busy: list[float] = []
        """Seconds of the device in a step, of each turn that counts."""
        experiment = context.experiment
        self._num_runs = len(experiment.variants)
        self._steps = experiment.profile_steps if experiment.profiles else 0
        self._file = context.run.artifacts / TRACE
        if self._group.rank > 0:
            self._file = self._file.with_name(f"trace-rank-{self._group.rank}.json.gz")
        self._root = context.run.path
        self._observer = observer
        self._uncompiled: Callable[[], StepOf] | None = None

    def alternate_with(self, uncompiled: Callable[[], StepOf]) -> None:
        """Has a step without a compiler made before each one that is waited for, as PyTorch's
        harness makes them in turns: what it leaves behind in the device's caches costs the next
        step time. `uncompiled` prepares such steps. Where that fails, as for want of room on the
        device, nothing is waited for."""
        self._uncompiled = uncompiled

    @property
    def num_turns(self) -> int:
        """Turns for profiling, of which `needs_turn` may leave out the last; 0 if the specification
        asks for none or the device has no profiler."""
        if not self._steps or not self._device.profiler_activities:
            return 0
        return TURNS_OF_A_DEVICE if self._device.works_by_itself else 1

    @property
    def steps_of_turn(self) -> int:
        """Steps of each of these turns."""
        return 1 + (WAITED_STEPS if self._device.works_by_itself else 0) + self._steps

    def needs_turn(self) -> bool:
        """Whether a further turn is worth its time. All ranks must ask, and get one answer."""
        budget = budget_seconds(time.monotonic() - self._since, self._num_runs)
        return self._group.share(needs_turn(self._costs, self._busy, budget))

    def take_turns(self, turns: TurnSource, step: StepOf) -> bool:
        """Gives the turn back and profiles in the next ones. `step` is given its number.

        Returns whether it holds a turn in the end, which it does not if the run was stopped.
        """
        for _ in range(self.num_turns):
            if not self.needs_turn():
                break
            turns.done(finished=False)
            turn = turns.wait()
            if turn is None:
                return False
            self._profile(turn.round, step)
        return True

    def _profile(self, round_number: int, step: StepOf) -> None:
        """All measurements are recorded already: errors here are recorded, and the run has
        finished nevertheless."""
        since = time.perf_counter()
        try:
            for number in self.steps(round_number):
                step(number)
        except Exception as error:
            self._write(round_number, since, failure=_describe(error))

    def steps(self, round_number: int) -> Iterator[int]:
        """Yields the number of each step of a turn, which the caller has to make before it takes
        the next; writes the turn's events at the end. An error of the profiler is recorded, and
        ends the profile."""
        self._log.enter("profiling")
        since = time.perf_counter()
        found: dict[str, Any] = {}
        try:
            yield from self._record(round_number, found)
        except Exception as error:
            found = {"failure": _describe(error)}
        self._write(round_number, since, **found)
        self._write_ranks(round_number)

    def _write(self, round_number: int, since: float, **found: Any) -> None:
        cost = time.perf_counter() - since
        self._costs.append(cost)
        if not found.get("compiled", True):
            self._busy.append(found["busy_seconds"])
        self._log.append(
            "profile", round=round_number, steps=self._steps, cost_seconds=cost, **found
        )
        self._log.flush()

    def _write_ranks(self, round_number: int) -> None:
        """Records the communication in each rank's own trace."""
        if self._group.size == 1:
            return
        mine, self._communication = self._communication, None
        known = [(rank, one) for rank, one in enumerate(self._group.gather(mine)) if one]
        rows = [{"rank": rank, **seconds} for rank, (seconds, _) in known]
        sent = [{"rank": rank, **row} for rank, (_, kinds) in known for row in kinds]
        self._log.extend("collective", sent, round=round_number)
        self._log.extend("rank_profile", rows, round=round_number)
        self._log.flush()

    def _record(self, round_number: int, found: dict[str, Any]) -> Iterator[int]:
        """Puts the fields of the turn into `found`."""
        yield 0  # Ends all effects of other runs since this run's last turn.
        self._device.synchronize()
        compilations = self._observer.num_compilations
        waited: list[float] = []
        if self._device.works_by_itself:
            # Errors of uncompiled steps; those of waited steps reach the caller that makes them.
            with suppress(Exception):
                yield from self._wait_for_each(waited)
        with profile(activities=self._device.profiler_activities, record_shapes=True) as profiler:
            since = time.perf_counter()
            yield from range(self._steps)
            issued = time.perf_counter() - since
            self._device.synchronize()
            seconds = time.perf_counter() - since
        with loading():
            trace = self._write_trace(profiler)
            del profiler
            kernels = self._write_kernels(round_number, read_trace(trace))
        compiled = self._observer.num_compilations > compilations
        shares = {"seconds": seconds, "issue_seconds": issued}
        found |= kernels | {
            **{name: value / self._steps for name, value in shares.items()},
            "waited_seconds": waited or None,
            "compiled": compiled,
            "trace": str(self._file.relative_to(self._root)),
            "trace_bytes": self._file.stat().st_size,
        }

    def _wait_for_each(self, seconds: list[float]) -> Iterator[int]:
        """Adds the seconds of single steps, before anything is profiled."""
        uncompiled = self._uncompiled() if self._uncompiled is not None else None
        for number in range(WAITED_STEPS):
            if uncompiled is not None:
                uncompiled(number)
                self._device.synchronize()
            since = time.perf_counter()
            yield number
            self._device.synchronize()
            seconds.append(time.perf_counter() - since)

    def _write_trace(self, profiler: profile) -> bytes:
        """The trace, which is packed here: torch packs at the highest level."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        plain = self._file.with_suffix("")
        profiler.export_chrome_trace(str(plain))
        trace = plain.read_bytes()
        plain.unlink()
        self._file.write_bytes(gzip.compress(trace, GZIP_LEVEL))
        return trace

    def _write_kernels(self, round_number: int, trace: Trace) -> dict[str, Any]:
        """Writes a row for each kernel; returns the turn's fields from its trace."""
        steps = self._steps
        costs = device_costs(trace) if self._device.works_by_itself else cpu_costs(trace)
        rows = [
            {**kernel._asdict(), "calls": cost.calls / steps, "seconds": cost.seconds / steps}
            for kernel, cost in most_costly(costs)
        ]
        self._log.extend("profile_kernel", rows, round=round_number)
        if self._group.size > 1:
            self._communication = (
                communication(trace, steps, device_works_by_itself=self._device.works_by_itself),
                by_collective(trace, steps),
            )
        return {
            "busy_seconds": sum(row["seconds"] for row in rows),
            "underfilled_seconds": underfilled_seconds(trace) / steps,
            "launches": num_launches(trace) / steps,
            "host_seconds": {name: s / steps for name, s in host_seconds(trace).items()},
        }


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:2000]
