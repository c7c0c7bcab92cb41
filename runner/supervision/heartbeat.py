"""Whether the supervisor at work moves on: one that hangs, or was stopped, holds its lock as well.

It touches its lock file about once a second; the file's time tells the others. Threads that look
after an experiment give signs to it, and which of them gave none for long is written to a file.

`busy` reports the same of a piece of work: a process whose work never ends would otherwise look
alive. The modification time of the process's lock file is the last begin of the work, its access
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
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.process import holders, state_of
from breakeven.runner.texts import read_json

BEAT_SECONDS = 1.0
STILL_SECONDS = 30.0
"""Without a sign for so long it does not move on: starting a process or writing a record on a slow
disk takes less."""
THREAD_STUCK_SECONDS = 60.0
"""The same of a thread that looks after an experiment, which ends and starts processes itself."""


class Heartbeat:
    """The supervisor's side."""

    def __init__(self, data_dir: DataDir) -> None:
        self._file = data_dir.supervisor_lock
        self._stuck_file = data_dir.stuck_file
        self._next = 0.0
        self._signs: dict[str, float] = {}
        self._stuck: dict[str, float] = {}
        with suppress(OSError):
            self._stuck_file.unlink()  # another supervisor's

    def beat(self) -> None:
        """Says that the supervisor goes on; at most once a second."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + BEAT_SECONDS
            with suppress(OSError):  # A read-only folder has worse to tell.
                os.utime(self._file)
            self._write_stuck(now)

    def sign(self, experiment_id: str) -> None:
        """Says, from the thread that looks after an experiment, that it goes on."""
        self._signs[experiment_id] = time.monotonic()

    def forget(self, experiment_id: str) -> None:
        """The experiment's thread is done."""
        self._signs.pop(experiment_id, None)

    @property
    def stuck(self) -> tuple[str, ...]:
        """The experiments whose threads gave no sign for long, as of the last beat."""
        return tuple(self._stuck)

    def _write_stuck(self, now: float) -> None:
        silent = {name: now - last for name, last in sorted(self._signs.copy().items())
                  if now - last > THREAD_STUCK_SECONDS}  # fmt: skip
        if silent.keys() == self._stuck.keys():
            return
        self._stuck = {name: time.time() - seconds for name, seconds in silent.items()}
        with suppress(OSError):
            write_atomically(self._stuck_file, json.dumps(self._stuck) + "\n")


@dataclass(frozen=True, kw_only=True)
class HeartbeatReading:
    """What the others see."""

    is_alive: bool
    """Whether somebody holds the supervisor's lock."""
    seconds_since_beat: float | None
    """Since its last sign, or since another one's; None if there never was one."""
    pids: tuple[int, ...] = ()
    """The holder of the lock file, where the system lists it; called only for a silent one."""

    stuck: dict[str, float] = field(default_factory=dict)
    """Experiments whose thread does not move on, and since when, in seconds since the epoch."""

    @property
    def is_still(self) -> bool:
        """Whether it holds the lock and does not move on."""
        silent = self.seconds_since_beat
        return self.is_alive and silent is not None and silent > STILL_SECONDS

    @property
    def is_stopped(self) -> bool:
        """Whether it is still because somebody stopped it (SIGSTOP, Ctrl-Z)."""
        return self.is_still and any(state_of(pid) in ("T", "t") for pid in self.pids)


def read_heartbeat(data_dir: DataDir) -> HeartbeatReading:
    """Whether the supervisor moves on; costs the same however much there is in the data folder."""
    try:
        alive = is_locked(data_dir.supervisor_lock)
        silent = time.time() - data_dir.supervisor_lock.stat().st_mtime
    except OSError:
        return HeartbeatReading(is_alive=False, seconds_since_beat=None)
    heartbeat = HeartbeatReading(is_alive=alive, seconds_since_beat=silent,
                  stuck=_read_stuck(data_dir) if alive else {})  # fmt: skip
    if not heartbeat.is_still and not heartbeat.stuck:
        return heartbeat
    return replace(heartbeat, pids=tuple(holders(data_dir.supervisor_lock)))


def _read_stuck(data_dir: DataDir) -> dict[str, float]:
    try:
        found = read_json(data_dir.stuck_file.read_text())
        return {str(name): float(since) for name, since in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


STUCK_SECONDS = 60.0
"""What takes so long is not slow but stuck: a tick of the index reads some ten megabytes."""


@contextmanager
def busy(lock: Path) -> Iterator[None]:
    """Says that work goes on within; costs two calls to the system."""
    with suppress(OSError):  # A read-only folder has worse to tell.
        ended = lock.stat().st_atime_ns
        os.utime(lock, ns=(min(ended, time.time_ns() - 1), time.time_ns()))
    try:
        yield
    finally:
        with suppress(OSError):
            os.utime(lock)


def seconds_busy(lock: Path) -> float:
    """Seconds for which the holder of the lock has been at its present work; 0 without work."""
    try:
        found = lock.stat()
        is_busy = found.st_mtime_ns > found.st_atime_ns and is_locked(lock)
    except OSError:
        return 0.0
    return max(0.0, time.time() - found.st_mtime) if is_busy else 0.0
