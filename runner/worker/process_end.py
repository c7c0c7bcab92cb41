"""The end of a run's process: what an error means, its exit status, and leaving in time."""

import gc
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from breakeven.runner.errors import RunnerError
from breakeven.runner.files import NO_ROOM
from breakeven.runner.protocol.exit_status import WorkerExit

OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
"""Words in the messages of errors that mean a lack of memory."""
OF_OTHER_THINGS = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    ImportError,
    NotImplementedError,
)
"""Errors that never mean a lack of memory, whatever their words are."""
LEAVING_SECONDS = 20.0
"""Time limit of a process to end once everything is written."""


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and all errors that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that led to it, is a lack of memory on the device or the host."""
    return any(
        isinstance(cause, MemoryError)
        or (not isinstance(cause, OF_OTHER_THINGS) and any(a in str(cause) for a in OUT_OF_MEMORY))
        for cause in _with_causes(error)
    )


def is_disk_full(error: BaseException) -> bool:
    """Whether an error, or one that led to it, is a full disk."""
    return any(
        isinstance(cause, OSError) and cause.errno in NO_ROOM for cause in _with_causes(error)
    )


def describe_failure(error: Exception) -> dict[str, Any]:
    """Returns the fields of an `error` event; writes a sentence to stderr for a user's mistake, a
    traceback for any other error."""
    trace = "".join(traceback.format_exception(error))
    # The disk of output.log may be full.
    with suppress(OSError):
        sys.stderr.write(f"{error}\n" if isinstance(error, RunnerError) else trace)
        sys.stderr.flush()
    return {
        "error": type(error).__name__,
        "message": str(error),
        "traceback": trace,
        "out_of_memory": is_out_of_memory(error),
    }


def status_after(error: Exception) -> WorkerExit:
    """The exit status of a run that failed with this error."""
    if is_disk_full(error):
        return WorkerExit.DISK_FULL
    return WorkerExit.OUT_OF_MEMORY if is_out_of_memory(error) else WorkerExit.FAILED


def leave_in_time(status: int) -> None:
    """Makes the process end soon: skips Python's last garbage collection, which takes 1.8 s of
    processor time once torch is loaded, and ends the process after a while, since a user's code may
    have left threads or exit handlers that never end."""
    gc.freeze()
    leaving = threading.Timer(LEAVING_SECONDS, os._exit, [status])
    leaving.daemon = True
    leaving.start()
