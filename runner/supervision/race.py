"""One experiment at work: its run processes, and the turn that they pass.

All processes set up side by side, as many at once as there are CPUs. In each round every living run
gets one turn, in an order drawn anew. Only in the first, which is in no speedup (`judged_blocks` in
storage/index/schema.sql), those that compile least go first, and those that compile nothing while
others still load. A run that dies, exceeds its time limit or is cancelled gives its turn back, and
the others go on. With `schedule="sequential"` the same happens with one process at a time. Repeats
race one after the other.
"""

import random
import selectors
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from runner.errors import RunnerError
from runner.folders.events import read_events
from runner.folders.queue import Experiment, check_membership, submit
from runner.folders.run_dir import DataDir, RunDir, RunState
from runner.machine.cpus import cpu_allowance
from runner.supervision.exit_records import ExitRecords
from runner.supervision.run_process import Racer
from runner.supervision.stopping_rule import JournalWatch
from runner.supervision.turns import Turn
from runner.texts import printable

TICK_SECONDS = 0.25
"""How often cancel markers and time limits are looked at while nothing else happens."""
MAX_ROUND = 2**40
"""No journal that counts further was written by a run."""


class Race:
    """Runs one experiment to its end."""

    def __init__(
        self,
        data_dir: DataDir,
        experiment: Experiment,
        command: Sequence[str],
        exits: ExitRecords,
    ) -> None:
        self._data_dir = data_dir
        self._experiment = experiment
        self._command = command
        self._exits = exits
        self._selector = selectors.DefaultSelector()
        self._racers: list[Racer] = []
        self._pending: list[RunDir] = []
        self._loading_at_once = cpu_allowance().usable
        self._orders = random.Random(experiment.spec.training.seed)
        self._fallback: str | None = None
        self._variants = dict(zip(experiment.runs, experiment.spec.variants, strict=True))
        by_label = {run.run_id.partition(".")[2]: run for run in experiment.runs}
        self._heirs = {
            by_label[cold.label].run_id: by_label[warm.label]
            for _, cold, warm in experiment.spec.cold_and_warm
        }

    def run(self) -> None:
        """Blocks until every run of the experiment has ended."""
        try:
            for runs in self._groups():
                if self._fallback is None:
                    self._run_group(runs)
                else:
                    for run in runs:
                        self._exits.write(run, RunState.CANCELLED, self._why_fallen_back, None)
        except Exception as error:
            # The other experiments in the queue must not pay for what this one holds.
            self._give_up(f"the supervisor met {type(error).__name__}: {printable(error)}")
            traceback.print_exc()
        self._selector.close()

    def _give_up(self, reason: str) -> None:
        for racer in self._racers:
            self._exits.write(racer.run, RunState.FAILED, reason, racer.discard())
        for run in self._experiment.runs:
            if run.state is RunState.QUEUED:
                self._exits.write(run, RunState.FAILED, reason, None)

    def _groups(self) -> list[list[RunDir]]:
        """The runs that have not ended, those together that are alive at once."""
        groups: dict[int | str, list[RunDir]] = {}
        races = self._experiment.spec.races
        for run, variant in self._variants.items():
            if not run.state.is_final:
                groups.setdefault(variant.repeat if races else run.run_id, []).append(run)
        return list(groups.values())

    def _run_group(self, runs: Sequence[RunDir]) -> None:
        spec = self._experiment.spec
        round_number = _first_round(self._experiment.runs if spec.races else runs)
        watch = None
        if spec.scenario == "speed":
            watch = JournalWatch(spec, {run: self._variants[run] for run in runs})
        self._pending = sorted(runs, key=self._compile_effort)
        self._pass_first_turns(round_number, watch.reason(runs) if watch else None)
        while self._racers:
            round_number += 1
            last = watch.reason([racer.run for racer in self._racers]) if watch else None
            order = self._orders.sample(self._racers, len(self._racers))
            for position, racer in enumerate(order):
                self._pass_turn(racer, Turn(round=round_number, position=position, last=last))

    def _pass_first_turns(self, round_number: int, last: str | None) -> None:
        """What compiling takes is a result, so those that compile wait until all have loaded."""
        runs = self._pending
        order = sorted(self._orders.sample(runs, len(runs)), key=self._compile_effort)
        for position, run in enumerate(order):
            self._wait_until_loaded(order if self._compile_effort(run) else [run])
            for racer in [racer for racer in self._racers if racer.run == run]:
                self._pass_turn(racer, Turn(round=round_number, position=position, last=last))

    def _pass_turn(self, racer: Racer, turn: Turn) -> None:
        if racer in self._racers:
            racer.give_turn(turn)
            self._wait_until(lambda: not racer.holds_turn)

    def _compile_effort(self, run: RunDir) -> int:
        return self._variants[run].compile_effort

    def _wait_until_loaded(self, runs: Iterable[RunDir]) -> None:
        self._wait_until(lambda: not any(map(self._is_loading, runs)))

    def _is_loading(self, run: RunDir) -> bool:
        return run in self._pending or any(
            racer.run == run and not racer.is_ready for racer in self._racers
        )

    def _start_pending(self) -> None:
        """More processes than CPUs would only keep each other from being ready."""
        loading = sum(not racer.is_ready for racer in self._racers)
        for run in list(self._pending):
            if run.cancel_requested:
                self._pending.remove(run)
                self._exits.write(run, RunState.CANCELLED, "stopped before it started", None)
            elif loading < self._loading_at_once:
                self._pending.remove(run)
                self._start(run)
                loading += 1

    def _start(self, run: RunDir) -> None:
        spec = self._experiment.spec
        try:
            check_membership(run.read_spec(), spec)
            run.check_plain()
            racer = Racer(run, self._command, spec.time_limit_seconds)
        except (RunnerError, OSError) as error:
            self._exits.write(run, RunState.FAILED, f"it cannot be started: {error}", None)
            return
        self._racers.append(racer)
        self._selector.register(racer.post.replies, selectors.EVENT_READ, racer)

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Sleeps on the reply pipes, looking after all runs, until the condition holds."""
        self._start_pending()
        self._collect()
        while (self._racers or self._pending) and not condition():
            for key, _ in self._selector.select(TICK_SECONDS):
                key.data.hear()
            for racer in self._racers:
                racer.look_after()
            self._start_pending()
            self._collect()

    def _collect(self) -> None:
        """Buries the runs that have ended; their turn, if they held it, is free again."""
        for racer in [racer for racer in self._racers if racer.has_exited]:
            self._racers.remove(racer)
            self._selector.unregister(racer.post.replies)
            racer.hear()
            racer.holds_turn = False
            heir = self._heirs.get(racer.run.run_id)
            if racer.bury(self._exits, heir) is RunState.OUT_OF_MEMORY and (
                self._racers or self._pending
            ):
                self._fall_back()

    def _fall_back(self) -> None:
        """Repeats the experiment one run at a time, because together they do not fit."""
        if self._fallback is None:
            spec = self._experiment.spec
            repeat = replace(
                spec, schedule="sequential", fallback_of=self._experiment.experiment_id
            )
            self._fallback = submit(self._data_dir, repeat)
        for racer in self._racers:
            racer.stop(RunState.CANCELLED, self._why_fallen_back)
        while self._pending:
            run = self._pending.pop()
            self._exits.write(run, RunState.CANCELLED, self._why_fallen_back, None)

    @property
    def _why_fallen_back(self) -> str:
        return (
            f"the device cannot hold all runs at once; experiment {self._fallback} repeats them "
            "one after another"
        )


def _first_round(runs: Iterable[RunDir]) -> int:
    """The round after the last that any of the runs has recorded, so that runs which go on from a
    checkpoint share no round with what was timed before."""
    return max((number for run in runs for number in _rounds(run)), default=-1) + 1


def _rounds(run: RunDir) -> Iterator[int]:
    with suppress(RunnerError):
        for event in read_events(run.events_file)[0]:
            number = event.get("round")
            if event["kind"] == "block" and type(number) is int and 0 <= number < MAX_ROUND:
                yield number
