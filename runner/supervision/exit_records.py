"""Writes down how runs ended, now or, if the disk is full, as soon as there is room."""

import shutil
import threading
from dataclasses import replace
from pathlib import Path

from runner.alerts.events import Alerts
from runner.folders.records import Exit
from runner.folders.run_dir import RunDir
from runner.folders.states import RunState
from runner.logs import log
from runner.supervision.exits import NO_ROOM

MIN_FREE_BYTES = 1_000_000
"""Below that a disk counts as full: a run cannot even say what happened."""


class ExitRecords:
    """The exit records of a supervisor's runs, for all experiments at work. Those that the disk has
    no room for are kept here."""

    def __init__(self, alerts: Alerts | None = None) -> None:
        self._alerts = alerts
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
        if state is RunState.FAILED and disk_is_full(run) and "disk" not in reason:
            reason = f"{reason} (the disk was full then)"
        run.drop_leftovers()
        say(f"{run.run_id}: {state}, {reason}")
        with self._lock:
            self._try(run, Exit.now(state, reason, returncode))
        if self._alerts is not None:
            self._alerts.run_ended(run.run_id, state, reason)

    def write_owed(self) -> None:
        """Tries again to write what there was no room for."""
        with self._lock:
            owed, self._owed = self._owed, {}
            for run, ended in owed.values():
                # Nobody else records an end, unless the folder was taken away or worked on by hand.
                if not run.exit_file.exists():
                    self._try(run, ended)

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


def disk_is_full(run: RunDir) -> bool:
    try:
        return shutil.disk_usage(run.path).free < MIN_FREE_BYTES
    except OSError:
        return False


def say(text: str) -> None:
    """Tells the supervisor's log and its terminal; both may lie on the same full disk."""
    log.info(text)
    try:
        print(text, flush=True)  # noqa: T201
    except OSError:
        return
