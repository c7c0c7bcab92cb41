"""The supervisor: one per data folder, works off the queue, outlives browser and dashboard."""

import os
import sys
import time
from collections.abc import Sequence

from runner.errors import RunnerError
from runner.folders.process import kill_abandoned
from runner.folders.queue import Experiment, experiments
from runner.folders.run_dir import DataDir, RunDir
from runner.folders.states import RunState
from runner.locks import FileLock
from runner.supervision.exit_records import ExitRecords, say
from runner.supervision.scheduler import Scheduler

WORKER_COMMAND = (sys.executable, "-m", "runner.worker")
LINGER_SECONDS = 10.0
"""How long an idle supervisor waits for more work before it ends."""
POLL_SECONDS = 0.5
MAX_ATTEMPTS = 5
"""Attempts at one run that begin by themselves; a run that ends its machine must not do so for
ever."""
LOCK_PATIENCE_SECONDS = 1.0
"""Others try the lock for a moment to see whether a supervisor is at work."""


def supervise(data_dir: DataDir, command: Sequence[str] = WORKER_COMMAND) -> bool:
    """Works off the queue until it has been empty for a while.

    Returns False, at once, if another supervisor holds the data folder.
    """
    lock = FileLock(data_dir.supervisor_lock)
    if not _acquire(lock):
        return False
    work = _Work(data_dir, command)
    while True:
        with lock:
            close_lost(data_dir, work.exits)
            work.do()
        # Whoever submitted while the lock was held relied on this supervisor.
        if work.next() is None or not _acquire(lock):
            return True


def close_lost(data_dir: DataDir, exits: ExitRecords) -> None:
    """Closes what an earlier supervisor left open.

    The caller holds the lock, so no other supervisor lives: every claim of this machine without an
    exit record is an orphan. One that still runs is killed. Those with a checkpoint wait in the
    queue again, all others are recorded as lost. Run folders that cannot be read are recorded as
    failed.
    """
    for run in data_dir.run_dirs():
        # Whatever one folder holds, the others are looked after.
        try:
            if not run.spec_file.exists() or run.read_exit() is not None:
                continue
            claim = run.read_claim()
            if claim is None:
                run.read_spec()
            elif claim.is_from_this_host:
                kill_abandoned(claim.process, str(run.path))
                _close_orphan(run, exits)
        except (RunnerError, OSError) as error:
            if not os.path.lexists(run.exit_file):
                exits.write(run, RunState.FAILED, str(error), None)


def _close_orphan(run: RunDir, exits: ExitRecords) -> None:
    if run.has_checkpoint and run.attempt < MAX_ATTEMPTS and not run.cancel_requested:
        say(f"{run.run_id}: lost; it will go on from its latest checkpoint")
        run.reopen()
    else:
        exits.write(run, RunState.LOST, "its process and supervisor vanished", None)


def _acquire(lock: FileLock) -> bool:
    deadline = time.monotonic() + LOCK_PATIENCE_SECONDS
    while not lock.try_acquire():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class _Work:
    """Works off the queue, and remembers what cannot be."""

    def __init__(self, data_dir: DataDir, command: Sequence[str]) -> None:
        self.exits = ExitRecords()
        self._data_dir = data_dir
        self._command = command
        self._given_up: set[tuple[str, int]] = set()
        """Run and attempt whose end could not be recorded, so that it seems to wait for ever."""

    def do(self) -> None:
        """Returns once nothing has been queued for a while, and all is recorded."""
        idle_since = time.monotonic()
        while True:
            self.exits.write_owed()
            queued = self.next()
            if queued is not None:
                Scheduler(self._data_dir, queued, self._command, self.exits).run()
                self._given_up.update(_waiting(queued))
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > LINGER_SECONDS and not self.exits.is_owing:
                return
            else:
                time.sleep(POLL_SECONDS)

    def next(self) -> Experiment | None:
        """The oldest experiment of which a run waits to be started."""
        for experiment in experiments(self._data_dir):
            if not _waiting(experiment) <= self._given_up:
                return experiment
        return None


def _waiting(experiment: Experiment) -> set[tuple[str, int]]:
    runs = (run for run in experiment.runs if run.state is RunState.QUEUED)
    return {(run.run_id, run.attempt) for run in runs}
