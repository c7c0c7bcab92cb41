"""Writes down how runs ended, now or, if the disk is full, as soon as there is room."""

import threading
from dataclasses import replace
from pathlib import Path

from breakeven.runner.folders.records import Exit
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.sizes import lacks_room
from breakeven.runner.folders.states import RunState
from breakeven.runner.logs import log
from breakeven.runner.notifications import Notifier
from breakeven.runner.supervision.exits import NO_ROOM, WorkerExit


class ExitRecords:
    """The exit records of a supervisor's runs, for all experiments at work. Those that the disk has
    no room for are kept here."""

    def __init__(self, notifier: Notifier | None = None) -> None:
        self._notifier = notifier
        self._owed: dict[Path, tuple[RunDir, Exit]] = {}
        """By the run's folder: there may be several `RunDir` of it."""
        self._lock = threading.Lock()

    @property
    def is_owing(self) -> bool:
        return bool(self._owed)

    def owes(self, run: RunDir) -> bool:
        """Whether the run has ended though its folder does not say so yet: it is not to be started
        again."""
        with self._lock:
            return run.path in self._owed

    def write(self, run: RunDir, state: RunState, reason: str, returncode: int | None) -> None:
        """Writes exit.json and drops what is of no more use. Nothing that is wrong with one folder
        may stop the supervisor."""
        is_full = lacks_room(run.path) is not None
        if state is RunState.FAILED and is_full and "disk" not in reason:
            reason = f"{reason} (the disk was full then)"
        ended = Exit.now(state, reason, returncode)
        if is_full or returncode == WorkerExit.DISK_FULL:
            ended = _as_asked(run, ended)
        run.drop_leftovers()
        say(f"{run.run_id}: {ended.state}, {ended.reason}")
        with self._lock:
            self._try(run, ended)
        if self._notifier is not None:
            self._notifier.run_ended(run.run_id, ended.state, ended.reason)

    def write_owed(self) -> None:
        """Tries again to write what there was no room for."""
        with self._lock:
            owed, self._owed = self._owed, {}
            for run, ended in owed.values():
                # Nobody else records an end, unless the folder was taken away or worked on by hand.
                if not run.exit_file.exists():
                    self._try(run, _as_asked(run, ended))

    def _try(self, run: RunDir, ended: Exit) -> None:
        try:
            run.write_exit(ended)
        except OSError as error:
            if error.errno in NO_ROOM:
                late = "(written late: the disk had no room for this record)"
                reason = ended.reason if late in ended.reason else f"{ended.reason} {late}"
                self._owed[run.path] = run, replace(ended, reason=reason)
            else:
                # The state is then derived from the dead process, and the next start of a
                # supervisor tries again.
                say(f"{run.run_id}: exit.json could not be written: {error}")


def _as_asked(run: RunDir, ended: Exit) -> Exit:
    """A run that was to be stopped while it waited for disk space was cancelled, however little of
    it was left."""
    if ended.state is not RunState.FAILED or not run.cancel_requested:
        return ended
    reason = f"stopped on request while it waited for disk space; before: {ended.reason}"
    return replace(ended, state=RunState.CANCELLED, reason=reason)


def say(text: str) -> None:
    """Tells the supervisor's log and its terminal; both may lie on the same full disk."""
    log.info(text)
    try:
        print(text, flush=True)  # noqa: T201
    except OSError:
        return
