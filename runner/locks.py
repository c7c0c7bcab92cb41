"""Locks that end with their holder: `flock` on a file of its own."""

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self


class FileLock:
    """An exclusive lock that the operating system releases when its holder dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def try_acquire(self) -> bool:
        """Takes the lock if it is free; returns whether it is now held here."""
        # A data folder that there was not yet: `DataDir.make`.
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._file = file
        return True

    def acquire(self, patience_seconds: float) -> bool:
        """Waits for the lock, at most so long; returns whether it is now held here."""
        deadline = time.monotonic() + patience_seconds
        while not self.try_acquire():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock right now; also told of a disk that nothing is written to."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:  # Read-only. Where it is not, some network drives want it open for writing.
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
