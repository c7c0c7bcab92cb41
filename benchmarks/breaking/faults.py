"""The faults: each breaks a world at a random moment, and waits until what is told is true."""

import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import runner.folders.queue
from benchmarks.breaking.world import REAL, Impatience, Outcome, World, kinds, leader
from runner.folders.run_dir import RunDir
from runner.folders.states import RunState
from runner.specs.experiment import CheckpointSpec, DataSpec, ExperimentSpec, TrainingSpec
from runner.specs.training import EvaluationSpec
from storage.index.store import Store

DEAF = """
import signal, sys
if "runner.worker" in sys.orig_argv or "tests.helpers.fake_worker" in sys.orig_argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    usual = signal.signal
    signal.signal = lambda number, action: usual(
        number, signal.SIG_IGN if number == signal.SIGTERM else action)
"""
"""As `sitecustomize`: a run that hears no SIGTERM, from its first moment on."""
CLOCK = """
import os, pathlib, time
usual = time.time
offset = pathlib.Path(__file__).with_name("offset")
def shifted():
    try:
        return usual() + float(offset.read_text())
    except (OSError, ValueError):
        return usual()
time.time = shifted
"""
"""As `sitecustomize`: a clock that a file sets forth and back."""
PHASES: dict[str, Callable[[list[str]], bool]] = {
    "start": lambda seen: True,
    "load": lambda seen: not {"environment", "preparing", "waiting"}.isdisjoint(seen),
    "compile": lambda seen: "compile_started" in seen,
    "steps": lambda seen: seen.count("step") >= 4,
    "evaluation": lambda seen: "evaluating" in seen,
    "checkpoint": lambda seen: "checkpoint" in seen,
    "end": lambda seen: "done" in seen or seen.count("step") >= 60,
}
"""When a real run has come to a phase, by the events in its journal."""
Break = Callable[[World, random.Random], Outcome]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that goes wrong."""

    name: str
    act: Break
    is_real: bool = False
    """Whether real training stands behind it, so that a trial takes many seconds."""


def toy(*backends: str, steps: int = 300) -> ExperimentSpec:
    """For runs that train nothing: two milliseconds a step."""
    return ExperimentSpec(name="trial", backends=backends, controls=0,
                          data=DataSpec(num_train_samples=steps),
                          training=TrainingSpec(batch_size=1))  # fmt: skip


def small(compiled: bool = False, **changes: object) -> ExperimentSpec:
    """For runs that train: 60 steps, with evaluations and checkpoints."""
    spec = ExperimentSpec(
        name="trial", backends=("inductor",) if compiled else (), controls=0,
        data=DataSpec(num_train_samples=240, num_eval_samples=40, sequence_length=16),
        training=TrainingSpec(batch_size=4, seed=1), block_steps=4, profile_steps=0,
        evaluation=EvaluationSpec(when="steps", every=10),
        checkpoints=CheckpointSpec(every=10, unit="steps"),
    )  # fmt: skip
    return replace(spec, **changes)  # type: ignore[arg-type]


def hit_run(how: str, world: World, chance: random.Random, phase: str = "steps") -> Outcome:
    """A run is killed; or stopped, or deaf to SIGTERM, and then asked to stop."""
    real = world.command == REAL
    (world.data_dir.path / "site").mkdir()
    if how == "deaf":
        (world.data_dir.path / "site" / "sitecustomize.py").write_text(DEAF)
    if not real and how == "deaf":
        phase = "load"
    toys = toy("stubborn" if how == "deaf" else "one")
    runs = world.submit(small(compiled=phase == "compile") if real else toys)
    world.supervise({"PYTHONPATH": str(world.data_dir.path / "site")})
    victim = runs[-1]
    world.wait(lambda: leader(victim) is not None and PHASES[phase](kinds(victim)), phase)
    time.sleep(chance.uniform(0, 0.3))
    before, pid = world.acknowledged(), leader(victim)
    if pid is not None and how != "deaf":
        os.kill(pid, signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        before = world.acknowledged()
    begun = time.monotonic()
    if how != "kill":
        victim.request_cancel()
    world.wait(lambda: victim.is_recorded, "the exit record")
    outcome = Outcome(seconds=time.monotonic() - begun)
    world.wait(lambda: all(run.is_recorded for run in runs), "the other runs")
    allowed = {RunState.FINISHED, RunState.FAILED if how == "kill" else RunState.CANCELLED}
    for run in runs:
        if run.state not in (allowed if run == victim else {RunState.FINISHED}):
            outcome.problems.append(f"{run.run_id} is {run.state}")
    return world.judge(before, outcome)


def kill_supervisor(world: World, chance: random.Random, phase: str = "steps") -> Outcome:
    """The supervisor is killed; its runs must end, and the next one tells what became of them."""
    real = world.command == REAL
    runs = world.submit(small(compiled=phase == "compile") if real else toy("one"))
    supervisor = world.supervise()
    victim = runs[-1]
    world.wait(lambda: leader(victim) is not None and PHASES[phase](kinds(victim)), phase)
    time.sleep(chance.uniform(0, 0.3))
    world.kill(supervisor)
    before, begun = world.acknowledged(), time.monotonic()
    world.wait(lambda: world.alive() == 0, "the end of its runs")
    if any(run.state is RunState.RUNNING for run in runs):
        world.wait(lambda: not any(run.state is RunState.RUNNING for run in runs), "the truth")
    outcome = Outcome(seconds=time.monotonic() - begun)
    world.supervise()
    world.wait(lambda: all(run.is_recorded for run in runs), "records of the next supervisor")
    return world.judge(before, outcome)


def stop_supervisor(world: World, chance: random.Random) -> Outcome:
    """The supervisor, or the whole machine, is suspended for a while and goes on."""
    runs = world.submit(toy("one"))
    supervisor = world.supervise()
    world.wait(lambda: "step" in kinds(runs[-1]), "steps")
    time.sleep(chance.uniform(0, 0.3))
    everything = [supervisor.pid, *filter(None, map(leader, runs))]
    stopped = everything if chance.random() < 0.5 else everything[:1]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    before = world.acknowledged()
    time.sleep(chance.uniform(0.2, 1.0))
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    begun = time.monotonic()
    world.wait(lambda: all(run.is_recorded for run in runs), "the end")
    outcome = Outcome(seconds=time.monotonic() - begun)
    if {run.state for run in runs} != {RunState.FINISHED}:
        outcome.problems.append("not all runs finished")
    return world.judge(before, outcome)


def kill_everything(world: World, chance: random.Random) -> Outcome:
    """Supervisor, runs and whoever reads them are killed at once, as by a power cut."""
    runs = world.submit(toy("one"))
    supervisor = world.supervise()
    world.wait(lambda: "step" in kinds(runs[-1]), "steps")
    reader = subprocess.Popen(["python3", "-c", "import time; time.sleep(60)"])
    with Store.open(world.data_dir) as store:
        store.ingest()
    time.sleep(chance.uniform(0, 0.3))
    before = world.acknowledged()
    for pid in [supervisor.pid, reader.pid, *filter(None, map(leader, runs))]:
        os.kill(pid, signal.SIGKILL)
    begun = time.monotonic()
    supervisor.wait()
    reader.wait()
    world.wait(lambda: world.alive() == 0, "the end of the runs")
    world.wait(lambda: not any(run.state is RunState.RUNNING for run in runs), "the truth")
    outcome = Outcome(seconds=time.monotonic() - begun)
    world.supervise()
    world.wait(lambda: all(run.is_recorded for run in runs), "records of the next supervisor")
    return world.judge(before, outcome)


def two_supervisors(world: World, chance: random.Random) -> Outcome:
    """Two supervisors start at the same moment: one works, one leaves."""
    runs = world.submit(toy("one", steps=60))
    begun = time.monotonic()
    first, second = world.supervise(), world.supervise()
    world.wait(lambda: all(run.is_recorded for run in runs), "the end")
    outcome = Outcome(seconds=time.monotonic() - begun)
    for process in (first, second):
        process.wait(30)
    if {run.state for run in runs} != {RunState.FINISHED} or any(run.attempt > 1 for run in runs):
        outcome.problems.append("not all runs finished at their first attempt")
    return world.judge(world.acknowledged(), outcome)


def wide_folder_name(world: World, chance: random.Random) -> Outcome:
    """The data folder's name has spaces, quotes, a newline and more."""
    name = "".join(chance.sample(["a b", "'", '"', "\n", "$(x)", "ü", "%s", "\\", "*", ";"], 6))
    world.data_dir = World(world.data_dir.path / name, world.command).data_dir
    return two_supervisors(world, chance)


def fill_disk(world: World, chance: random.Random) -> Outcome:
    """The disk is full for a while: how runs ended is told once there is room."""
    with_room = runner.folders.queue.MIN_FREE_BYTES
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(world.data_dir.path)]
    subprocess.run(command, check=True, capture_output=True)
    try:
        runner.folders.queue.MIN_FREE_BYTES = 1_000_000
        runs = world.submit(toy("one", steps=400))
        world.supervise()
        world.wait(lambda: "step" in kinds(runs[-1]), "steps")
        time.sleep(chance.uniform(0, 0.5))
        filler = world.data_dir.path / "filler"
        with filler.open("ab", buffering=0) as file:
            for size in (2**20, 2**12, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue
        before = world.acknowledged()
        time.sleep(chance.uniform(0.2, 1.5))
        filler.unlink()
        begun = time.monotonic()
        world.wait(lambda: all(run.is_recorded for run in runs), "records once there is room")
        outcome = Outcome(seconds=time.monotonic() - begun)
        return world.judge(before, outcome)
    finally:
        runner.folders.queue.MIN_FREE_BYTES = with_room
        world.close()
        subprocess.run(["umount", "--lazy", str(world.data_dir.path)], check=True)


def few_files(world: World, chance: random.Random) -> Outcome:
    """The supervisor may open so few files that it cannot start all runs: it says so of each."""
    most = chance.randint(12, 26)
    runs = world.submit(toy("one", "two", "three"))
    begun = time.monotonic()
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (most, most))
    process = world.supervise(before=limit)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        raise Impatience(f"a supervisor with {most} files does not end") from None
    world.supervise()  # one that may open more finishes what the other could not
    world.wait(lambda: all(run.is_recorded for run in runs), "records")
    return world.judge(world.acknowledged(), Outcome(seconds=time.monotonic() - begun))


def set_clock(world: World, chance: random.Random) -> Outcome:
    """The clock is set back, or forth, by a day while runs go on."""
    site = world.data_dir.path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(CLOCK)
    runs = world.submit(toy("one"))
    world.supervise({"PYTHONPATH": str(site)})
    world.wait(lambda: "step" in kinds(runs[-1]), "steps")
    time.sleep(chance.uniform(0, 0.3))
    (site / "offset").write_text(str(chance.choice((-86_400, 86_400))))
    before, begun = world.acknowledged(), time.monotonic()
    world.wait(lambda: all(run.is_recorded for run in runs), "the end")
    outcome = Outcome(seconds=time.monotonic() - begun)
    if {run.state for run in runs} != {RunState.FINISHED}:
        outcome.problems.append("not all runs finished")
    return world.judge(before, outcome)


def own_code(body: str, expected: RunState, world: World, chance: random.Random) -> Outcome:
    """A callback of one's own misbehaves in the middle of a training."""
    file = world.data_dir.path / "own.py"
    lines = "\n        ".join(body.splitlines())
    file.write_text(
        "import os, subprocess, sys, time\nclass Own:\n    steps = 0\n"
        f"    def batch_end(self, state):\n        self.steps += 1\n"
        f"        if self.steps != {chance.randint(2, 20)}:\n            return\n        {lines}\n"
    )
    os.environ["BREAKEVEN_CODE"] = str(file.parent)
    runs = world.submit(small(callbacks=(f"{file}:Own",)))
    begun = time.monotonic()
    world.supervise()
    world.wait(lambda: all(run.is_recorded for run in runs), "the end")
    outcome = Outcome(seconds=0.0 if expected is RunState.FINISHED else time.monotonic() - begun)
    outcome.problems += [f"{run.state} instead of {expected}" for run in runs
                         if run.state is not expected]  # fmt: skip
    if any(_size(run) > 70_000_000 for run in runs):
        outcome.problems.append("output.log is larger than it may be")
    return world.judge(world.acknowledged(), outcome)


def _size(run: RunDir) -> int:
    return Path(run.output_file).stat().st_size if run.output_file.exists() else 0


LEAVES_CHILD = "subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=-3, stderr=-3)"
FAULTS = [
    Fault(name="SIGKILL of a run", act=partial(hit_run, "kill")),
    Fault(name="SIGSTOP of a run, then stop", act=partial(hit_run, "stop")),
    Fault(name="a run deaf to SIGTERM, then stop", act=partial(hit_run, "deaf")),
    Fault(name="SIGKILL of the supervisor", act=kill_supervisor),
    Fault(name="supervisor or all suspended, then resumed", act=stop_supervisor),
    Fault(name="SIGKILL of everything at once", act=kill_everything),
    Fault(name="two supervisors at once", act=two_supervisors),
    Fault(name="data folder with quotes, spaces, newlines", act=wide_folder_name),
    Fault(name="disk full for a while", act=fill_disk),
    Fault(name="too many open files", act=few_files),
    Fault(name="clock set by a day", act=set_clock),
    *(
        Fault(name=f"{words} in phase {phase}", is_real=True, act=partial(act, phase=phase))
        for words, act in (
            ("SIGKILL of a run", partial(hit_run, "kill")),
            ("SIGSTOP of a run, then stop,", partial(hit_run, "stop")),
            ("a run deaf to SIGTERM, then stop,", partial(hit_run, "deaf")),
            ("SIGKILL of the supervisor", kill_supervisor),
        )
        for phase in PHASES
    ),
    *(
        Fault(name=f"own code that {words}", is_real=True, act=partial(own_code, body, state))
        for words, body, state in (
            ("raises", "raise ValueError('no')", RunState.FAILED),
            ("calls sys.exit(0)", "sys.exit(0)", RunState.FAILED),
            ("calls os._exit(0)", "os._exit(0)", RunState.FAILED),
            ("leaves a process in a session of its own", LEAVES_CHILD, RunState.FINISHED),
            ("forks a child that stays", "if os.fork() == 0: time.sleep(600)",
             RunState.FINISHED),
            ("prints a gigabyte", "for _ in range(1000): sys.stdout.write('x' * 1_000_000)",
             RunState.FINISHED),
            ("leaks open files until there are none left",
             "self.kept = [open(__file__) for _ in range(10**6)]", RunState.FAILED),
        )
    ),
]  # fmt: skip
