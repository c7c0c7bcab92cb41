"""Profiles steps in separate turns, after the timed turns and outside of all timings."""

import gzip
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from torch.profiler import profile

from breakeven.runner.worker.before_torch import loading
from breakeven.runner.worker.compiler.observer import CompileObserver
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.training.kernel_times import (
    Trace,
    by_collective,
    communication,
    cpu_costs,
    device_costs,
    host_seconds,
    most_costly,
    num_launches,
    read_trace,
    underfilled_seconds,
)
from breakeven.runner.worker.turn_source import Turns

TURNS_OF_A_DEVICE = 3
"""Largest number of profiled turns on an asynchronous device: their differences show the
uncertainty of the device's time. On the CPU the clock gives this time, and one turn suffices."""
AGREEING_DIFFERENCE = 0.005
"""Relative difference of the device's time up to which two turns need no third."""
BUDGET_SECONDS = 3.0
"""Seconds that a run's profiles may take in any case."""
BUDGET_SHARE = 0.05
"""Share of the experiment's time so far that its runs' profiles may take together."""
GZIP_LEVEL = 1
"""Level 9 makes a trace 0.6 times as long, in nine times the time."""
WAITED_STEPS = 10
"""Steps before the first profile that are timed one by one, waiting for the device after each, as
PyTorch's Dynamo harness measures latency."""
TRACE = "profile/trace.json.gz"
"""Trace of the last turn, in the run's artifacts."""

MakeStep = Callable[[int], None]
"""Makes a step; the argument is its number in its turn."""


def budget_seconds(elapsed: float, num_runs: int) -> float:
    """Seconds that one run's profiles may take, `elapsed` seconds after it was loaded."""
    return max(BUDGET_SECONDS, BUDGET_SHARE * elapsed / num_runs)


def needs_turn(costs: Sequence[float], busy: Sequence[float], budget: float) -> bool:
    """Whether to profile another turn. `costs`: seconds of each turn so far; `busy`: device seconds
    per step of the turns that count. The first turn is always needed; more turns follow within the
    budget until two agree."""
    if not costs:
        return True
    agree = len(busy) > 1 and max(busy) - min(busy) <= AGREEING_DIFFERENCE * max(busy)
    return not agree and sum(costs) + max(costs) <= budget


class StepProfiler:
    """Records how steps spend their time."""

    def __init__(self, context: RunContext, observer: CompileObserver) -> None:
        """Each rank profiles itself; ranks other than 0 only record their communication."""
        self._group, self._device, self._log = context.group, context.device, context.log
        self._communication: tuple[dict[str, float], list[dict[str, Any]]] | None = None
        """Communication in the turn's trace, until it is recorded."""
        self._since = time.monotonic()
        self._costs: list[float] = []
        """Seconds of each profiled turn."""
        self._busy: list[float] = []
        """Device seconds per step of each turn that counts."""
        experiment = context.experiment
        self._num_runs = len(experiment.arms)
        self._steps = experiment.profile_steps if experiment.profiles else 0
        self._file = context.run.artifacts / TRACE
        if self._group.rank > 0:
            self._file = self._file.with_name(f"trace-rank-{self._group.rank}.json.gz")
        self._root = context.run.path
        self._observer = observer
        self._uncompiled: Callable[[], MakeStep] | None = None

    def alternate_with(self, uncompiled: Callable[[], MakeStep]) -> None:
        """Makes a step without a compiler before each waited step, as PyTorch's harness does: the
        contents that it leaves in the device's caches cost the next step time. `uncompiled`
        prepares such steps. If it fails, for example for lack of device memory, no step is waited
        for."""
        self._uncompiled = uncompiled

    @property
    def num_turns(self) -> int:
        """Most turns to profile; 0 without such steps, or if the device has no profiler."""
        if not self._steps or not self._device.profiler_activities:
            return 0
        return TURNS_OF_A_DEVICE if self._device.works_by_itself else 1

    @property
    def slows_later_steps(self) -> bool:
        """Whether steps after a profile are slower: PyTorch keeps CUPTI running."""
        return self._device.works_by_itself

    @property
    def steps_of_turn(self) -> int:
        """Number of steps in each of these turns."""
        return 1 + (WAITED_STEPS if self._device.works_by_itself else 0) + self._steps

    def needs_turn(self) -> bool:
        """Whether to profile another turn. All ranks must call this, and get the same answer."""
        budget = budget_seconds(time.monotonic() - self._since, self._num_runs)
        return self._group.share(needs_turn(self._costs, self._busy, budget))

    def take_turns(self, turns: Turns, step: MakeStep) -> bool:
        """Profiles in the next turns; `step` gets its number. Returns whether the run holds a turn
        in the end; it does not if it was stopped."""
        for _ in range(self.num_turns):
            if not self.needs_turn():
                break
            turns.done(finished=False)
            turn = turns.wait()
            if turn is None:
                return False
            self._profile(turn.round, step)
        return True

    def _profile(self, round_number: int, step: MakeStep) -> None:
        """Profiles a turn. An error here is recorded, but does not fail the run, since all
        measurements are recorded already."""
        since = time.perf_counter()
        try:
            for number in self.steps(round_number):
                step(number)
        except Exception as error:
            self._write(round_number, since, failure=_describe(error))

    def steps(self, round_number: int) -> Iterator[int]:
        """Yields the number of each step of a turn; the caller makes the step before it takes the
        next number. Writes the turn's events at the end. An error of the profiler is recorded and
        ends the profile."""
        self._log.enter("profiling")
        since = time.perf_counter()
        fields: dict[str, Any] = {}
        try:
            yield from self._record(round_number, fields)
        except Exception as error:
            fields = {"failure": _describe(error)}
        self._write(round_number, since, **fields)
        self._write_ranks(round_number)

    def _write(self, round_number: int, since: float, **fields: Any) -> None:
        cost = time.perf_counter() - since
        self._costs.append(cost)
        if not fields.get("compiled", True):
            self._busy.append(fields["busy_seconds"])
        self._log.append(
            "profile", round=round_number, steps=self._steps, cost_seconds=cost, **fields
        )
        self._log.flush()

    def _write_ranks(self, round_number: int) -> None:
        """Records the communication in each rank's own trace."""
        if self._group.size == 1:
            return
        own_times, self._communication = self._communication, None
        known = [(rank, times) for rank, times in enumerate(self._group.gather(own_times)) if times]
        rows = [{"rank": rank, **seconds} for rank, (seconds, _) in known]
        sent = [{"rank": rank, **row} for rank, (_, kinds) in known for row in kinds]
        self._log.extend("collective", sent, round=round_number)
        self._log.extend("rank_profile", rows, round=round_number)
        self._log.flush()

    def _record(self, round_number: int, fields: dict[str, Any]) -> Iterator[int]:
        """Yields the steps; puts the fields of the turn into `fields`."""
        yield 0  # Ends the effects of other runs' turns, for example on caches.
        self._device.synchronize()
        compilations = self._observer.num_compilations
        waited: list[float] = []
        if self._device.works_by_itself and not self._costs:
            # Only errors of uncompiled steps come here: the caller makes the waited steps.
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
        fields |= kernels | {
            **{name: value / self._steps for name, value in shares.items()},
            "waited_seconds": waited or None,
            "compiled": compiled,
            "trace": str(self._file.relative_to(self._root)),
            "trace_bytes": self._file.stat().st_size,
        }

    def _wait_for_each(self, seconds: list[float]) -> Iterator[int]:
        """Yields steps and adds the seconds of each, before anything is profiled."""
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
        """Writes and returns the trace; packs it here, because torch packs at the highest level."""
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
