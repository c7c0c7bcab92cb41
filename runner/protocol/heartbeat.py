"""Heartbeat of the supervisor: a supervisor that hangs or was stopped still holds its lock.

The supervisor touches its lock file about once a second; other processes read the file's time. Each
experiment's thread signals it, and threads that are silent for long are listed in a file.

`busy` does the same for a piece of work: a process whose work never ends would otherwise look
alive. The modification time of the process's lock file is the last start of the work, its access
time the last end; no process reads the file's content.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from breakeven.runner.files import is_locked, write_atomically
from breakeven.runner.processes import holders, process_state
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.texts import read_json

BEAT_SECONDS = 1.0
STILL_SECONDS = 30.0
"""A supervisor without a heartbeat for this time hangs: the start of a process, or the write of a
record to a slow disk, takes less."""
THREAD_STUCK_SECONDS = 60.0
"""The same limit for the thread of an experiment, which starts and ends processes itself."""


class Heartbeat:
    """The supervisor's side of the heartbeat."""

    def __init__(self, data_dir: DataDir) -> None:
        self._file = data_dir.supervisor_lock
        self._stuck_file = data_dir.stuck_file
        self._next = 0.0
        self._signs: dict[str, float] = {}
        self._stuck: dict[str, float] = {}
        with suppress(OSError):
            self._stuck_file.unlink()  # of an earlier supervisor

    def beat(self) -> None:
        """Shows that the supervisor works; at most once a second."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + BEAT_SECONDS
            with suppress(OSError):  # A read-only folder causes other errors.
                os.utime(self._file)
            self._write_stuck(now)

    def sign(self, experiment_id: str) -> None:
        """Shows that the thread of an experiment works; called by this thread."""
        self._signs[experiment_id] = time.monotonic()

    def forget(self, experiment_id: str) -> None:
        """Removes an experiment whose thread has ended."""
        self._signs.pop(experiment_id, None)

    def _write_stuck(self, now: float) -> None:
        silent = {
            name: now - last
            for name, last in sorted(self._signs.copy().items())
            if now - last > THREAD_STUCK_SECONDS
        }
        if silent.keys() == self._stuck.keys():
            return
        self._stuck = {name: time.time() - seconds for name, seconds in silent.items()}
        with suppress(OSError):
            write_atomically(self._stuck_file, json.dumps(self._stuck) + "\n")


@dataclass(frozen=True, kw_only=True)
class HeartbeatReading:
    """The heartbeat as other processes read it."""

    is_alive: bool
    """Whether a process holds the supervisor's lock."""
    seconds_since_beat: float | None
    """Seconds since the last heartbeat of any supervisor; None if there never was one."""
    pids: tuple[int, ...] = ()
    """Holders of the lock file, where the system lists them; read only for a silent supervisor."""
    stuck: dict[str, float] = field(default_factory=dict)
    """Experiments whose thread is silent, and since when, in seconds since the epoch."""

    @property
    def is_hung(self) -> bool:
        """Whether the supervisor holds the lock but hangs."""
        silent = self.seconds_since_beat
        return self.is_alive and silent is not None and silent > STILL_SECONDS

    @property
    def is_stopped(self) -> bool:
        """Whether the supervisor hangs because a signal stopped it (SIGSTOP, Ctrl-Z)."""
        return self.is_hung and any(process_state(pid) in ("T", "t") for pid in self.pids)


def read_heartbeat(data_dir: DataDir) -> HeartbeatReading:
    """Reads the heartbeat; its cost does not depend on the size of the data folder."""
    try:
        alive = is_locked(data_dir.supervisor_lock)
        silent = time.time() - data_dir.supervisor_lock.stat().st_mtime
    except OSError:
        return HeartbeatReading(is_alive=False, seconds_since_beat=None)
    heartbeat = HeartbeatReading(
        is_alive=alive, seconds_since_beat=silent, stuck=_read_stuck(data_dir) if alive else {}
    )
    if not heartbeat.is_hung and not heartbeat.stuck:
        return heartbeat
    return replace(heartbeat, pids=tuple(holders(data_dir.supervisor_lock)))


def _read_stuck(data_dir: DataDir) -> dict[str, float]:
    try:
        stuck = read_json(data_dir.stuck_file.read_text())
        return {str(name): float(since) for name, since in stuck.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


STUCK_SECONDS = 60.0
"""Work of this duration hangs: an update of the index reads only about 10 MB at a time."""


@contextmanager
def busy(lock: Path) -> Iterator[None]:
    """Marks the work of the `with` block as running; costs two system calls."""
    with suppress(OSError):  # A read-only folder causes other errors.
        ended = lock.stat().st_atime_ns
        os.utime(lock, ns=(min(ended, time.time_ns() - 1), time.time_ns()))
    try:
        yield
    finally:
        with suppress(OSError):
            os.utime(lock)


def seconds_busy(lock: Path) -> float:
    """Seconds since the lock's holder began its current work; 0 without work."""
    try:
        status = lock.stat()
        is_busy = status.st_mtime_ns > status.st_atime_ns and is_locked(lock)
    except OSError:
        return 0.0
    return max(0.0, time.time() - status.st_mtime) if is_busy else 0.0
