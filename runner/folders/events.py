"""The event journal: one JSON object a line, append only, one writer
(`runner/worker/event_log.py`).

Every line has `v` (format version), `seq` (0, 1, 2, ... within the run), `kind`, `time` (seconds
since the epoch), and the fields of its kind, which `docs/events.md` lists. JSON has no NaN or
infinity, yet a diverged loss must survive: a number field may hold the text "NaN", "Infinity" or
"-Infinity", which `float()` reads back.
"""

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from runner.errors import InvalidRunFolder
from runner.folders.inside import open_inside, stat_inside
from runner.folders.packed import open_packed, stat_packed
from runner.texts import printable

FORMAT_VERSION = 1
"""Of the lines that this version writes, and the newest that it reads."""
MAX_LINE_BYTES = 16_000_000
"""As the index takes them."""
PIECE_BYTES = 2**20
BEGIN = re.compile(rb'\s*\{\s*"v"\s*:\s*(\d+)')


def require_known_format(path: Path, lines: bytes) -> None:
    """Raises `InvalidRunFolder` if the first of these lines of a journal is of a format to come:
    who reads it as one that is known may show what nobody measured."""
    found = BEGIN.match(lines)
    if found and int(found[1]) > FORMAT_VERSION:
        raise InvalidRunFolder(
            f"{printable(path)} was written by a newer version of Breakeven (format "
            f"{int(found[1])}, this one reads up to {FORMAT_VERSION}): update Breakeven to use it"
        )


def read_events(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Reads complete lines from a byte offset; returns the events and the offset after them.

    A missing journal has no events. Lines that are not events (a sealed, torn one) are left out.
    Raises `InvalidRunFolder` if the journal is no plain file.
    """
    data, end = read_complete_lines(path, offset)
    found = map(_event, data.splitlines())
    return [event for event in found if event is not None], end


def each_event(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a journal one after the other, however long it is, in little memory.

    Of holes, which may be terabytes that nobody wrote, nothing is read, and lines of more than
    `MAX_LINE_BYTES` are passed over. Raises `InvalidRunFolder` if the journal is no plain file.
    """
    try:
        journal = open_journal(path)
    except FileNotFoundError:
        return
    with journal:
        for line in _lines(journal):
            event = _event(line)
            if event is not None:
                yield event


def _lines(journal: BinaryIO) -> Iterator[bytes]:
    torn, is_too_long = b"", False
    for piece in _pieces(journal):
        *whole, rest = piece.split(b"\n")
        for line in whole:
            if not is_too_long:
                yield torn + line
            torn, is_too_long = b"", False
        torn += rest
        if len(torn) > MAX_LINE_BYTES:
            torn, is_too_long = b"", True


def _pieces(journal: BinaryIO) -> Iterator[bytes]:
    """What of it is on the disk."""
    at, end = 0, -1
    while True:
        # A packed journal has no holes, and some file systems do not tell of theirs.
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


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None


def open_journal(path: Path) -> BinaryIO:
    """A journal, plain or packed, by the path of the plain one; raises `FileNotFoundError`, or
    `InvalidRunFolder` for what is no plain file or damaged."""
    with suppress(FileNotFoundError):
        return open_inside(path.parent, path.name)
    try:
        return open_packed(path.parent, path.name)
    except FileNotFoundError:  # unless it was unpacked at this moment
        return open_inside(path.parent, path.name)


@dataclass(frozen=True)
class JournalStat:
    """How a journal stands."""

    size: int
    """Bytes of its lines, whether or not it is packed."""
    inode: int
    is_packed: bool = False


def stat_journal(path: Path) -> JournalStat | None:
    """None if there is none; raises `InvalidRunFolder` if it is no plain file."""
    found = stat_inside(path.parent, path.name)
    if found is not None:
        return JournalStat(found.st_size, found.st_ino)
    packed = stat_packed(path.parent, path.name)
    if packed is not None:
        return JournalStat(*packed, is_packed=True)
    found = stat_inside(path.parent, path.name)
    return None if found is None else JournalStat(found.st_size, found.st_ino)


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
