"""The event journal: one JSON object a line, append only, one writer.

Every line has `v` (format version), `seq` (0, 1, 2, ... within the run), `kind`, `time` (seconds
since the epoch), and the fields of its kind, which `docs/events.md` lists. JSON has no NaN or
infinity, yet a diverged loss must survive: a number field may hold the text "NaN", "Infinity" or
"-Infinity", which `float()` reads back.
"""

import json
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FORMAT_VERSION = 1
MAX_BUFFERED_ROWS = 64
MAX_BUFFERED_SECONDS = 0.1
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class EventLog:
    """Appends events to a journal. Safe to use from several threads of one process.

    Rows wait in memory until there are 64, the oldest has waited 0.1 s when another one comes, or
    `flush` is called. Rows that could not be written (a full disk) stay buffered, the error is
    raised, and the next flush tries again, so nothing is lost or written twice.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = threading.RLock()
        self._buffer: list[str] = []
        self._oldest = 0.0
        self._torn = False
        self._seq = self._resume()

    def append(self, kind: str, **fields: Any) -> None:
        """Records one event; `fields` must be JSON values, non-finite numbers allowed."""
        self.extend(kind, {}, **fields)

    def extend(self, kind: str, columns: Mapping[str, Sequence[Any]], **shared: Any) -> None:
        """Records events of one kind and time, one for each place of the columns, which are equally
        long; or a single one without any. The shared fields are those of all."""
        with self._lock:
            now = time.time()
            if not self._buffer:
                self._oldest = now
            head = _text({"v": FORMAT_VERSION, "kind": kind, "time": now, **shared})[:-1]
            names = "".join(f',"{name}":%s' for name in columns)
            line = head.replace("%", "%%") + ',"seq":%d' + names + "}"
            rows = zip(*map(_texts, columns.values()), strict=True) if columns else [()]
            lines = [line % (seq, *row) for seq, row in enumerate(rows, self._seq)]
            self._buffer += lines
            self._seq += len(lines)
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
                self._write(("\n".join(batch) + "\n").encode())
                del self._buffer[: len(batch)]
            if durable:
                os.fdatasync(self._file)

    def close(self) -> None:
        """Writes what is buffered, waits for the disk and closes the journal."""
        self.flush(durable=True)
        os.close(self._file)

    def _write(self, data: bytes) -> None:
        """Writes all of `data` or none: a part that a full disk took is cut off again."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            if written:
                os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise

    def _resume(self) -> int:
        """Finds the next `seq` in a journal that exists, and whether its last line is torn."""
        size = os.fstat(self._file).st_size
        if size == 0:
            return 0
        window = min(size, 1 << 20)
        tail = os.pread(self._file, window, size - window)
        self._torn = not tail.endswith(b"\n")
        for line in reversed(tail.split(b"\n")):
            try:
                return int(json.loads(line)["seq"]) + 1
            except (ValueError, KeyError, TypeError):
                continue
        return 0


def read_events(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Reads complete lines from a byte offset; returns the events and the offset after them.

    A missing journal has no events. Lines that are not events (a sealed, torn one) are left out.
    """
    data, end = read_complete_lines(path, offset)
    events = []
    for line in data.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "kind" in event:
            events.append(event)
    return events, end


def read_complete_lines(path: Path, offset: int, max_bytes: int = -1) -> tuple[bytes, int]:
    """Bytes from `offset` up to the last newline within `max_bytes`, and the offset after it."""
    try:
        with path.open("rb") as journal:
            journal.seek(offset)
            data = journal.read(max_bytes)
    except FileNotFoundError:
        return b"", offset
    length = data.rfind(b"\n") + 1
    return data[:length], offset + length


def _texts(values: Sequence[Any]) -> list[str]:
    """Each value as JSON: all at once where none has a comma of its own, as with numbers."""
    texts = _text(values)[1:-1].split(",")
    return texts if len(texts) == len(values) else [_text(value) for value in values]


def _text(value: Any) -> str:
    try:
        text = _encode(value)
    except ValueError:
        return _encode(_readable(value))
    # Half of a surrogate pair, as in an undecodable path, is no JSON that DuckDB would read. Rows
    # with such a thing or with NaN are rare, and looking for them in every value would be slow.
    return _encode(_readable(value)) if "\\ud" in text else text


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
