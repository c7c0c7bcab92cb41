"""The event journal: one JSON object a line, append only, one writer
(`runner/worker/event_log.py`).

Every line has `v` (format version), `seq` (0, 1, 2, ... within the run), `kind`, `time` (seconds
since the epoch), and the fields of its kind, which `docs/events.md` lists. JSON has no NaN or
infinity, but a loss can diverge, so a number field may hold the text "NaN", "Infinity" or
"-Infinity", which `float()` reads back.

Each event counts once: readers skip an event whose `seq` is not larger than the last one
(`JournalPosition`), such as a copy that somebody appended.
"""

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from breakeven.runner.errors import InvalidRunFolder
from breakeven.runner.protocol.plain_files import open_inside, stat_inside
from breakeven.runner.texts import printable, read_json

FORMAT_VERSION = 1
"""The format that this version writes, and the newest that it reads."""
MAX_LINE_BYTES = 16_000_000
"""Longest line that is read, here and in the index."""
PIECE_BYTES = 2**20
MAX_COUNT = 2**53
"""Largest accepted integer: sums and differences of accepted integers fit into 64 bits."""
FOUND_IN_SCRIPT = "Found in the script"
"""Begin of a note of what a run takes for step, loss and model."""
BEGIN = re.compile(rb'\s*\{\s*"v"\s*:\s*(\d+)')


@dataclass
class JournalPosition:
    """Position of a reader in a journal, by the `seq` of its events."""

    last: int = -1
    """The `seq` of the last accepted event; -1 before the first one."""
    num_left_out: int = 0
    """Events that were skipped, because they do not follow the last accepted one."""
    num_missing: int = 0
    """Events that are missing before accepted ones: a run numbers its events without gaps."""

    def takes(self, event: Mapping[str, Any]) -> bool:
        """Whether the event is accepted, which makes it the last one. Its `seq` must be an integer
        above the last one and at most `MAX_COUNT`."""
        seq = event.get("seq")
        if type(seq) is int and self.last < seq <= MAX_COUNT:
            self.num_missing += seq - self.last - 1
            self.last = seq
            return True
        self.num_left_out += 1
        return False


def require_known_format(path: Path, lines: bytes) -> None:
    """Raises `InvalidRunFolder` if the first of these lines of a journal has a future format: a
    reader of known formats might show wrong numbers."""
    match = BEGIN.match(lines)
    if match and int(match[1]) > FORMAT_VERSION:
        raise InvalidRunFolder(
            f"{printable(path)} was written by a newer version of Breakeven (format "
            f"{int(match[1])}, this one reads up to {FORMAT_VERSION}): update Breakeven to use it"
        )


def read_events(
    path: Path, offset: int = 0, position: JournalPosition | None = None
) -> tuple[list[dict[str, Any]], int]:
    """Reads complete lines from a byte offset; returns the events and the offset after them.

    A missing journal has no events. Lines that are not events (such as a torn line) are skipped.
    `position` is that of the offset; events that it does not accept are skipped, too. Raises
    `InvalidRunFolder` if the journal is no plain file.
    """
    position = position or JournalPosition()
    data, end = read_complete_lines(path, offset)
    events = map(read_event, data.splitlines())
    return [event for event in events if event is not None and position.takes(event)], end


def each_event(path: Path, position: JournalPosition | None = None) -> Iterator[dict[str, Any]]:
    """Yields the events of a journal of any length in little memory; `position` counts skipped
    ones. Skips holes of the file, which may have terabytes, and lines of more than
    `MAX_LINE_BYTES`. Raises `InvalidRunFolder` if the journal is no plain file.
    """
    try:
        journal = open_journal(path)
    except FileNotFoundError:
        return
    position = position or JournalPosition()
    with journal:
        for line in _lines(journal):
            event = read_event(line)
            if event is not None and position.takes(event):
                yield event


def _lines(journal: BinaryIO) -> Iterator[bytes]:
    torn, is_too_long = b"", False
    for piece in _pieces(journal):
        *lines, rest = piece.split(b"\n")
        for line in lines:
            if not is_too_long:
                yield torn + line
            torn, is_too_long = b"", False
        torn += rest
        if len(torn) > MAX_LINE_BYTES:
            torn, is_too_long = b"", True


def _pieces(journal: BinaryIO) -> Iterator[bytes]:
    """The data of the file without holes, in pieces."""
    at, end = 0, -1
    while True:
        # Some file systems do not report holes.
        with suppress(OSError, ValueError):
            try:
                at = os.lseek(journal.fileno(), at, os.SEEK_DATA)
                end = os.lseek(journal.fileno(), at, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                raise
        journal.seek(at)
        piece = journal.read(PIECE_BYTES if end < 0 else min(PIECE_BYTES, end - at))
        if not piece:
            return
        at += len(piece)
        yield piece


BOOLEANS = (
    "compiled",
    "inference_draws",
    "is_unstable",
    "out_of_memory",
    "passed",
    "same",
    "warm_up",
)
"""Fields that hold true or false; in other fields of numbers or texts these become None."""
ANY_JSON = (
    "blocks",
    "buffers",
    "clock_reads",
    "devices",
    "ending",
    "labels",
    "layers",
    "notes",
    "uncounted",
    "variables",
    "versions",
)
"""Fields that hold any JSON."""


def read_event(line: bytes) -> dict[str, Any] | None:
    """The event of a line, or None if the line is no event. In fields of numbers or texts, true and
    false become None."""
    try:
        event = read_json(line)
    except ValueError:
        return None
    if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
        return None
    return {
        name: value if name in BOOLEANS or name in ANY_JSON else _without_booleans(value)
        for name, value in event.items()
    }


def _without_booleans(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_booleans(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [*map(_without_booleans, value)]
    return None if isinstance(value, bool) else value


def open_journal(path: Path) -> BinaryIO:
    """Opens a journal; raises `FileNotFoundError`, or `InvalidRunFolder` if it is damaged or no
    plain file."""
    return open_inside(path.parent, path.name)


def stat_journal(path: Path) -> os.stat_result | None:
    """The file status of a journal; None without one. Raises `InvalidRunFolder` if not plain."""
    return stat_inside(path.parent, path.name)


def read_complete_lines(path: Path, offset: int, max_bytes: int = -1) -> tuple[bytes, int]:
    """Bytes from `offset` up to the last newline within `max_bytes`, and the offset after it.

    Raises `InvalidRunFolder` if the journal is no plain file.
    """
    try:
        with open_journal(path) as journal:
            journal.seek(offset)
            data = journal.read(max_bytes)
    except FileNotFoundError:
        return b"", offset
    length = data.rfind(b"\n") + 1
    return data[:length], offset + length
