"""Files that several processes share: atomic replacement and locks."""

import errno
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from breakeven.runner.python310 import Self

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""System errors that mean a full disk."""


def write_atomically(path: Path, text: str) -> None:
    """Replaces `path` by `text` so that a reader sees the old content or the new, never a part."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


UNFINISHED = ".tmp"
"""Suffix of a file that is renamed once it is complete."""


@contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """Yields the path of a new file beside `path`, which replaces `path` once it is on the disk. An
    error removes the new file."""
    new = path.with_name(path.name + UNFINISHED)
    try:
        yield new
        with new.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


class FileLock:
    """An exclusive lock that the operating system releases when its holder dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def try_acquire(self) -> bool:
        """Takes the lock if it is free; returns whether this object holds it now."""
        # Creates a missing data folder, as `DataDir.make` does.
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
        """Waits at most `patience_seconds` for the lock; returns whether this object holds it."""
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

    def __exit__(self, *_: object) -> None:
        self.release()


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock right now; also works on a read-only disk."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:  # Read-only disk. (Some network drives lock only files open for writing.)
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
