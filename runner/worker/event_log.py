"""Writes the journal of a run; `runner/protocol/events.py` describes and reads it."""

import json
import math
import os
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from breakeven.runner.masking import masker
from breakeven.runner.protocol.events import (
    FORMAT_VERSION,
    JournalPosition,
    each_event,
    read_event,
    require_known_format,
)

try:
    import orjson
except ModuleNotFoundError:  # a Python other than Breakeven's own
    orjson = None  # type: ignore[assignment]

KINDS_WITHOUT_TEXTS = ("step", "block", "device")
"""Kinds of events without texts, and so without secrets; masking so many would cost time."""
MAX_BUFFERED_ROWS = 64
MAX_BUFFERED_SECONDS = 0.1
TAIL_BYTES = 2**20
"""Bytes at the end of an existing journal that are searched first for the last `seq`."""


class EventLog:
    """Appends events to a journal. Safe to use from several threads of one process.

    Rows stay in memory until there are 64, until another row comes 0.1 s after the oldest, or until
    `flush`. If they cannot be written (a full disk), they stay buffered, the error is raised, and
    the next flush tries again: no row is lost or written twice.
    """

    def __init__(self, path: Path) -> None:
        """Continues an existing journal; raises `InvalidRunFolder` if a newer version wrote it."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = threading.RLock()
        self._buffer: list[bytes] = []
        self._oldest = 0.0
        self._torn = False
        self._mask = masker()
        self._seq = self._resume(path)

    def append(self, kind: str, **fields: Any) -> None:
        """Records one event; `fields` must be JSON values, non-finite numbers allowed."""
        self.extend(kind, (fields,))

    def enter(self, phase: str) -> None:
        """Records that the run enters a phase, and waits for the disk."""
        self.append("phase", phase=phase)
        self.flush(durable=True)

    def extend(self, kind: str, rows: Iterable[Mapping[str, Any]], **shared: Any) -> None:
        """Records events of one kind and time, each with its row's fields and the `shared` ones."""
        with self._lock:
            now = time.time()
            if not self._buffer:
                self._oldest = now
            head = {"v": FORMAT_VERSION, "kind": kind, "time": now, **shared}
            for fields in rows:
                line = _line({**head, "seq": self._seq, **fields})
                has_no_text = kind in KINDS_WITHOUT_TEXTS
                self._buffer.append(line if has_no_text else self._mask(line.decode()).encode())
                self._seq += 1
            waited = now - self._oldest
            if len(self._buffer) >= MAX_BUFFERED_ROWS or waited > MAX_BUFFERED_SECONDS:
                self.flush()

    def flush(self, *, durable: bool = False) -> None:
        """Hands buffered rows to the operating system; `durable` also waits for the disk."""
        with self._lock:
            if self._torn:
                self._write(b"\n")
                self._torn = False
            while self._buffer:
                batch = self._buffer[:MAX_BUFFERED_ROWS]
                self._write(b"".join(batch))
                del self._buffer[: len(batch)]
            if durable:
                os.fdatasync(self._file)

    def close(self) -> None:
        """Writes buffered rows, waits for the disk and closes the journal."""
        self.flush(durable=True)
        os.close(self._file)
        self._file = -1  # The system gives the old number to the next file that is opened.

    def close_as_it_is(self) -> None:
        """Closes the journal of a run that fails, without rows that cannot be written."""
        with suppress(OSError):
            self.close()

    def _write(self, data: bytes) -> None:
        """Writes all of `data` or nothing: removes a part that fitted on a full disk."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            if written:
                os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise

    def _resume(self, path: Path) -> int:
        """Finds the next `seq` of an existing journal, and whether its last line is torn."""
        size = os.fstat(self._file).st_size
        if size == 0:
            return 0
        window = min(size, TAIL_BYTES)
        tail = os.pread(self._file, window, size - window)
        self._torn = not tail.endswith(b"\n")
        position = JournalPosition()
        for line in tail.split(b"\n"):
            require_known_format(path, line)
            event = read_event(line)
            if event is not None:
                position.takes(event)
        # A single line may be longer than the tail.
        return position.last + 1 or max((event["seq"] + 1 for event in each_event(path)), default=0)


class SilentLog(EventLog):
    """The journal of the other ranks: only rank 0 writes."""

    def __init__(self) -> None:
        pass

    def extend(self, kind: str, rows: Iterable[Mapping[str, Any]], **shared: Any) -> None:
        pass

    def flush(self, *, durable: bool = False) -> None:
        pass

    def close(self) -> None:
        pass


def _line(event: dict[str, Any]) -> bytes:
    if orjson is None:
        return _readable_line(event)
    try:
        line = orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:  # e.g. half of a surrogate pair, as in an undecodable path
        return _readable_line(event)
    # orjson writes null for NaN and infinity. They are rare, and a search in every value would be
    # slow.
    is_faithful = line.count(b"null") == [*event.values()].count(None)
    return line if is_faithful else _readable_line(event)


def _readable_line(event: dict[str, Any]) -> bytes:
    return (json.dumps(_readable(event), allow_nan=False) + "\n").encode()


def _readable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {key: _readable(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_readable(entry) for entry in value]
    return value
