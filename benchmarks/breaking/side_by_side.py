"""Parallel trials, each in its own process, session and folder, and on its own cores."""

import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from benchmarks.breaking.trials import Fault
from benchmarks.breaking.world import FAKE, PATIENCE_SECONDS, REAL, Outcome, World

LONGEST_SECONDS = 3 * PATIENCE_SECONDS
"""A longer trial is ended and reported as one that did not end."""
CLEANING_SECONDS = 20.0
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One of the trials of a fault."""

    fault: Fault
    number: int
    seed: int
    device: str

    @property
    def on(self) -> str:
        """Device of its training; empty without one."""
        if not self.fault.is_real:
            return ""
        return self.device if self.fault.on_device else "cpu"


@dataclass(frozen=True, kw_only=True)
class _Begun:
    trial: Trial
    process: BaseProcess
    answer: Connection
    slot: int
    at: float


def outcomes(
    trials: Iterable[Trial], jobs: int, may_begin: Callable[[], bool]
) -> Iterator[tuple[Trial, float, Outcome]]:
    """Each trial with its duration in seconds and its outcome, in the order of their ends; starts
    none once `may_begin` returns False."""
    waiting = iter(trials)
    begun: list[_Begun] = []
    try:
        while True:
            while len(begun) < jobs and may_begin() and (trial := next(waiting, None)):
                slot = min(set(range(jobs)) - {running.slot for running in begun})
                begun.append(_begin(trial, slot, jobs))
            if not begun:
                return
            wait([running.answer for running in begun], timeout=1.0)
            for running in list(begun):
                took = time.monotonic() - running.at
                if (
                    running.answer.poll()
                    or not running.process.is_alive()
                    or took > LONGEST_SECONDS
                ):
                    begun.remove(running)
                    yield running.trial, took, _end(running)
    finally:
        for running in begun:
            running.process.terminate()
        for running in begun:
            _end(running)


def _begin(trial: Trial, slot: int, jobs: int) -> _Begun:
    answer, question = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_try, args=(trial, cores(slot, jobs), question))
    process.start()
    question.close()
    return _Begun(trial=trial, process=process, answer=answer, slot=slot, at=time.monotonic())


def cores(slot: int, jobs: int) -> set[int]:
    """The cores for one of the parallel trials, out of this process's cores."""
    allowed = sorted(os.sched_getaffinity(0))
    size = max(1, len(allowed) // jobs)
    return {allowed[(slot * size + number) % len(allowed)] for number in range(size)}


def _end(running: _Begun) -> Outcome:
    outcome = None
    with suppress(EOFError):
        if running.answer.poll():
            outcome = running.answer.recv()
    if outcome is None:
        outcome = Outcome(problems=["the trial itself died or did not end"])
        with suppress(ProcessLookupError):
            os.kill(running.process.pid or 0, signal.SIGTERM)
    running.process.join(CLEANING_SECONDS)
    running.process.kill()
    running.process.join()
    running.answer.close()
    return outcome


def _try(trial: Trial, trial_cores: set[int], answer: Connection) -> None:
    os.setsid()
    os.sched_setaffinity(0, trial_cores)
    signal.signal(signal.SIGTERM, _leave)
    answer.send(attempt(trial))
    answer.close()


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(f"ended by signal {number}")  # ends all that the trial started


def attempt(trial: Trial) -> Outcome:
    """One trial in its own folder, which is removed."""
    chance = random.Random(f"{trial.seed}/{trial.fault.name}/{trial.number}")
    with tempfile.TemporaryDirectory(
        prefix="breakeven-faults-", ignore_cleanup_errors=True
    ) as folder:
        command = REAL if trial.fault.is_real else FAKE
        world = World(Path(folder, "data"), command, trial.on or "cpu")
        try:
            return trial.fault.act(world, chance)
        except Exception as error:  # a trial that fails is reported, and the next one starts
            traceback.print_exc()
            return Outcome(problems=[f"{type(error).__name__}: {error}"])
        finally:
            with suppress(OSError):
                world.close()
