"""A process that dies between any two writes: an exception at the n-th call that changes a file."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

CHANGING = (
    "mkdir",
    "rmdir",
    "unlink",
    "rename",
    "replace",
    "utime",
    "chmod",
    "fsync",
    "fdatasync",
    "link",
    "symlink",
    "truncate",
    "ftruncate",
)
"""Functions of `os` that change files; opening one to write is counted beside them."""


class Died(BaseException):
    """Like SIGKILL: nothing that follows is executed."""


@contextmanager
def dying(after: int | None) -> Iterator[None]:
    """The code inside dies before call `after` + 1 that changes a file, and changes none from then
    on, even in clean-up code; with None it lives. Does not hide `Died`."""
    done = 0

    def count() -> None:
        nonlocal done
        if after is not None and done >= after:
            raise Died
        done += 1

    def change(real: Callable[..., Any], *args: Any, **options: Any) -> Any:
        count()
        return real(*args, **options)

    def opened(real: Callable[..., int], path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            count()
        return real(path, flags, *args, **options)

    replaced = {name: partial(change, getattr(os, name)) for name in CHANGING}
    with mock.patch.multiple(os, **replaced, open=partial(opened, os.open)):
        yield
