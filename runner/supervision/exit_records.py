"""Records how runs end: writes exit records, cuts the output and masks secrets in it."""

import os
import re
import threading
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from breakeven.runner.disk_space import lacks_room
from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments.continuing import NOT_CONTINUED
from breakeven.runner.files import NO_ROOM
from breakeven.runner.logs import log
from breakeven.runner.machine.cpus import memory_bytes
from breakeven.runner.masking import mask
from breakeven.runner.notifications import Notifier
from breakeven.runner.ports_and_locks import held_by_another
from breakeven.runner.protocol.events import each_event
from breakeven.runner.protocol.exit_status import WorkerExit
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState

_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
"""Units in messages of torch's allocators."""
_SIZE = rf"(\d+\.?\d* (?:{'|'.join(_UNITS)}))"
_ON_DEVICE = re.compile(rf"Tried to allocate {_SIZE}\. GPU \d+ has a total capacity of {_SIZE}")
_ALLOCATED = re.compile(rf"Of the allocated memory {_SIZE} is allocated by PyTorch")
_ON_HOST = re.compile(r"you tried to allocate (\d+) bytes")


def missing_exclusive_resource(run: RunDir) -> str | None:
    """`port` or `lock` if a failed run met a resource that only one process can hold, as its last
    error or the end of its output says; else None."""
    with suppress(RunnerError, OSError):
        error = _last_error(run)
        texts = [f"{error.get('error')}: {error.get('message')}", str(error.get("traceback"))]
        return held_by_another("\n".join([*texts, run.log_tail()]))
    return None


def _last_error(run: RunDir) -> dict[str, Any]:
    errors = (event for event in each_event(run.events_file) if event["kind"] == "error")
    return dict(next(iter(deque(errors, maxlen=1)), {}))


def lacks_memory_alone(run: RunDir) -> bool:
    """Whether the last error of a run says that its tensors need more memory than there is."""
    message = ""
    with suppress(RunnerError):
        message = str(_last_error(run).get("message"))
    if host := _ON_HOST.search(message):
        return int(host[1]) > (memory_bytes() or float("inf"))
    device, allocated = _ON_DEVICE.search(message), _ALLOCATED.search(message)
    if device is None:
        return False
    return _bytes(device[1]) + (_bytes(allocated[1]) if allocated else 0.0) > _bytes(device[2])


def _bytes(size: str) -> float:
    number, unit = size.split()
    return float(number) * _UNITS[unit]


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
        if ended.state is not RunState.FINISHED and run.only_times:
            reason = f"{NOT_CONTINUED}: {ended.reason}"
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
