"""One experiment at work: its run processes, and the turn that they pass.

All processes set up side by side, as many at once as there are CPUs. In each round every living run
gets one turn, in an order drawn anew. Only in the first, which is in no speedup (`judged_blocks` in
storage/index/schema.sql), those that compile least go first, and those that compile nothing while
others still load; there alone several may hold a turn at once, if they are to compile together. A
run that dies, exceeds its time limit or is cancelled gives its turn back, and the others go on;
unless the baseline fails before its first step, or a run cannot load the model or the data that no
other has loaded: the others would fail, too, or be compared with nothing, so the experiment ends.
With `schedule="sequential"` the same happens with one process at a time. Repeats take theirs one
after the other. Of an experiment that is spread over devices there is a scheduler for each
(`runner.supervision.spreading`).
"""

import random
import selectors
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from breakeven.runner.errors import RunnerError
from breakeven.runner.files import lacks_room
from breakeven.runner.folders.added_rounds import begin_next_process, rounds_to_add
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.events import each_event
from breakeven.runner.folders.queue import Experiment, add_run, check_membership, submit
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import RunState
from breakeven.runner.logs import log
from breakeven.runner.machine.cpus import cpu_allowance
from breakeven.runner.machine.placement import Place
from breakeven.runner.specs.variants import Variant
from breakeven.runner.supervision.controls import why_another_control
from breakeven.runner.supervision.exits import ExitRecords, say
from breakeven.runner.supervision.run_process import RunProcess
from breakeven.runner.supervision.search import Search
from breakeven.runner.supervision.stopping_rule import Ending, JournalWatch
from breakeven.runner.supervision.turns import Turn
from breakeven.runner.texts import printable

TICK_SECONDS = 0.25
"""How often cancel markers and time limits are looked at while nothing else happens."""
PATIENCE_SECONDS = 5.0
"""How long a baseline to which rounds are added is waited for."""
MAX_ROUND = 2**40
"""No journal that counts further was written by a run."""
MEASURED = ("step", "block", "accuracy")
"""Kinds of event that only a run which had a turn has written."""
LOADED = ("workload", *MEASURED)
"""Kinds of event that only a run which has loaded model and data has written."""


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
        takes_controls: bool = True,
    ) -> None:
        """`sign` is called at least every quarter of a second while all is well. `number`: of the
        place among those that the experiment is spread over; None for all. `fallback` is shared by
        its schedulers. `takes_controls`: whether it may add runs to the experiment."""
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
        self._search: Search | None = None
        self._turn_since = 0.0
        """When the last turn was given, by the monotonic clock."""
        self._takes_controls = takes_controls and number is None
        self._why_hopeless: str | None = None
        """Why there is no baseline to compare with or nothing to train; None while there may be."""
        of_all = zip(experiment.runs, experiment.variants, strict=True)
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
            self._look_for_baseline()
            tried: set[RunDir] = set()
            while runs := self._next_group(tried):
                tried.update(runs)
                if self._why_over is None:
                    work = (
                        self._run_search
                        if self._experiment.spec.kind.searches
                        else (self._run_group)
                    )
                    work(runs)
                    tried.difference_update(begin_next_process(runs))
                else:
                    for run in runs:
                        self._exits.write(run, RunState.CANCELLED, self._why_over, None)
        except Exception as error:
            # The other experiments in the queue must not pay for what this one holds.
            self.give_up(f"the supervisor met {type(error).__name__}: {printable(error)}")
            traceback.print_exc()
            log.exception("the supervisor gave an experiment up")
        self._selector.close()

    def _drop_caches(self) -> None:
        """Compile caches are code, and a folder may have come from anywhere: files from before the
        first run of this experiment are not trusted."""
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

    def _next_group(self, tried: Collection[RunDir]) -> list[RunDir] | None:
        """The next runs that are alive at once. Rounds are added to one run after the other, to the
        baseline last: it is waited for, so that the others have something to be compared with."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            runs = next((one for one in self._groups() if not set(tried) & set(one)), None)
            if runs is None or not runs[0].adds_rounds or time.monotonic() > deadline:
                return runs
            if any(self._variants[run].role == "baseline" for run in runs):
                return runs
            self._sign()
            time.sleep(TICK_SECONDS)

    def _run_group(self, runs: Sequence[RunDir]) -> None:
        spec = self._experiment.spec
        round_number = _first_round(self._variants if spec.takes_turns else runs)
        watch, added = None, rounds_to_add(runs[0])
        if spec.kind.ends_by_width or added is not None:
            watch = JournalWatch(spec, {run: self._variants[run] for run in runs}, added)
        self._pending = sorted(runs, key=self._compile_effort)
        self._pass_first_turns(round_number, watch.ending(runs) if watch else None)
        while self._processes:
            round_number += 1
            last = watch.ending([process.run for process in self._processes]) if watch else None
            order = self._orders.sample(self._processes, len(self._processes))
            for position, process in enumerate(order):
                self._pass_turn(process, Turn(round=round_number, position=position, last=last))

    def _run_search(self, runs: Sequence[RunDir]) -> None:
        """As a group to which candidates are added, and of which those that lose end."""
        round_number = _first_round(self._variants)
        self._search = Search(self._experiment.spec, self._variants)
        self._pending = sorted(runs, key=self._compile_effort)
        while self._processes or self._pending:
            if self._pending:
                self._pass_first_turns(round_number, None)
                round_number += 1
            decision = self._search.decide([process.run for process in self._processes])
            order = self._orders.sample(self._processes, len(self._processes))
            for position, process in enumerate(order):
                last = decision.dropped.get(self._variants[process.run].label, decision.over)
                self._pass_turn(process, Turn(round=round_number, position=position, last=last))
            round_number += 1
            if decision.over is None:
                self._pending += map(self._join, decision.joining)
        try:
            if not any(run.cancel_requested for run in runs):
                self._search.confirm(self._data_dir, self._experiment)
        except RunnerError as error:
            say(f"{self._experiment.experiment_id}: its answer cannot be confirmed: {error}")
        self._search = None

    def _join(self, candidate: Variant) -> RunDir:
        self._experiment = add_run(self._data_dir, self._experiment, candidate)
        run = self._experiment.runs[-1]
        self._variants[run] = candidate
        if self._search is not None:
            self._search.add(run, candidate)
        return run

    def _pass_first_turns(self, round_number: int, last: Ending | None) -> None:
        """What compiling takes is a result, so those that compile wait until all have loaded; and
        all wait for one that has the experiment checked."""
        runs = self._pending
        checking = [run for run in runs if run.is_unchecked]
        order = sorted(self._orders.sample(runs, len(runs)), key=self._compile_effort)
        for position, run in enumerate(order):
            self._wait_until_loaded(order if self._compile_effort(run) else [run, *checking])
            is_together = self._variants[run].label in self._experiment.spec.compiling_together
            self._wait_for_turns_below(self._at_once if is_together else 1)
            for process in [process for process in self._processes if process.run == run]:
                turn = Turn(round=round_number, position=position, last=last)
                if is_together:
                    process.give_turn(turn)
                else:
                    self._pass_turn(process, turn)
        self._wait_for_turns_below(1)

    def _wait_for_turns_below(self, number: int) -> None:
        """Never more than one run holds a turn but while several compile together; and none gets
        one as long as it could not write down what it measures."""
        self._wait_until(
            lambda: sum(one.holds_turn for one in self._processes) < number and self._has_room
        )

    def _pass_turn(self, process: RunProcess, turn: Turn) -> None:
        self._wait_for_turns_below(1)
        if process in self._processes:
            self._turn_since = time.monotonic()
            process.give_turn(turn)
            self._wait_until(lambda: not process.holds_turn)

    @property
    def _has_room(self) -> bool:
        """Whether the disk has room for what a run writes down."""
        return lacks_room(self._data_dir.runs) is None

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
            elif loading < self._at_once and self._why_over is None and self._has_room:
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
            why = f"it cannot be started: {error}"
            self._exits.write(run, RunState.FAILED, why, None)
            self._look_at_baseline(run, RunState.FAILED, why)
            return
        self._processes.append(process)
        self._selector.register(process.post.replies, selectors.EVENT_READ, process)

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Sleeps on the reply pipes, looking after all runs, until the condition holds."""
        self._start_and_collect()
        while (self._processes or self._pending) and not condition():
            for key, _ in self._selector.select(TICK_SECONDS):
                key.data.hear()
                if key.data.is_gone:  # else the closed pipe would wake it without end
                    self._selector.unregister(key.fileobj)
            for process in self._processes:
                process.look_after()
                self._look_at_compiling(process)
            self._sign()
            self._start_and_collect()

    def _look_at_compiling(self, process: RunProcess) -> None:
        """Stops a candidate that compiles for longer than it could ever gain."""
        if self._search is None or not process.holds_turn:
            return
        why = self._search.why_too_long(process.run, time.monotonic() - self._turn_since)
        if why is not None:
            process.stop(RunState.CANCELLED, why)

    def _start_and_collect(self) -> None:
        self._start_pending()
        self._collect()
        if self._why_over is not None:
            self._end_others(self._why_over)

    def _collect(self) -> None:
        """Records the exits of processes that have ended; a turn that one held is free again."""
        for process in [process for process in self._processes if process.has_exited]:
            self._processes.remove(process)
            if not process.is_gone:
                self._selector.unregister(process.post.replies)
            process.hear()
            process.holds_turn = False
            if process.said_finished and self._is_last(process.run):
                self._add_control(process.run)  # before the record of its end: it is not over then
            warm_run = self._warm_run_of.get(process.run.run_id)
            state, why = process.record_exit(self._exits, warm_run)
            is_short = state is RunState.OUT_OF_MEMORY and not process.run.adds_rounds
            if is_short and self._search is None and (self._processes or self._pending):
                self._fall_back()
            if process.has_not_loaded and not self._has_any_loaded:
                self._why_hopeless = f"what all runs share cannot be loaded: {why}"
            else:
                self._look_at_baseline(process.run, state, why)

    @property
    def _has_any_loaded(self) -> bool:
        """Whether some run, now or earlier, could load the model and the data."""
        is_ready = any(process.is_ready for process in self._processes)
        return is_ready or any(_tells(run, LOADED) for run in self._variants)

    def _is_last(self, run: RunDir) -> bool:
        return not any(other != run and self._is_open(other) for other in self._variants)

    def _add_control(self, last: RunDir) -> None:
        """Queues another control where the runs, of which the last has just finished, say too
        little: it begins when nothing else of the experiment is at work."""
        spec, label = self._experiment.spec, self._experiment.experiment_id
        further = spec.further_controls[len(self._experiment.runs) - len(spec.variants) :]
        if not self._takes_controls or not further:
            return
        finished = [(variant.role, run) for run, variant in self._variants.items()
                    if run == last or run.state is RunState.FINISHED]  # fmt: skip
        try:
            why = why_another_control(finished, spec.training.precision)
            if why is not None:
                self._experiment = add_run(self._data_dir, self._experiment, further[0])
                self._variants[self._experiment.runs[-1]] = self._experiment.variants[-1]
                say(f"{label}: {why}")
        except (RunnerError, OSError, LookupError, TypeError, ValueError) as error:
            # What a journal says that no run wrote asks for no control.
            say(f"{label}: no further control: {error}")

    def _look_for_baseline(self) -> None:
        """Of what an earlier supervisor left; runs with checkpoints were compared already."""
        if not any(run.has_checkpoint for run in self._variants if self._is_open(run)):
            for run in self._variants:
                stands = run.standing
                self._look_at_baseline(run, stands.state, stands.reason or stands.state)

    def _look_at_baseline(self, run: RunDir, state: RunState, why: str) -> None:
        """Notes that there is no baseline if this run was to be it and failed before its first
        step: model, data and optimizer are those of all runs."""
        if self._variants[run].role != "baseline" or self._why_hopeless is not None:
            return
        has_failed = state in (RunState.FAILED, RunState.TIMEOUT) and not _tells(run, MEASURED)
        if has_failed or state is RunState.LOST:
            self._why_hopeless = f"no baseline to compare with: {why}"

    def _fall_back(self) -> None:
        """Repeats the experiment one run at a time, because together they do not fit."""
        try:
            self._fallback.submit(self._data_dir, self._experiment)
        except RunnerError as error:  # the others go on as long as they fit
            say(f"{self._experiment.experiment_id}: cannot be repeated run by run: {error}")

    def _end_others(self, why: str) -> None:
        for process in self._processes:
            process.stop(RunState.CANCELLED, why)
        while self._pending:
            self._exits.write(self._pending.pop(), RunState.CANCELLED, why, None)

    @property
    def _why_over(self) -> str | None:
        """Why no further run is worth its time; None as long as they are."""
        if self._fallback.experiment_id is None:
            return self._why_hopeless
        return (
            "the device cannot hold all runs at once; experiment "
            f"{self._fallback.experiment_id} repeats them one after another"
        )


def _first_round(runs: Iterable[RunDir]) -> int:
    """The round after the last that any of the runs has recorded, so that runs which go on from a
    checkpoint share no round with what was timed before."""
    return max((number for run in runs for number in _rounds(run)), default=-1) + 1


def _tells(run: RunDir, kinds: Collection[str]) -> bool:
    """Whether its journal has events of one of the kinds."""
    with suppress(RunnerError):
        return any(event["kind"] in kinds for event in each_event(run.events_file))
    return False


def _rounds(run: RunDir) -> Iterator[int]:
    with suppress(RunnerError):
        for event in each_event(run.events_file):
            number = event.get("round")
            if event["kind"] == "block" and type(number) is int and 0 <= number < MAX_ROUND:
                yield number
