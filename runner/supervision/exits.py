"""Records how runs end: exit statuses, exit records, and the output, cut and without secrets."""

import errno
import os
import signal
import threading
from contextlib import suppress
from dataclasses import replace
from enum import IntEnum
from pathlib import Path

from breakeven.runner.files import lacks_room
from breakeven.runner.folders.added_rounds import NOT_ADDED
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import Exit, RunState
from breakeven.runner.logs import log
from breakeven.runner.masking import mask
from breakeven.runner.notifications import Notifier

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""System errors that mean a full disk."""


class WorkerExit(IntEnum):
    """Exit status of `python -m breakeven.runner.worker`."""

    FINISHED = 0
    FAILED = 1
    CANCELLED = 75
    OUT_OF_MEMORY = 77
    DISK_FULL = 78
    RANK_LOST = 79


def explain(returncode: int) -> tuple[RunState, str]:
    """State and reason of a run whose process the supervisor did not stop."""
    if returncode == WorkerExit.FINISHED:
        return RunState.FINISHED, "training is over"
    if returncode == WorkerExit.CANCELLED:
        return RunState.CANCELLED, "stopped on request"
    if returncode == WorkerExit.OUT_OF_MEMORY:
        return RunState.OUT_OF_MEMORY, "the run ran out of memory; output.log says where"
    if returncode == WorkerExit.DISK_FULL:
        return RunState.FAILED, "the disk was full; free some space, then resume or start it anew"
    if returncode == WorkerExit.RANK_LOST:
        reason = "one of its processes ended or hung; output.log says which"
        return RunState.FAILED, reason
    if returncode < 0:
        known = -returncode in set(signal.Signals)
        name = signal.Signals(-returncode).name if known else str(-returncode)
        return RunState.FAILED, f"ended by signal {name}"
    return RunState.FAILED, f"exit status {returncode}; output.log says why"


MAX_BYTES = 64_000_000
KEPT_BYTES = 4_000_000
"""Bytes kept at the end of a file that exceeds `MAX_BYTES`."""


def cut_output(file: Path) -> None:
    """Cuts a long file to which processes append; output that is written meanwhile may be lost."""
    with suppress(OSError):
        if file.stat().st_size <= MAX_BYTES:
            return
        with file.open("r+b") as output:
            output.seek(-KEPT_BYTES, os.SEEK_END)
            kept = output.read()
            output.seek(0)
            output.write(b"[cut off: more than 64 MB were printed]\n" + kept)
            output.truncate()


def mask_output(file: Path) -> None:
    """Masks secrets in a file without writers. Ignores errors: pages mask the text again."""
    with suppress(OSError):
        if file.is_symlink() or not file.is_file():
            return
        cut_output(file)  # A copied folder may have a sparse file of a terabyte.
        text = file.read_text(errors="surrogateescape")
        masked = mask(text)
        if masked != text:
            with file.open("r+b") as output:
                output.write(masked.encode(errors="surrogateescape"))
                output.truncate()


class ExitRecords:
    """Writes the exit records of a supervisor's runs; keeps them while the disk has no room."""

    def __init__(self, notifier: Notifier | None = None) -> None:
        self._notifier = notifier
        self._owed: dict[Path, tuple[RunDir, Exit]] = {}
        """Records in memory by run folder, which may have several `RunDir` objects."""
        self._lock = threading.Lock()

    @property
    def is_owing(self) -> bool:
        return bool(self._owed)

    def owes(self, run: RunDir) -> bool:
        """Whether the run has ended, so must not start again, but its record is not written."""
        with self._lock:
            return run.path in self._owed

    def write(self, run: RunDir, state: RunState, reason: str, returncode: int | None) -> None:
        """Writes exit.json, as far as the folder allows, and removes useless files."""
        is_full = lacks_room(run.path) is not None
        if state is RunState.FAILED and is_full and "disk" not in reason:
            reason = f"{reason} (the disk was full then)"
        ended = Exit.now(state, reason, returncode)
        if is_full or returncode == WorkerExit.DISK_FULL:
            ended = _as_requested(run, ended)
        if ended.state is not RunState.FINISHED and run.adds_rounds:
            reason = f"{NOT_ADDED}: {ended.reason}"
            ended = replace(ended, state=RunState.FINISHED, reason=reason)
        run.drop_leftovers()
        say(f"{run.run_id}: {ended.state}, {ended.reason}")
        with self._lock:
            self._try(run, ended)
        if self._notifier is not None:
            self._notifier.run_ended(run.run_id, ended.state, ended.reason)

    def write_owed(self) -> None:
        """Tries again to write the records for which the disk had no room."""
        with self._lock:
            owed, self._owed = self._owed, {}
            for run, ended in owed.values():
                # exit.json exists only if a user changed the folder by hand.
                if not run.exit_file.exists():
                    self._try(run, _as_requested(run, ended))

    def _try(self, run: RunDir, ended: Exit) -> None:
        try:
            run.write_exit(ended)
        except OSError as error:
            if error.errno in NO_ROOM:
                late = "(written late: the disk had no room for this record)"
                reason = ended.reason if late in ended.reason else f"{ended.reason} {late}"
                self._owed[run.path] = run, replace(ended, reason=reason)
            else:
                # The state is then derived from the dead process; the next supervisor tries again.
                say(f"{run.run_id}: exit.json could not be written: {error}")


def _as_requested(run: RunDir, ended: Exit) -> Exit:
    """A cancellation in place of a failure if a user stopped the run while it waited for room."""
    if ended.state is not RunState.FAILED or not run.cancel_requested:
        return ended
    reason = f"stopped on request while it waited for disk space; before: {ended.reason}"
    return replace(ended, state=RunState.CANCELLED, reason=reason)


def say(text: str) -> None:
    """Writes to the supervisor's log and its terminal; both may be on the same full disk."""
    log.info(text)
    try:
        print(text, flush=True)  # noqa: T201
    except OSError:
        return
