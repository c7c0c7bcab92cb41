"""Exit statuses: how a run tells its supervisor, with its last breath, how it ended."""

import errno
import signal
from enum import IntEnum

from breakeven.runner.folders.states import RunState

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Errors of the system that mean a full disk."""


class WorkerExit(IntEnum):
    """Exit status of `python -m breakeven.runner.worker`."""

    FINISHED = 0
    FAILED = 1
    CANCELLED = 75
    OUT_OF_MEMORY = 77
    DISK_FULL = 78
    RANK_LOST = 79


def explain(returncode: int) -> tuple[RunState, str]:
    """State and reason for a process that ended by itself or by somebody else's signal."""
    if returncode == WorkerExit.FINISHED:
        return RunState.FINISHED, "training is over"
    if returncode == WorkerExit.CANCELLED:
        return RunState.CANCELLED, "stopped on request"
    if returncode == WorkerExit.OUT_OF_MEMORY:
        return RunState.OUT_OF_MEMORY, "the device ran out of memory; output.log says where"
    if returncode == WorkerExit.DISK_FULL:
        return RunState.FAILED, "the disk was full; free some space, then resume or start it anew"
    if returncode == WorkerExit.RANK_LOST:
        reason = "one of its processes ended or hung; output.log says which"
        return RunState.FAILED, reason
    if returncode < 0:
        known = -returncode in set(signal.Signals)
        name = signal.Signals(-returncode).name if known else str(-returncode)
        hint = " (by hand, or by the system because memory ran out)" if name == "SIGKILL" else ""
        return RunState.FAILED, f"ended by signal {name}{hint}"
    return RunState.FAILED, f"exit status {returncode}; output.log says why"
