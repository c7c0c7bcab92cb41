"""Exit statuses of the processes of runs, and what each says about how the run ended."""

import signal
from enum import IntEnum

from breakeven.runner.protocol.states import RunState


class WorkerExit(IntEnum):
    """Exit status of `python -m breakeven.runner.worker`."""

    FINISHED = 0
    FAILED = 1
    CANCELLED = 75
    OUT_OF_MEMORY = 77
    DISK_FULL = 78
    RANK_LOST = 79


ENDS = {
    WorkerExit.FINISHED: (RunState.FINISHED, "training is over"),
    WorkerExit.CANCELLED: (RunState.CANCELLED, "stopped on request"),
    WorkerExit.OUT_OF_MEMORY: (
        RunState.OUT_OF_MEMORY,
        "the run ran out of memory; output.log says where",
    ),
    WorkerExit.DISK_FULL: (
        RunState.FAILED,
        "the disk was full; free some space, then resume or start it anew",
    ),
    WorkerExit.RANK_LOST: (
        RunState.FAILED,
        "one of its processes ended or hung; output.log says which",
    ),
}


def explain(returncode: int) -> tuple[RunState, str]:
    """State and reason of a run whose process the supervisor did not stop."""
    if returncode in ENDS:
        return ENDS[WorkerExit(returncode)]
    if returncode < 0:
        known = -returncode in set(signal.Signals)
        name = signal.Signals(-returncode).name if known else str(-returncode)
        return RunState.FAILED, f"ended by signal {name}"
    return RunState.FAILED, f"exit status {returncode}; output.log says why"
