"""The supervisor: one per data folder, works off the queue, outlives browser and dashboard."""

import sys
import time
from collections.abc import Sequence

from runner.errors import RunnerError
from runner.locks import FileLock
from runner.process import kill_abandoned
from runner.queue import experiments
from runner.race import Race, record_exit
from runner.run_dir import DataDir, RunDir, RunState

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
    while True:
        with lock:
            close_lost(data_dir)
            _work(data_dir, command)
        # Whoever submitted while the lock was held relied on this supervisor.
        if not _has_work(data_dir) or not _acquire(lock):
            return True


def close_lost(data_dir: DataDir) -> None:
    """Closes what an earlier supervisor left open.

    The caller holds the lock, so no other supervisor lives: every claim of this machine without an
    exit record is an orphan. One that still runs is killed. Those with a checkpoint wait in the
    queue again, all others are recorded as lost. Run folders whose spec cannot be read are recorded
    as failed.
    """
    for run in data_dir.run_dirs():
        try:
            if run.exit_file.exists():
                continue
            claim = run.read_claim()
            if claim is None:
                run.read_spec()
            elif claim.is_from_this_host:
                kill_abandoned(claim.process)
                _close_orphan(run)
        except RunnerError as error:
            record_exit(run, RunState.FAILED, str(error), None)


def _close_orphan(run: RunDir) -> None:
    if run.has_checkpoint and run.attempt < MAX_ATTEMPTS and not run.cancel_requested:
        print(f"{run.run_id}: lost; it will go on from its latest checkpoint", flush=True)  # noqa: T201
        run.reopen()
    else:
        record_exit(run, RunState.LOST, "its process and supervisor vanished", None)


def _acquire(lock: FileLock) -> bool:
    deadline = time.monotonic() + LOCK_PATIENCE_SECONDS
    while not lock.try_acquire():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _has_work(data_dir: DataDir) -> bool:
    return any(experiment.is_queued for experiment in experiments(data_dir))


def _work(data_dir: DataDir, command: Sequence[str]) -> None:
    idle_since = time.monotonic()
    while True:
        queued = next((one for one in experiments(data_dir) if one.is_queued), None)
        if queued is not None:
            Race(data_dir, queued, command).run()
            idle_since = time.monotonic()
        elif time.monotonic() - idle_since > LINGER_SECONDS:
            return
        else:
            time.sleep(POLL_SECONDS)
