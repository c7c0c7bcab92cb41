"""One history: commands and faults, drawn from a seed, and the invariants that must hold."""

import json
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.simulation.boundary import simulated
from benchmarks.simulation.kernel import Kernel, Process, Violation
from benchmarks.simulation.system import End, System
from benchmarks.simulation.workers import Worker
from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments import queue_order, trash
from breakeven.runner.experiments.queue import (
    cancel,
    ensure_supervisor,
    find_experiment,
    resume,
    submit,
)
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import each_event
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, SpeedSpec, TrainingSpec
from breakeven.runner.supervision.supervisor import supervise

COMMAND = ("run",)
LIMIT_SECONDS = 15.0
STOP_SECONDS = 10.0
"""Runs stop within this time after a request, unless something hindered their supervisor."""
BUSY_SECONDS = 25.0
"""Period in which people and faults act."""
LONGEST_SECONDS = 3600.0
MIN_ROUNDS = 6


def _spec(**fields: object) -> ExperimentSpec:
    given = {
        "backends": ("eager",),
        "controls": 0,
        "data": DataSpec(num_train_samples=30),
        "training": TrainingSpec(batch_size=1),
        "time_limit_seconds": LIMIT_SECONDS,
    }
    return ExperimentSpec(name="history", **{**given, **fields})  # type: ignore[arg-type]


SPECS = (
    _spec(
        devices=("cuda:0", "cuda:1"),
        backends=("eager", "inductor"),
        data=DataSpec(num_train_samples=60),
        training=TrainingSpec(batch_size=2),
    ),
    _spec(),
    _spec(devices=("cuda:0",), backends=("eager", "inductor")),
    _spec(devices=("cuda:1",), controls=1),
    _spec(devices=("cuda",), schedule="sequential"),
    _spec(devices=("cuda",), compile="together", backends=("inductor", "aot_eager")),
    _spec(devices=("cuda:1",), scenario="cache", backends=("inductor",)),
    _spec(
        devices=("cuda:0",),
        scenario="speed",
        backends=("eager",),
        block_steps=1,
        speed=SpeedSpec(min_rounds=MIN_ROUNDS, max_rounds=MIN_ROUNDS + 2, warm_up_blocks=1),
    ),
    _spec(
        devices=("cuda:0", "cuda:1"),
        exclusive=True,
        backends=(),
        training=TrainingSpec(batch_size=2),
        data=DataSpec(num_train_samples=40),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a history."""

    seed: str
    violation: str | None
    trace: int
    """Equal for equal histories."""
    calls: int
    seconds: float
    """Virtual seconds."""
    events: Counter[str]
    """Number of each kind of event."""
    story: Sequence[str]


class History:
    """People, supervisors, runs and faults in one data folder."""

    def __init__(self, folder: Path, seed: str) -> None:
        self.seed = seed
        self.kernel = Kernel(seed)
        self.chance = self.kernel.chance
        self.system = System(self.kernel, self._start)
        self.system.before_replace = self._before_replace
        self.data_dir = DataDir(folder)
        self.workers: list[Worker] = []
        self.acknowledged: list[tuple[str, int]] = []
        self.submitted: list[str] = []
        """Experiments whose submission was confirmed."""
        self.cancelled: Counter[str] = Counter()
        """Ids of runs with a request to stop."""
        self.ended: dict[str, float] = {}
        """Time of the latest exit record, by run id."""
        self.last_hindrance = -1.0
        """Time until which something hindered the supervisor."""
        self.supervisors_died = 0
        self.is_calm = False
        """Whether faults are over."""
        self.events: Counter[str] = Counter()
        self.kernel.on_death.append(self._note_death)

    def play(self) -> Result:
        """Plays the whole history and judges it."""
        violation = None
        with simulated(self.system):
            try:
                self._plan()
                self.kernel.run(LONGEST_SECONDS)
                self._put_right()
                self.kernel.run(2 * LONGEST_SECONDS)
                self._judge()
            except Violation as fault:
                violation = str(fault)
            except Exception as error:  # the supervisor or a command failed
                violation = f"{type(error).__name__}: {error}"
            finally:
                self.kernel.close()
        return Result(
            seed=self.seed,
            violation=violation,
            trace=self.kernel.trace,
            calls=self.kernel.calls,
            seconds=self.kernel.now,
            events=self.events,
            story=self.kernel.said,
        )

    # What happens

    def _plan(self) -> None:
        chance = self.chance
        for _ in range(chance.choice((1, 1, 2, 3))):
            self._person(chance.uniform(0, 6), "submit", self._submit)
        acts: list[tuple[str, Callable[[], None]]] = [
            ("stop", self._stop),
            ("stop a run", self._stop_run),
            ("resume", self._resume),
            ("pause", self._pause),
            ("move", self._move),
            ("hold", self._hold),
            ("delete", self._delete),
            ("restore", self._restore),
            ("look", self._ensure),
        ]
        for _ in range(chance.randrange(5)):
            name, act = chance.choice(acts)
            self._person(chance.uniform(0, BUSY_SECONDS), name, act)
        faults = [
            self._kill_supervisor,
            self._kill_run,
            self._stall,
            self._fill_disk,
            self._set_clock,
            self._stop_worker,
            self._kill_again_and_again,
        ]
        for _ in range(chance.choice((0, 1, 1, 2, 3))):
            self.kernel.at(chance.uniform(0, BUSY_SECONDS), chance.choice(faults))

    def _person(self, seconds: float, name: str, act: Callable[[], None]) -> None:
        """A person gives a command, in a separate process, which may be killed like all others."""

        def begin() -> None:
            process = self.kernel.new_process("command")
            if self.chance.random() < 0.1:
                process.killed_at_call = self.chance.randint(1, 40)
            self.kernel.spawn(process, work)

        def work() -> None:
            self.kernel.say(name)
            self.events[name] += 1
            with suppress(RunnerError):  # the command reports what it cannot do
                act()

        self.kernel.at(seconds, begin)

    def _start(self, process: Process, command: Sequence[str], inherited: dict[int, End]) -> None:
        """Starts the code of a new process."""
        if process.kind == "run":
            self.events["run"] += 1
            Worker(self.system, process, inherited, self.workers, self.acknowledged)
            return
        self.events["supervisor"] += 1
        if not self.is_calm and self.chance.random() < 0.3:
            process.killed_at_call = self.chance.choice((40, 400, 4000))
            process.killed_at_call = self.chance.randint(1, process.killed_at_call)
        self.kernel.say(f"supervisor {process.pid} begins")
        self.kernel.spawn(process, lambda: supervise(self.data_dir, COMMAND))

    def _submit(self) -> None:
        experiment_id = submit(self.data_dir, self.chance.choice(SPECS))
        self.submitted.append(experiment_id)
        ensure_supervisor(self.data_dir)

    def _some(self) -> str:
        if not self.submitted:
            raise RunnerError("there is none")
        return self.chance.choice(self.submitted)

    def _stop(self) -> None:
        experiment = find_experiment(self.data_dir, self._some())
        running = [run for run in experiment.runs if not run.is_recorded]
        self.cancelled.update(run.run_id for run in running)
        cancel(experiment)
        self._expect_stop(running)

    def _stop_run(self) -> None:
        run = self.chance.choice(find_experiment(self.data_dir, self._some()).runs)
        if not run.is_recorded:
            self.cancelled[run.run_id] += 1
            run.request_cancel()
            self._expect_stop([run])

    def _expect_stop(self, runs: Sequence[RunDir]) -> None:
        """Checks after `STOP_SECONDS` whether the runs have stopped."""
        requested_at, attempts = self.kernel.now, [run.attempt for run in runs]

        def look() -> None:
            if self.last_hindrance >= requested_at:
                return
            for run, attempt in zip(runs, attempts, strict=True):
                if run.path.exists() and run.attempt == attempt and not run.state.is_final:
                    raise Violation(f"{run.run_id} goes on {STOP_SECONDS:.0f} s after stop")

        self.kernel.at(STOP_SECONDS, look)

    def _resume(self) -> None:
        resume(find_experiment(self.data_dir, self._some()))
        ensure_supervisor(self.data_dir)

    def _pause(self) -> None:
        queue_order.pause(self.data_dir, paused=self.chance.random() < 0.6)

    def _move(self) -> None:
        queue_order.move(self.data_dir, self._some(), by=self.chance.choice((None, -1, 1)))

    def _hold(self) -> None:
        queue_order.hold(self.data_dir, self._some())

    def _delete(self) -> None:
        trash.delete(self.data_dir, self._some())

    def _restore(self) -> None:
        trash.restore(self.data_dir, self._some())

    def _ensure(self) -> None:
        ensure_supervisor(self.data_dir)

    # What goes wrong

    def _living(self, kind: str) -> list[Process]:
        return [
            process
            for process in self.kernel.processes
            if process.kind == kind and process.is_alive
        ]

    def _kill_supervisor(self) -> None:
        for process in self._living("supervisor"):
            self.kernel.say(f"SIGKILL of supervisor {process.pid}")
            self.kernel.die(process, -9)

    def _kill_again_and_again(self) -> None:
        """A machine that crashes soon after each start."""
        self.events["killed again and again"] += 1
        for number in range(6):
            self._person(8.0 * number, "look", self._ensure)
            self.kernel.at(8.0 * number + self.chance.uniform(0.05, 7.0), self._kill_supervisor)

    def _kill_run(self) -> None:
        if living := self._living("run"):
            process = self.chance.choice(living)
            self.kernel.say(f"SIGKILL of run {process.pid}")
            self.events["run killed"] += 1
            assert process.on_signal is not None
            process.on_signal(signal.SIGKILL)

    def _stop_worker(self) -> None:
        """A process other than the supervisor asks a run to stop."""
        if living := self._living("run"):
            process = self.chance.choice(living)
            self.events["run stopped by hand"] += 1
            assert process.on_signal is not None
            process.on_signal(signal.SIGTERM)

    def _stall(self) -> None:
        """The supervisor is suspended, or its machine is too busy to run it."""
        for process in self._living("supervisor"):
            self.events["stall"] += 1
            process.stalled_until = self.kernel.now + self.chance.choice((0.5, 5.0, 40.0))
            self._hinder(process.stalled_until)

    def _fill_disk(self) -> None:
        self.events["full disk"] += 1
        until = self.kernel.now + self.chance.uniform(0.1, 10.0)
        self.system.disk_is_full_until = until
        self.kernel.say(f"the disk is full until {until:.1f}")
        self._hinder(until + 1.0)

    def _set_clock(self) -> None:
        self.events["clock set"] += 1
        self.kernel.clock_offset = self.chance.choice((-86_400.0, 86_400.0, -0.5, 3.0))

    def _hinder(self, until: float) -> None:
        self.last_hindrance = max(self.last_hindrance, until)

    def _note_death(self, process: Process) -> None:
        if process.kind == "supervisor" and process.returncode != 0:
            self.events["supervisor killed"] += 1
            self.supervisors_died += 1
            self._hinder(2 * LONGEST_SECONDS)
        if process.kind == "command" and process.returncode != 0:
            self.events["command killed"] += 1

    def _put_right(self) -> None:
        """Ends all faults; a person releases the queue and ensures that a supervisor runs."""

        def let_go() -> None:
            queue_order.pause(self.data_dir, paused=False)
            for experiment_id in queue_order.read_order(self.data_dir).held:
                queue_order.release(self.data_dir, experiment_id)
            ensure_supervisor(self.data_dir)

        self.kernel.say("faults are over")
        self.is_calm = True
        self.system.disk_is_full_until = 0.0
        for process in self._living("supervisor"):
            raise Violation(f"supervisor {process.pid} is there after an hour of nothing")
        excuses = ("pause", "hold", "full disk", "supervisor killed", "command killed", "restore")
        if not any(self.events[name] for name in excuses):
            for run in self.data_dir.run_dirs():
                if not run.is_recorded and not run.cancel_requested:
                    raise Violation(f"{run.run_id} was queued, and nobody took it up")
        self.kernel.spawn(self.kernel.new_process("command"), let_go)

    # What must hold

    def _before_replace(self, path: Path) -> None:
        """A run's end is recorded once, and only when the run is over."""
        if path.name != "exit.json" or path.parent.parent != self.data_dir.runs:
            return
        self.ended[path.parent.name] = self.kernel.now
        if path.exists():
            raise Violation(f"the end of {path.parent.name} is recorded twice")
        for member in self.system.members(path.parent):
            raise Violation(f"{path.parent.name} is recorded as over while {member.pid} lives")

    def _judge(self) -> None:
        self._judge_rows()
        for process in self._living("run") + self._living("supervisor"):
            raise Violation(f"{process.kind} {process.pid} is left")
        there = {run.run_id: run for run in self.data_dir.run_dirs()}
        for experiment_id in self.submitted:
            members = [run for name, run in there.items() if name.startswith(experiment_id)]
            for run in members:
                self._judge_end(run)
            if members:
                self._judge_company(members)

    def _judge_rows(self) -> None:
        rows: Counter[tuple[str, int]] = Counter()
        for folder in (self.data_dir.runs, self.data_dir.trash):
            for journal in folder.rglob("events.jsonl"):
                (run_id,) = [
                    part for part in journal.parts if part.count(".") == 1 and part.startswith("20")
                ][-1:]
                for line in journal.read_text().splitlines():
                    rows[run_id, json.loads(line)["mark"]] += 1
        had = Counter(self.acknowledged)
        if had - rows:
            raise Violation(f"rows are lost: {had - rows}")
        if rows - had:
            raise Violation(f"rows are doubled: {rows - had}")

    def _judge_end(self, run: RunDir) -> None:
        standing = run.status
        state, reason = standing.state, standing.reason or ""
        if not state.is_final:
            raise Violation(f"{run.run_id} is {state} when all is over")
        if "the supervisor met" in reason:
            raise Violation(f"{run.run_id}: {reason}")
        workers = [worker for worker in self.workers if worker.run.run_id == run.run_id]
        last = workers[-1] if workers else None
        true = {
            RunState.FINISHED: last is not None and last.has_finished,
            RunState.CANCELLED: run.run_id in self.cancelled
            or "hold all runs at once" in reason
            or "no baseline to compare with" in reason
            or self.events["run stopped by hand"] > 0,
            RunState.LOST: self.supervisors_died > 0 or self.events["command killed"] > 0,
            RunState.TIMEOUT: last is not None
            and bool(last.nature.hangs_in or last.nature.closes_pipe),
            RunState.OUT_OF_MEMORY: last is not None and last.process.returncode == 77,
            # An orphan that could not return to the queue on a full disk gets this state.
            RunState.FAILED: last is None or not last.has_finished or "Errno 28" in reason,
        }
        if not true[state]:
            raise Violation(f"{run.run_id} is shown as {state} ({reason}), which it is not")

    def _judge_company(self, runs: Sequence[RunDir]) -> None:
        """Runs that share a round had their turns from the same supervisor."""
        spec = runs[0].read_spec().experiment
        timed_by: dict[tuple[object, int], int] = {}
        for run in runs:
            company = spec.turn_group(run.read_spec().arm)
            for event in each_event(run.events_file):
                if event["kind"] == "block":
                    round_of_company = (company, event["round"])
                    if (
                        timed_by.setdefault(round_of_company, event["supervisor"])
                        != event["supervisor"]
                    ):
                        raise Violation(
                            f"round {round_of_company[1]} of {run.run_id} is of two supervisors"
                        )
        for run in runs:
            if run.read_spec().arm.role == "baseline" and not self.events["resume"]:
                self._judge_without_baseline(run)

    def _judge_without_baseline(self, baseline: RunDir) -> None:
        """After a baseline is lost, or fails before its first step, no run of its company
        starts."""
        spec = baseline.read_spec()
        company = spec.experiment.turn_group(spec.arm)
        is_out = baseline.state in (RunState.FAILED, RunState.TIMEOUT) and not any(
            event["kind"] == "step" for event in each_event(baseline.events_file)
        )
        for other in self.workers if is_out or baseline.state is RunState.LOST else ():
            is_fellow = (
                other.spec.experiment_id == spec.experiment_id
                and other.spec.experiment.turn_group(other.spec.arm) == company
            )
            if is_fellow and other.began > self.ended[baseline.run_id]:
                raise Violation(f"{other.run.run_id} goes on without {baseline.run_id}")


def play(parent: Path, seed: str) -> Result:
    """Plays a history in its own folder, which is removed."""
    folder = parent / seed.replace("/", "-")
    try:
        return History(folder, seed).play()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
