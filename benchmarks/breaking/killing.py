"""Faults of processes: runs and supervisors are killed, suspended, deaf or duplicated."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.breaking.trials import stepping, submit, toy, wait_for
from benchmarks.breaking.world import REAL, Acknowledged, Outcome, World, leader
from breakeven.runner.processes import command_line, members
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState

RANK_MODULE = "breakeven.runner.worker.ranks.rank"
READ = """
import sys, time
from breakeven.runner.protocol.data_dir import DataDir
try:
    from breakeven.storage.index.store import Store
except ImportError:
    time.sleep(60)
with Store.open(DataDir(sys.argv[1])) as store:
    while True:
        store.ingest()
        time.sleep(0.01)
"""
"""Ingests the journals as the dashboard does, as fast as possible."""

DEAF = """
import signal, sys
if "breakeven.runner.worker" in sys.orig_argv or "tests.helpers.fake_worker" in sys.orig_argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    usual = signal.signal
    signal.signal = lambda number, action: usual(
        number, signal.SIG_IGN if number == signal.SIGTERM else action)
"""
"""As `sitecustomize`: a run that ignores SIGTERM from its start."""


def searched_first(site: Path) -> dict[str, str]:
    """Environment in which Python finds this folder's `sitecustomize`, otherwise unchanged."""
    return {"PYTHONPATH": os.pathsep.join([str(site), *filter(None, [os.getenv("PYTHONPATH")])])}


def hit_run(how: str, world: World, chance: random.Random, phase: str = "steps") -> Outcome:
    """A run is killed; or it is suspended or deaf to SIGTERM, and then asked to stop."""
    real = world.command == REAL
    (world.data_dir.path / "site").mkdir()
    if how == "deaf":
        (world.data_dir.path / "site" / "sitecustomize.py").write_text(DEAF)
    if not real and how == "deaf":
        phase = "load"
    toys = toy("stubborn" if how == "deaf" else "one")
    runs = submit(world, phase) if real else world.submit(toys)
    world.supervise(searched_first(world.data_dir.path / "site"))
    victim = runs[-1]
    wait_for(world, victim, phase)
    time.sleep(chance.uniform(0, 0.3))
    before, pid = world.acknowledged(), leader(victim)
    was_late = pid is None or victim.is_recorded
    if pid is not None and how != "deaf":
        os.kill(pid, signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        before = world.acknowledged()
    if how != "kill":
        victim.request_cancel()
    outcome = world.recorded([victim])
    outcome.was_late = was_late
    world.recorded(runs)
    outcome.expect(runs[:-1], RunState.FINISHED)
    broken = RunState.FAILED if how == "kill" else RunState.CANCELLED
    outcome.expect([victim], RunState.FINISHED, broken)
    return world.judge(before, outcome)


def kill_supervisor(world: World, chance: random.Random, phase: str = "steps") -> Outcome:
    """The supervisor is killed; its runs must end, and the next supervisor records their ends."""
    real = world.command == REAL
    runs = submit(world, phase) if real else world.submit(toy("one"))
    supervisor = world.supervise()
    wait_for(world, runs[-1], phase)
    time.sleep(chance.uniform(0, 0.3))
    was_late = all(run.is_recorded for run in runs)
    world.kill(supervisor)
    before, begun = world.acknowledged(), time.monotonic()
    outcome = told_and_recorded(world, runs, before, begun)
    outcome.was_late = was_late
    return outcome


def told_and_recorded(
    world: World, runs: list[RunDir], before: Acknowledged, begun: float
) -> Outcome:
    """Without a supervisor no run is alive and the reported states are true; the next supervisor
    resumes or restarts the runs, unless one of them had finished."""
    world.wait(lambda: world.alive() == 0, "the end of the runs")
    world.wait(lambda: not any(run.state is RunState.RUNNING for run in runs), "the truth")
    outcome = Outcome(seconds=time.monotonic() - begun)
    allowed = {RunState.FINISHED}
    if any(run.state is RunState.FINISHED for run in runs):
        allowed.add(RunState.LOST)
    world.supervise()
    world.recorded(runs)
    outcome.expect(runs, *allowed)
    return world.judge(before, outcome)


def hit_rank(how: str, world: World, chance: random.Random, phase: str = "steps") -> Outcome:
    """One of two ranks is killed; or it is suspended, and then the run is asked to stop."""
    runs = submit(world, phase, devices=("cpu", "cpu"), parallel="ddp")
    world.supervise()
    victim = runs[-1]
    wait_for(world, victim, phase)
    time.sleep(chance.uniform(0, 0.3))
    ranks = [
        process.pid for process in members(victim.path) if RANK_MODULE in command_line(process.pid)
    ]
    was_late = not ranks
    if ranks:
        with suppress(ProcessLookupError):
            os.kill(chance.choice(ranks), signal.SIGKILL if how == "kill" else signal.SIGSTOP)
    before = world.acknowledged()
    if how != "kill":
        victim.request_cancel()
    outcome = world.recorded([victim])
    outcome.was_late = was_late
    allowed = {RunState.FAILED if how == "kill" else RunState.CANCELLED}
    if was_late or phase == "end":
        allowed.add(RunState.FINISHED)
    outcome.expect([victim], *allowed)
    world.recorded(runs)
    return world.judge(before, outcome)


def stop_supervisor(world: World, chance: random.Random) -> Outcome:
    """The supervisor, or the whole machine, is suspended for a while and continues."""
    runs, supervisor = stepping(world)
    time.sleep(chance.uniform(0, 0.3))
    everything = [supervisor.pid, *filter(None, map(leader, runs))]
    stopped = everything if chance.random() < 0.5 else everything[:1]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    before = world.acknowledged()
    time.sleep(chance.uniform(0.2, 1.0))
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    outcome = world.recorded(runs)
    outcome.expect(runs, RunState.FINISHED)
    return world.judge(before, outcome)


def kill_everything(world: World, chance: random.Random) -> Outcome:
    """Supervisor, runs and readers are killed at once, as by a power cut."""
    runs, supervisor = stepping(world)
    reader = subprocess.Popen([sys.executable, "-c", READ, str(world.data_dir.path)])
    time.sleep(chance.uniform(0, 2.0))
    before = world.acknowledged()
    for pid in [supervisor.pid, reader.pid, *filter(None, map(leader, runs))]:
        os.kill(pid, signal.SIGKILL)
    begun = time.monotonic()
    supervisor.wait()
    reader.wait()
    return told_and_recorded(world, runs, before, begun)


def two_supervisors(world: World, chance: random.Random) -> Outcome:
    """Two supervisors start at the same moment: one works, the other exits."""
    runs = world.submit(toy("one", steps=60))
    first, second = world.supervise(), world.supervise()
    outcome = world.recorded(runs)
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
