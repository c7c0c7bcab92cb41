"""Runs one experiment: starts its processes and passes the turn between them.

Processes set up in parallel, as many at once as there are CPUs. In each round every living run gets
one turn, in a new random order. The first round counts in no speedup (`judged_blocks` in
storage/index/schema.sql): in it the runs that compile least go first, runs that compile nothing
start while others still load, and runs that are to compile together hold a turn together. A run
that dies, exceeds its time limit or is cancelled returns its turn, and the others continue. The
experiment ends if the baseline fails before its first step, since nothing could be compared, or if
a run cannot load the model or the data and no other run has, since the others would fail, too. With
`schedule="sequential"` one process runs at a time. Repeats run one after another. If the planned
training has several starts, compiled runs start once more after all others, with their caches.
"""

import random
import selectors
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from breakeven.runner.checks.allowed_code import check_variables
from breakeven.runner.checks.environments import check_allowed
from breakeven.runner.disk_space import lacks_room
from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments.continuing import plan_to_continue
from breakeven.runner.experiments.queue import Experiment, add_run, check_membership, submit
from breakeven.runner.logs import log
from breakeven.runner.machine.cpus import cpu_allowance
from breakeven.runner.machine.placement import Place
from breakeven.runner.more_controls import judged_runs, why_another_control
from breakeven.runner.open_outcomes import why_outcome_open
from breakeven.runner.ports_and_locks import ALONE, REPEATS
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import each_event
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.supervision.decision import Decider, Decision
from breakeven.runner.supervision.exit_records import (
    ExitRecords,
    lacks_memory_alone,
    missing_exclusive_resource,
    say,
)
from breakeven.runner.supervision.fork_server import ForkServer
from breakeven.runner.supervision.later_starts import LaterStartWatch
from breakeven.runner.supervision.plan_rule import PlanWatch
from breakeven.runner.supervision.run_process import RunProcess
from breakeven.runner.supervision.search import Search
from breakeven.runner.supervision.stopping_rule import JournalWatch
from breakeven.runner.texts import printable

TICK_SECONDS = 0.25
"""Interval of the checks of cancel markers and time limits while nothing else happens."""
PATIENCE_SECONDS = 5.0
"""How long to wait for the baseline of an experiment that is continued."""
MAX_ROUND = 2**40
"""No run has so many rounds; larger numbers in a journal are ignored."""
MEASURED = ("step", "block", "accuracy")
"""Kinds of event that a run writes only after it had a turn."""
LOADED = ("workload", *MEASURED)
"""Kinds of event that a run writes only after it loaded model and data."""


class Fallback:
    """The experiment that repeats this one run by run, submitted once."""

    def __init__(self) -> None:
        self.experiment_id: str | None = None
        self.why = ""
        """Why the runs cannot be alive at once, in a sentence without a full stop."""

    def submit(self, data_dir: DataDir, experiment: Experiment, why: str) -> None:
        if self.experiment_id is None:
            self.why = why
            repeat = replace(
                experiment.spec, schedule="sequential", fallback_of=experiment.experiment_id
            )
            self.experiment_id = submit(data_dir, repeat)


class Scheduler:
    """Runs one experiment to its end."""

    def __init__(
        self,
        data_dir: DataDir,
        experiment: Experiment,
        command: Sequence[str],
        exits: ExitRecords,
        place: Place,
        sign: Callable[[], None] = lambda: None,
        takes_controls: bool = True,
        search: Search | None = None,
    ) -> None:
        """`sign`: called at least every 0.25 s while the scheduler works. `takes_controls`:
        whether the scheduler may add controls to the experiment. `search`: decides if the
        experiment is a search."""
        self._data_dir = data_dir
        self._place = place
        self._sign = sign
        self._experiment = experiment
        self._command = command
        self._exits = exits
        self._selector = selectors.DefaultSelector()
        self._processes: list[RunProcess] = []
        self._pending: list[RunDir] = []
        self._forks: ForkServer | None = None
        """Forks the processes of runs, which otherwise start afresh."""
        self._at_once = cpu_allowance().usable
        """How many processes may load at the same time."""
        self._compiling_at_once = self._at_once if search is None else search.compiling_at_once
        """How many processes may compile at the same time."""
        self._orders = random.Random(experiment.spec.training.seed)
        self._fallback = Fallback()
        self._search = search
        self._takes_controls = takes_controls
        self._later_starts: list[RunDir] = []
        """Runs whose training is over, and which start once more with their compile caches."""
        self._lost: set[str] = set()
        """Labels of runs that ended early because they surely lose."""
        self._why_hopeless: str | None = None
        """Why the baseline, or the model or data of all runs, is unusable; None if not known."""
        self._arms = dict(zip(experiment.runs, experiment.arms, strict=True))
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
            self._start_fork_server()
            tried: set[RunDir] = set()
            while runs := self._next_group(tried):
                tried.update(runs)
                if self._why_over is None:
                    self._run_group(runs)
                else:
                    for run in runs:
                        self._exits.write(run, RunState.CANCELLED, self._why_over, None)
            self._time_later_starts()
        except Exception as error:
            # An error of this experiment must not stop the others in the queue.
            self.give_up(f"the supervisor met {type(error).__name__}: {printable(error)}")
            traceback.print_exc()
            log.exception("the supervisor gave an experiment up")
        finally:
            if self._forks is not None:
                self._forks.discard()
        self._selector.close()

    def _drop_caches(self) -> None:
        """Removes the compile caches that exist before the first run starts: they are code, and the
        folder may come from anywhere."""
        for run in self._arms:
            if self._is_open(run):
                try:
                    run.drop_cache()
                except OSError as error:
                    why = f"it cannot be started: its compile cache cannot be removed: {error}"
                    self._exits.write(run, RunState.FAILED, why, None)

    def _start_fork_server(self) -> None:
        """Starts the process that imports once for all runs, if several runs are to start."""
        left = [run for run in self._arms if self._is_open(run)]
        spec = self._experiment.spec
        if spec.may_fork_runs and ForkServer.is_possible() and len(left) > 1:
            with suppress(OSError):
                variables = spec.script.variables_by_name
                self._forks = ForkServer(left[0], self._command, self._place, variables)

    def _time_later_starts(self) -> None:
        """Starts compiled runs once more: they load together, and then compile one at a time."""
        runs = self._later_starts
        for group in [runs] if self._experiment.spec.takes_turns else [[run] for run in runs]:
            if group and self._why_over is None:
                self._run_group(group)

    def give_up(self, reason: str) -> None:
        """Ends all processes, and records all runs that have not ended as failed."""
        for process in self._processes:
            self._exits.write(process.run, RunState.FAILED, reason, process.discard())
        for run in self._arms:
            if run.state is RunState.QUEUED:
                self._exits.write(run, RunState.FAILED, reason, None)

    def _is_open(self, run: RunDir) -> bool:
        return not run.state.is_final and not self._exits.owes(run)

    def _is_training(self, run: RunDir) -> bool:
        return run not in self._later_starts and self._is_open(run)

    def _groups(self) -> list[list[RunDir]]:
        """The runs that have not ended, in groups of runs that are alive at the same time; without
        those that only start once more."""
        groups: dict[object, list[RunDir]] = {}
        for run, arm in self._arms.items():
            if self._is_training(run):
                key = self._experiment.spec.turn_group(arm)
                groups.setdefault(key, []).append(run)
        return list(groups.values())

    def _next_group(self, tried: Collection[RunDir]) -> list[RunDir] | None:
        """The next group of runs. A user who continues an experiment queues the baseline
        last: this waits for it, because the other runs are compared with it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            runs = next((group for group in self._groups() if not set(tried) & set(group)), None)
            if runs is None or not runs[0].only_times or time.monotonic() > deadline:
                return runs
            if any(self._arms[run].role == "baseline" for run in runs):
                return runs
            self._sign()
            time.sleep(TICK_SECONDS)

    def _run_group(self, runs: Sequence[RunDir]) -> None:
        """Runs a group to its end. Candidates may join it, and runs that are decided leave it."""
        spec = self._experiment.spec
        decider = self._search or self._make_decider(runs)
        round_number = _first_round(self._arms if spec.takes_turns else runs)
        self._pending = sorted(runs, key=self._compile_effort)
        # A search decides from the times of a first round.
        decision = Decision()
        if decider is not None and self._search is None:
            decision = decider.decide(self._labels(runs))
        if runs[0].only_times:
            self._end_decided(decision)
        while self._processes or self._pending:
            if self._pending:
                self._pass_first_turns(round_number, decision)
                round_number += 1
            living = [process.run for process in self._processes]
            decision = decision if decider is None else decider.decide(self._labels(living))
            self._lost.update(decision.dropped)
            order = self._orders.sample(self._processes, len(self._processes))
            for position, process in enumerate(order):
                label = self._arms[process.run].label
                # New candidates come first, and those that end make room for them.
                if label in decision.dropped or not decision.joining:
                    self._pass_turn(process, decision.turn(label, round_number, position))
            round_number += 1
            self._pending += [self._join(candidate) for candidate in decision.joining]

    def _end_decided(self, decision: Decision) -> None:
        """Ends pending runs that are timed no further, because it is decided already."""
        for run in list(self._pending):
            if ending := decision.ending(self._arms[run].label):
                self._pending.remove(run)
                self._exits.write(run, RunState.CANCELLED, ending.reason, None)

    def _make_decider(self, runs: Sequence[RunDir]) -> Decider | None:
        """Who decides when a group ends; None if each run ends by itself."""
        if runs[0].is_later_start:
            return LaterStartWatch({run: self._arms[run].label for run in runs})
        spec, further = self._experiment.spec, plan_to_continue(runs[0])
        if further is not None:
            return PlanWatch(spec, self._arms, further)
        if spec.kind.ends_by_width:
            return JournalWatch(spec, {run: self._arms[run] for run in runs})
        # Without the baseline, as a control that is added later, a run trains to its end.
        if spec.is_until_decided and any(self._arms[run].role == "baseline" for run in runs):
            return PlanWatch(spec, self._arms)
        return None

    def _labels(self, runs: Iterable[RunDir]) -> list[str]:
        return [self._arms[run].label for run in runs]

    def _join(self, candidate: Arm) -> RunDir:
        assert self._search is not None
        self._experiment = add_run(self._data_dir, self._experiment, candidate)
        run = self._experiment.runs[-1]
        self._arms[run] = candidate
        self._search.add(run, candidate)
        return run

    def _pass_first_turns(self, round_number: int, decision: Decision) -> None:
        """Gives each pending run its first turn. Compile time is a result, so runs that compile
        wait until all have loaded. All runs wait for a run that checks the experiment."""
        runs = self._pending
        checking = [run for run in runs if run.is_unchecked]
        order = sorted(self._orders.sample(runs, len(runs)), key=self._compile_effort)
        for position, run in enumerate(order):
            self._wait_until_loaded(order if self._compile_effort(run) else [run, *checking])
            is_together = self._arms[run].label in self._experiment.spec.compiling_together
            self._wait_for_turns_below(self._compiling_at_once if is_together else 1)
            for process in [process for process in self._processes if process.run == run]:
                turn = decision.turn(self._arms[run].label, round_number, position)
                if is_together:
                    process.give_turn(turn)
                else:
                    self._pass_turn(process, turn)
        self._wait_for_turns_below(1)

    def _wait_for_turns_below(self, number: int) -> None:
        """Waits until fewer than `number` runs hold a turn, and the disk has room for results. More
        than one run holds a turn only while several compile together."""
        self._wait_until(
            lambda: (
                sum(process.holds_turn for process in self._processes) < number and self._has_room
            )
        )

    def _pass_turn(self, process: RunProcess, turn: Turn) -> None:
        self._wait_for_turns_below(1)
        if process in self._processes:
            process.give_turn(turn)
            self._wait_until(lambda: not process.holds_turn)

    @property
    def _has_room(self) -> bool:
        """Whether the disk has room for the files of a run."""
        return lacks_room(self._data_dir.runs) is None

    def _compile_effort(self, run: RunDir) -> int:
        return self._arms[run].compile_effort

    def _wait_until_loaded(self, runs: Iterable[RunDir]) -> None:
        self._wait_until(lambda: not any(map(self._is_loading, runs)))

    def _is_loading(self, run: RunDir) -> bool:
        return run in self._pending or any(
            process.run == run and not process.is_ready for process in self._processes
        )

    def _start_pending(self) -> None:
        """Starts pending runs, at most one process per CPU: more would delay each other."""
        may_start = self._forks is None or not self._forks.is_loading
        loading = sum(not process.is_ready for process in self._processes)
        for run in list(self._pending):
            if run.cancel_requested:
                self._pending.remove(run)
                self._exits.write(run, RunState.CANCELLED, "stopped before it started", None)
            elif (
                may_start and loading < self._at_once and self._why_over is None and self._has_room
            ):
                self._pending.remove(run)
                self._start(run)
                loading += 1

    def _start(self, run: RunDir) -> None:
        spec = self._experiment.spec
        try:
            run_spec = run.read_spec()
            check_membership(run_spec, spec)
            run.check_plain()
            python = spec.environment_python(self._arms[run])
            if python is not None:
                check_allowed(python, self._data_dir)
            check_variables(run_spec.script)
            variables = run_spec.script.variables_by_name
            process = RunProcess(
                run,
                self._command,
                spec.time_limit_seconds,
                self._place,
                python,
                None if self._forks is None else self._forks.fork(variables),
                variables,
            )
        except (RunnerError, OSError) as error:
            why = f"it cannot be started: {error}"
            self._exits.write(run, RunState.FAILED, why, None)
            self._look_at_baseline(run, RunState.FAILED, why)
            return
        self._processes.append(process)
        self._selector.register(process.post.replies, selectors.EVENT_READ, process)

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Waits for replies, and looks after all runs, until the condition holds."""
        self._start_and_collect()
        while (self._processes or self._pending) and not condition():
            for key, _ in self._selector.select(TICK_SECONDS):
                key.data.hear()
                if key.data.is_gone:  # Otherwise the closed pipe would end each wait at once.
                    self._selector.unregister(key.fileobj)
            for process in self._processes:
                process.enforce_limits()
                self._look_at_compiling(process)
            self._sign()
            self._start_and_collect()

    def _look_at_compiling(self, process: RunProcess) -> None:
        """Stops a candidate whose compile time exceeds any possible gain."""
        if self._search is None or not process.holds_turn:
            return
        why = self._search.why_too_long(process.run, time.monotonic() - process.turn_since)
        if why is not None:
            process.stop(RunState.CANCELLED, why)

    def _start_and_collect(self) -> None:
        self._start_pending()
        self._collect()
        if self._why_over is not None:
            self._end_others(self._why_over)

    def _collect(self) -> None:
        """Records the exits of processes that have ended, and frees their turns."""
        for process in [process for process in self._processes if process.has_exited]:
            self._processes.remove(process)
            if not process.is_gone:
                self._selector.unregister(process.post.replies)
            process.hear()
            process.holds_turn = False
            others_open = any(
                other != process.run and self._is_training(other) for other in self._arms
            )
            is_training = process.run not in self._later_starts
            if process.said_finished and is_training and not others_open:
                self._add_control(process.run)  # before its exit record, which ends the experiment
            warm_run = self._warm_run_of.get(process.run.run_id)
            starts_later = self._starts_later(process.run)
            state, why = process.record_exit(self._exits, warm_run, starts_later)
            if starts_later and process.run.is_later_start:
                self._later_starts.append(process.run)
            why_alone = self._why_alone(process.run, state)
            if why_alone is not None:
                self._fall_back(why_alone)
            if process.has_not_loaded and not self._has_any_loaded:
                self._why_hopeless = f"what all runs share cannot be loaded: {why}"
            else:
                self._look_at_baseline(process.run, state, why)

    def _starts_later(self, run: RunDir) -> bool:
        """Whether a run, if it has finished, starts once more with its compile caches. One that was
        resumed has not compiled everything in its last process."""
        arm = self._arms[run]
        is_timed = self._experiment.spec.times_later_starts and arm.backend is not None
        is_wanted = self._why_over is None and not run.cancel_requested
        return is_timed and is_wanted and run.attempt == 1 and arm.label not in self._lost

    def _why_alone(self, run: RunDir, state: RunState) -> str | None:
        """Why a run that just failed can work only while no other run is alive; None if it did not
        fail for that, or was alone."""
        others = self._processes or self._pending
        if not others or run.only_times or self._search is not None:
            return None
        if state is RunState.OUT_OF_MEMORY:
            return None if lacks_memory_alone(run) else ALONE["memory"]
        held = missing_exclusive_resource(run) if state is RunState.FAILED else None
        return held and ALONE[held]

    @property
    def _has_any_loaded(self) -> bool:
        """Whether any run, now or earlier, has loaded the model and the data, or may yet."""
        if len(self._experiment.spec.environments) > 1:  # One may lack what another one has.
            return True
        is_ready = any(process.is_ready for process in self._processes)
        return is_ready or any(_tells(run, LOADED) for run in self._arms)

    def _add_control(self, last: RunDir) -> None:
        """Queues another control, of the first environment that needs one, if the losses of the
        runs decide too little. `last` has just finished; the control begins after all other runs of
        the experiment."""
        spec, label = self._experiment.spec, self._experiment.experiment_id
        if not self._takes_controls:
            return
        finished = [
            (run, arm)
            for run, arm in self._arms.items()
            if run == last or run.state is RunState.FINISHED
        ]
        for name in spec.environment_names:
            left = [
                control
                for control in spec.further_controls
                if control.environment == name and control not in self._arms.values()
            ]
            try:
                why = left and (
                    why_outcome_open(spec, name, finished)
                    or why_another_control(
                        judged_runs(spec, name, finished), spec.training.precision
                    )
                )
                if why:
                    self._experiment = add_run(self._data_dir, self._experiment, left[0])
                    self._arms[self._experiment.runs[-1]] = left[0]
                    say(f"{label}: {why}")
                    return
            except (RunnerError, OSError, LookupError, TypeError, ValueError) as error:
                # A damaged or changed journal adds no control.
                say(f"{label}: no further control: {error}")

    def _look_for_baseline(self) -> None:
        """Checks if the baseline failed under an earlier supervisor; skipped if an open run has a
        checkpoint, since the baseline had worked then."""
        if not any(run.has_checkpoint for run in self._arms if self._is_open(run)):
            for run in self._arms:
                status = run.status
                self._look_at_baseline(run, status.state, status.reason or status.state)

    def _look_at_baseline(self, run: RunDir, state: RunState, why: str) -> None:
        """Notes that the experiment is hopeless if this run is the baseline and failed before its
        first step: all runs share its model, data and optimizer."""
        if self._arms[run].role != "baseline" or self._why_hopeless is not None:
            return
        if (
            len(self._experiment.spec.environments) > 1
        ):  # Another environment has a baseline of its own.
            return
        has_failed = state in (RunState.FAILED, RunState.TIMEOUT) and not _tells(run, MEASURED)
        if has_failed or state is RunState.LOST:
            self._why_hopeless = f"no baseline to compare with: {why}"

    def _fall_back(self, why: str) -> None:
        """Repeats the experiment one run at a time: its runs cannot be alive at once."""
        try:
            self._fallback.submit(self._data_dir, self._experiment, why)
        except RunnerError as error:  # the other runs continue as long as they fit
            say(f"{self._experiment.experiment_id}: cannot be repeated run by run: {error}")

    def _end_others(self, why: str) -> None:
        for process in self._processes:
            process.stop(RunState.CANCELLED, why)
        while self._pending:
            self._exits.write(self._pending.pop(), RunState.CANCELLED, why, None)

    @property
    def _why_over(self) -> str | None:
        """Why the experiment ends early; None while it continues."""
        if self._fallback.experiment_id is None:
            return self._why_hopeless
        repeat = self._fallback.experiment_id
        return f"{self._fallback.why}; experiment {repeat} {REPEATS}"


def _first_round(runs: Iterable[RunDir]) -> int:
    """The round after the last recorded round of all runs, so that resumed runs share no round with
    earlier blocks."""
    return max((number for run in runs for number in _rounds(run)), default=-1) + 1


def _tells(run: RunDir, kinds: Collection[str]) -> bool:
    """Whether the run's journal has an event of one of these kinds."""
    with suppress(RunnerError):
        return any(event["kind"] in kinds for event in each_event(run.events_file))
    return False


def _rounds(run: RunDir) -> Iterator[int]:
    with suppress(RunnerError):
        for event in each_event(run.events_file):
            number = event.get("round")
            if event["kind"] == "block" and type(number) is int and 0 <= number < MAX_ROUND:
                yield number
