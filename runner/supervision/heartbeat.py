"""Whether the supervisor at work moves on: one that hangs, or was stopped, holds its lock as well.

It touches its lock file about once a second; the file's time tells the others.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass

from runner.folders.process_table import holders, state_of
from runner.folders.run_dir import DataDir
from runner.locks import is_locked

BEAT_SECONDS = 1.0
STILL_SECONDS = 30.0
"""Without a sign for so long it does not move on: starting a process or writing a record on a slow
disk takes less."""


class Heartbeat:
    """The supervisor's side."""

    def __init__(self, data_dir: DataDir) -> None:
        self._file = data_dir.supervisor_lock
        self._next = 0.0

    def beat(self) -> None:
        """Says that the supervisor goes on; at most once a second."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + BEAT_SECONDS
            with suppress(OSError):  # A read-only folder has worse to tell.
                os.utime(self._file)


@dataclass(frozen=True, kw_only=True)
class Pulse:
    """What the others see."""

    is_alive: bool
    """Whether somebody holds the supervisor's lock."""
    seconds_since_beat: float | None
    """Since its last sign, or since another one's; None if there never was one."""
    pids: tuple[int, ...] = ()
    """Who holds the lock file open, where the system tells; asked only of one that is still."""

    @property
    def is_still(self) -> bool:
        """Whether it holds the lock and does not move on."""
        silent = self.seconds_since_beat
        return self.is_alive and silent is not None and silent > STILL_SECONDS

    @property
    def is_stopped(self) -> bool:
        """Whether it is still because somebody stopped it (SIGSTOP, Ctrl-Z)."""
        return self.is_still and any(state_of(pid) in ("T", "t") for pid in self.pids)


def feel(data_dir: DataDir) -> Pulse:
    """The supervisor's pulse; costs the same however much there is in the data folder."""
    try:
        alive = is_locked(data_dir.supervisor_lock)
        silent = time.time() - data_dir.supervisor_lock.stat().st_mtime
    except OSError:
        return Pulse(is_alive=False, seconds_since_beat=None)
    pulse = Pulse(is_alive=alive, seconds_since_beat=silent)
    if not pulse.is_still:
        return pulse
    pids = tuple(holders(data_dir.supervisor_lock))
    return Pulse(is_alive=alive, seconds_since_beat=silent, pids=pids)
