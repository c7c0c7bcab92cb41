"""One experiment at work: its run processes, and the turn that they pass.

All processes set up side by side, as many at once as there are CPUs. In each round every living run
gets one turn, in an order drawn anew. Only in the first, which is in no speedup (`judged_blocks` in
storage/index/schema.sql), those that compile least go first, and those that compile nothing while
others still load; there alone several may hold a turn at once, if they are to compile together. A
run that dies, exceeds its time limit or is cancelled gives its turn back, and the others go on.
With `schedule="sequential"` the same happens with one process at a time. Repeats take theirs one
after the other. Of an experiment that is spread over devices there is a scheduler for each
(`runner.supervision.spreading`).
"""

import random
import selectors
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from runner.errors import RunnerError
from runner.folders.data_dir import DataDir
from runner.folders.events import each_event
from runner.folders.queue import Experiment, check_membership, submit
from runner.folders.run_dir import RunDir
from runner.folders.states import RunState
from runner.logs import log
from runner.machine.cpus import cpu_allowance
from runner.machine.placement import Place
from runner.supervision.ending import Ending
from runner.supervision.exit_records import ExitRecords, say
from runner.supervision.run_process import RunProcess
from runner.supervision.stopping_rule import JournalWatch
from runner.supervision.turns import Turn
from runner.texts import printable

TICK_SECONDS = 0.25
"""How often cancel markers and time limits are looked at while nothing else happens."""
MAX_ROUND = 2**40
"""No journal that counts further was written by a run."""


class Fallback:
    """The experiment that repeats this one run by run, submitted by whichever scheduler finds first
    that a device cannot hold all runs."""

    def __init__(self) -> None:
        self.experiment_id: str | None = None
        self._lock = threading.Lock()

    def submit(self, data_dir: DataDir, experiment: Experiment) -> None:
        with self._lock:
            if self.experiment_id is None:
                repeat = replace(experiment.spec, schedule="sequential",
                                 fallback_of=experiment.experiment_id)  # fmt: skip
                self.experiment_id = submit(data_dir, repeat)


class Scheduler:
    """Runs one experiment to its end, or what of it is at one of its places."""

    def __init__(
        self,
        data_dir: DataDir,
        experiment: Experiment,
        command: Sequence[str],
        exits: ExitRecords,
        place: Place,
        sign: Callable[[], None] = lambda: None,
        number: int | None = None,
        fallback: Fallback | None = None,
    ) -> None:
        """`sign` is called at least every quarter of a second while all is well. `number`: of the
        place among those that the experiment is spread over; None for all. `fallback` is shared by
        its schedulers."""
        self._data_dir = data_dir
        self._place = place
        self._sign = sign
        self._experiment = experiment
        self._command = command
        self._exits = exits
        self._selector = selectors.DefaultSelector()
        self._processes: list[RunProcess] = []
        self._pending: list[RunDir] = []
        self._at_once = cpu_allowance().usable
        """How many processes may load, or compile together."""
        self._orders = random.Random(experiment.spec.training.seed)
        self._fallback = fallback or Fallback()
        of_all = zip(experiment.runs, experiment.spec.variants, strict=True)
        self._variants = {
            run: variant for run, variant in of_all if number in (None, variant.place)
        }
        by_label = {run.run_id.partition(".")[2]: run for run in experiment.runs}
        self._warm_run_of = {
            by_label[cold.label].run_id: by_label[warm.label]
            for _, cold, warm in experiment.spec.cold_and_warm
        }

    def run(self) -> None:
        """Blocks until every run of the experiment has ended."""
        try:
            self._drop_caches()
            for runs in self._groups():
                if self._fallback.experiment_id is None:
                    self._run_group(runs)
                else:
                    for run in runs:
                        self._exits.write(run, RunState.CANCELLED, self._why_fallen_back, None)
        except Exception as error:
            # The other experiments in the queue must not pay for what this one holds.
            self.give_up(f"the supervisor met {type(error).__name__}: {printable(error)}")
            traceback.print_exc()
            log.exception("the supervisor gave an experiment up")
        self._selector.close()

    def _drop_caches(self) -> None:
        """Compile caches are code, and a folder may have come from anywhere: what is there before
        anything of this experiment ran is believed by nobody."""
        for run in self._variants:
            if self._is_open(run):
                try:
                    run.drop_cache()
                except OSError as error:
                    why = f"it cannot be started: its compile cache cannot be removed: {error}"
                    self._exits.write(run, RunState.FAILED, why, None)

    def give_up(self, reason: str) -> None:
        """Ends all that lives, and records for every run that has not ended that it failed."""
        for process in self._processes:
            self._exits.write(process.run, RunState.FAILED, reason, process.discard())
        for run in self._variants:
            if run.state is RunState.QUEUED:
                self._exits.write(run, RunState.FAILED, reason, None)

    def _is_open(self, run: RunDir) -> bool:
        return not run.state.is_final and not self._exits.owes(run)

    def _groups(self) -> list[list[RunDir]]:
        """The runs that have not ended, those together that are alive at once."""
        groups: dict[object, list[RunDir]] = {}
        for run, variant in self._variants.items():
            if self._is_open(run):
                company = self._experiment.spec.company_of(variant)
                groups.setdefault(company, []).append(run)
        return list(groups.values())

    def _run_group(self, runs: Sequence[RunDir]) -> None:
        spec = self._experiment.spec
        round_number = _first_round(self._variants if spec.takes_turns else runs)
        watch = None
        if spec.kind.ends_by_width:
            watch = JournalWatch(spec, {run: self._variants[run] for run in runs})
        self._pending = sorted(runs, key=self._compile_effort)
        self._pass_first_turns(round_number, watch.ending(runs) if watch else None)
        while self._processes:
            round_number += 1
            last = watch.ending([process.run for process in self._processes]) if watch else None
            order = self._orders.sample(self._processes, len(self._processes))
            for position, process in enumerate(order):
                self._pass_turn(process, Turn(round=round_number, position=position, last=last))

    def _pass_first_turns(self, round_number: int, last: Ending | None) -> None:
        """What compiling takes is a result, so those that compile wait until all have loaded."""
        runs = self._pending
        order = sorted(self._orders.sample(runs, len(runs)), key=self._compile_effort)
        for position, run in enumerate(order):
            self._wait_until_loaded(order if self._compile_effort(run) else [run])
            beside = self._variants[run].label in self._experiment.spec.compiling_together
            self._wait_for_turns_below(self._at_once if beside else 1)
            for process in [process for process in self._processes if process.run == run]:
                turn = Turn(round=round_number, position=position, last=last)
                if beside:
                    process.give_turn(turn)
                else:
                    self._pass_turn(process, turn)
        self._wait_for_turns_below(1)

    def _wait_for_turns_below(self, number: int) -> None:
        """Never more than one run holds a turn but while several compile together."""
        self._wait_until(lambda: sum(one.holds_turn for one in self._processes) < number)

    def _pass_turn(self, process: RunProcess, turn: Turn) -> None:
        if process in self._processes:
            process.give_turn(turn)
            self._wait_until(lambda: not process.holds_turn)

    def _compile_effort(self, run: RunDir) -> int:
        return self._variants[run].compile_effort

    def _wait_until_loaded(self, runs: Iterable[RunDir]) -> None:
        self._wait_until(lambda: not any(map(self._is_loading, runs)))

    def _is_loading(self, run: RunDir) -> bool:
        return run in self._pending or any(
            process.run == run and not process.is_ready for process in self._processes
        )

    def _start_pending(self) -> None:
        """More processes than CPUs would only keep each other from being ready."""
        loading = sum(not process.is_ready for process in self._processes)
        for run in list(self._pending):
            if run.cancel_requested:
                self._pending.remove(run)
                self._exits.write(run, RunState.CANCELLED, "stopped before it started", None)
            elif loading < self._at_once:
                self._pending.remove(run)
                self._start(run)
                loading += 1

    def _start(self, run: RunDir) -> None:
        spec = self._experiment.spec
        try:
            check_membership(run.read_spec(), spec)
            run.check_plain()
            process = RunProcess(run, self._command, spec.time_limit_seconds, self._place)
        except (RunnerError, OSError) as error:
            self._exits.write(run, RunState.FAILED, f"it cannot be started: {error}", None)
            return
        self._processes.append(process)
        self._selector.register(process.post.replies, selectors.EVENT_READ, process)

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Sleeps on the reply pipes, looking after all runs, until the condition holds."""
        self._start_pending()
        self._collect()
        while (self._processes or self._pending) and not condition():
            for key, _ in self._selector.select(TICK_SECONDS):
                key.data.hear()
                if key.data.is_gone:  # else the closed pipe would wake it without end
                    self._selector.unregister(key.fileobj)
            for process in self._processes:
                process.look_after()
            self._sign()
            if self._fallback.experiment_id is not None:
                self._fall_back()
            self._start_pending()
            self._collect()

    def _collect(self) -> None:
        """Records the exits of processes that have ended; a turn that one held is free again."""
        for process in [process for process in self._processes if process.has_exited]:
            self._processes.remove(process)
            if not process.is_gone:
                self._selector.unregister(process.post.replies)
            process.hear()
            process.holds_turn = False
            warm_run = self._warm_run_of.get(process.run.run_id)
            if process.record_exit(self._exits, warm_run) is RunState.OUT_OF_MEMORY and (
                self._processes or self._pending
            ):
                self._fall_back()

    def _fall_back(self) -> None:
        """Repeats the experiment one run at a time, because together they do not fit."""
        try:
            self._fallback.submit(self._data_dir, self._experiment)
        except RunnerError as error:  # the others go on as long as they fit
            say(f"{self._experiment.experiment_id}: cannot be repeated run by run: {error}")
            return
        for process in self._processes:
            process.stop(RunState.CANCELLED, self._why_fallen_back)
        while self._pending:
            run = self._pending.pop()
            self._exits.write(run, RunState.CANCELLED, self._why_fallen_back, None)

    @property
    def _why_fallen_back(self) -> str:
        return (
            "the device cannot hold all runs at once; experiment "
            f"{self._fallback.experiment_id} repeats them one after another"
        )


def _first_round(runs: Iterable[RunDir]) -> int:
    """The round after the last that any of the runs has recorded, so that runs which go on from a
    checkpoint share no round with what was timed before."""
    return max((number for run in runs for number in _rounds(run)), default=-1) + 1


def _rounds(run: RunDir) -> Iterator[int]:
    with suppress(RunnerError):
        for event in each_event(run.events_file):
            number = event.get("round")
            if event["kind"] == "block" and type(number) is int and 0 <= number < MAX_ROUND:
                yield number
