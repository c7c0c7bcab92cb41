"""Since when a piece of work goes on, as the times of its process's lock file tell others.

A process whose work never comes to its end looks alive otherwise. The file's modification time is
when the work was last begun, its access time when it last came to an end; nobody reads the file.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from breakeven.runner.locks import is_locked

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
    """How long the work of whoever holds the lock has been going on; 0 while there is none."""
    try:
        found = lock.stat()
        is_busy = found.st_mtime_ns > found.st_atime_ns and is_locked(lock)
    except OSError:
        return 0.0
    return max(0.0, time.time() - found.st_mtime) if is_busy else 0.0
