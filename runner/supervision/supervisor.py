"""The supervisor: one per data folder, works off the queue, outlives browser and dashboard."""

import sys
import time
from collections.abc import Sequence

from runner.folders.queue import Experiment
from runner.folders.queue_order import startable
from runner.folders.run_dir import DataDir
from runner.folders.states import RunState
from runner.locks import FileLock
from runner.supervision.exit_records import ExitRecords
from runner.supervision.orphans import close_orphans
from runner.supervision.scheduler import Scheduler

WORKER_COMMAND = (sys.executable, "-m", "runner.worker")
LINGER_SECONDS = 10.0
"""How long an idle supervisor waits for more work before it ends."""
POLL_SECONDS = 0.5
LOCK_PATIENCE_SECONDS = 1.0
"""Others try the lock for a moment to see whether a supervisor is at work."""


def supervise(data_dir: DataDir, command: Sequence[str] = WORKER_COMMAND) -> bool:
    """Works off the queue until it has been empty for a while.

    Returns False, at once, if another supervisor holds the data folder.
    """
    lock = FileLock(data_dir.supervisor_lock)
    if not lock.acquire(LOCK_PATIENCE_SECONDS):
        return False
    work = _Work(data_dir, command)
    while True:
        with lock:
            close_orphans(data_dir, work.exits)
            work.do()
        # Whoever submitted while the lock was held relied on this supervisor.
        if work.next() is None or not lock.acquire(LOCK_PATIENCE_SECONDS):
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
        """The first experiment of the queue that can be started."""
        for experiment in startable(self._data_dir):
            if not _waiting(experiment) <= self._given_up:
                return experiment
        return None


def _waiting(experiment: Experiment) -> set[tuple[str, int]]:
    runs = (run for run in experiment.runs if run.state is RunState.QUEUED)
    return {(run.run_id, run.attempt) for run in runs}
