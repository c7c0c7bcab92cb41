"""A run without torch: a real subprocess that speaks the protocol, so that tests stay quick.

What it does is told by its backend: `crash` dies at its third step, `quit` leaves there as if all
were well, `hang` never ends its first block, `stubborn` hangs and ignores SIGTERM, `greedy` runs
out of memory in its first block unless it is alone, `bottomless` there even alone, `flock` and
`sqlite` hold a lock of that kind until their end, which the data folder has once, `child` starts a
child process that outlives any politeness, `slow` and `slower` take a tenth of a second a step,
`profiled` profiles after its last step until it is stopped, and leaves with status 0,
`late` takes half a second to set up, `noisy` says of every second block that it took twice as long,
`swift` that its blocks took half as long, and the form `fused` of the optimizer that they took four
fifths, `caching` as `swift` and that it compiled in its first block, for 2 s with an empty compile
cache and for 0.5 s with a filled one; of `apart` and `farther` the losses are too high. In their
first attempt `unready` never sets up, and `stuck` never ends its second block. `unloadable` cannot
load its data; with the model `no-such/model` no run can but the baseline, which loads for ever.
Every other one trains quickly to the end, or to a turn that is the last. One that is to be checked
with torch sets up like `late`.
All of them leave a file in their compile cache, and say what they found there.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path

from breakeven.runner.errors import NotLoaded
from breakeven.runner.experiments.continuing import steps_measured
from breakeven.runner.machine.placement import placed
from breakeven.runner.protocol.exit_status import WorkerExit
from breakeven.runner.protocol.fork_requests import FORK_OPTION
from breakeven.runner.protocol.run_dir import RunDir, spec_in_use
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.forking import become_forked_run
from breakeven.runner.worker.turn_source import Turns, open_turns

COMMAND = (sys.executable, "-m", "tests.helpers.fake_worker")
"""The command that a supervisor starts instead of the worker."""
OFF = {"hardly": 3e-5, "apart": 0.2, "farther": 2.0}
"""How far the losses of a backend are above all others from step 20 on. The band is 2e-5 wide on
either side: ten times the floor of float32 for a first loss of 1."""
PACE = 1.0
"""The factor by which a backend's blocks report a longer time than usual."""
HELD: list[object] = []
"""Locks that this process holds until its end."""
SLEEPER = "import time; time.sleep(600)"


def main() -> int:
    run = run_of_process()
    spec = spec_in_use(run)
    label, nature = spec.arm.label, spec.arm.backend
    log = EventLog(run.events_file)
    turns = open_turns(log.flush)
    if nature == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    cached_files = sorted(file.name for file in run.compile_cache.glob("*"))
    try:
        load(nature, run, spec, turns)
    except (NotLoaded, OSError, sqlite3.Error) as error:
        log.append("error", error=type(error).__name__, message=str(error), traceback="")
        log.close()
        return WorkerExit.FAILED
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    log.append(
        "phase",
        phase="waiting",
        found_in_cache=cached_files,
        cpus=cpus,
        devices=list(placed(spec, os.environ).experiment.devices),
    )
    log.flush()
    run.compile_cache.mkdir(exist_ok=True)
    (run.compile_cache / label).touch()
    earlier = start_later(run, log)
    turns.ready()
    capture(spec, log)
    steps = list(range(spec.work.num_steps))
    size = spec.work.block_steps
    for start in starts_of_blocks(len(steps), size):
        turn = turns.wait()
        if turn is None:
            return WorkerExit.CANCELLED
        if runs_out_of_memory(nature, spec, log):
            return WorkerExit.OUT_OF_MEMORY
        place = start % len(steps)
        block = steps[place : place + size]
        began = time.time()
        is_stuck = start > 0 and (nature, run.attempt) in (("stuck", 1), ("stuck_later", 2))
        wait_for_stop(turns, is_stuck)
        compiling = seconds_of_compiling(nature, start, cached_files)
        is_first = start == place and not earlier
        for step in block if is_first else ():  # later trainings are timed alone
            train_one_step(nature, step, turns)
            write_step(log, nature, step, turn, compiling if step == start else 0.0)
        took = pace_of(spec, turn)
        log.append(
            "block",
            round=turn.round,
            position=turn.position,
            first_step=earlier + start,
            num_steps=len(block),
            seconds=0.001 * len(block) * took + compiling,
            compiled=bool(compiling),
            began=began,
        )
        if not earlier:
            write_end(log, turn, block[-1] + 1)
        log.flush()
        is_over = (block[-1] == steps[-1] and not turn.again) or turn.last is not None
        if is_over and nature == "profiled":
            profile_until_stopped(turns, log)
            break
        turns.done(finished=is_over)
        if is_over:
            break
    log.append("phase", phase="done")
    log.close()
    return WorkerExit.FINISHED


def start_later(run: RunDir, log: EventLog) -> int:
    """The steps of the training that is over; 0 in the first process."""
    if not run.is_later_start:
        return 0
    step = steps_measured(run)
    log.append("resumed", step=step, file=None, attempt=run.attempt, caches=run.caches)
    return step


def write_end(log: EventLog, turn: Turn, step: int) -> None:
    if turn.last is not None:
        log.append("stopped", step=step, reason=turn.last.reason, ending=asdict(turn.last))


def write_step(log: EventLog, nature: str | None, step: int, turn: Turn, compiling: float) -> None:
    log.append(
        "step",
        step=step,
        epoch=0,
        round=turn.round,
        loss=1.0 / (step + 1) + OFF.get(nature or "", 0.0) * (step >= 20),
        seconds=0.001 + compiling,
        compiled=compiling > 0,
    )


def seconds_of_compiling(nature: str | None, step: int, cached_files: list[str]) -> float:
    compiles = nature == "caching" and step == 0
    return (0.5 if cached_files else 2.0) if compiles else 0.0


def pace_of(spec: RunSpec, turn: Turn) -> float:
    """The factor by which a block takes longer than usual."""
    took = PACE * (2.0 if spec.arm.backend == "noisy" and turn.round % 2 else 1.0)
    took *= 0.5 if spec.arm.backend in ("swift", "caching") else 1.0
    return took * (0.8 if spec.arm.optimizer == "fused" else 1.0)


def starts_of_blocks(num_steps: int, size: int) -> Iterator[int]:
    """The first step of every block of a training that starts again whenever it ends."""
    for number in count():
        yield from range(number * num_steps, (number + 1) * num_steps, size)


def capture(spec: RunSpec, log: EventLog) -> None:
    """Reports that a backend captured a function."""
    if spec.arm.backend is not None:
        facts = {"step": 0, "phase": "training", "compile_id": "0/0", "graph_ops": 1}
        log.append("compile_metrics", function="forward", **facts)


def load(nature: str | None, run: RunDir, spec: RunSpec, turns: Turns) -> None:
    """Raises `NotLoaded` if model and data cannot be loaded."""
    if spec.experiment.model.source == "no-such/model":
        nature = "unready" if spec.arm.role == "baseline" else "unloadable"
    if nature == "child":
        child = subprocess.Popen([sys.executable, "-c", SLEEPER])
        run.artifacts.mkdir()
        (run.artifacts / "child").write_text(str(child.pid))
    if nature == "late" or run.is_unchecked:
        time.sleep(0.5)
    wait_for_stop(turns, nature == "unready" and run.attempt == 1)
    if nature == "unloadable":
        raise NotLoaded("there is no such model")
    HELD.append(hold(nature, run))


def hold(nature: str | None, run: RunDir) -> object:
    """Holds a lock that only one process can hold; raises `OSError` or `sqlite3.Error` if another
    does."""
    file = run.path.parent.parent / "held"
    if nature == "flock":
        import fcntl

        handle = file.open("w")
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return handle
    if nature != "sqlite":
        return None
    database = sqlite3.connect(file, timeout=0.0)
    database.execute("BEGIN EXCLUSIVE")
    return database


def train_one_step(nature: str | None, step: int, turns: Turns) -> None:
    if nature == "crash" and step == 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    if nature == "quit" and step == 2:
        sys.exit(0)
    wait_for_stop(turns, nature in ("hang", "stubborn"))
    if turns.stop_requested and nature != "stubborn":
        sys.exit(WorkerExit.CANCELLED)
    time.sleep(0.1 if nature in ("slow", "slower") else 0.002)


def wait_for_stop(turns: Turns, waits: bool = True) -> None:
    while waits and not turns.stop_requested:
        time.sleep(0.02)


def profile_until_stopped(turns: Turns, log: EventLog) -> None:
    turns.done(finished=False)
    turns.wait()
    log.append("phase", phase="profiling")
    log.flush()
    wait_for_stop(turns)


def runs_out_of_memory(nature: str | None, spec: RunSpec, log: EventLog) -> bool:
    if nature == "bottomless":
        message = (
            f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {2**50} bytes."
        )
        log.append("error", error="RuntimeError", message=message)
        log.close()
    is_greedy = nature == "greedy" and spec.experiment.schedule == "turns"
    return is_greedy or nature == "bottomless"


def run_of_process() -> RunDir:
    """The run that the command names, or that the supervisor names to a forked process."""
    if sys.argv[1] != FORK_OPTION:
        return RunDir(Path(sys.argv[1]))
    return become_forked_run(import_nothing) or sys.exit(WorkerExit.CANCELLED)


def import_nothing(like: RunDir) -> None:
    """What a run imports, which for a fake one is imported already."""


if __name__ == "__main__":
    sys.exit(main())
