"""The event journal: one JSON object a line, append only, one writer
(`runner/worker/event_log.py`).

Every line has `v` (format version), `seq` (0, 1, 2, ... within the run), `kind`, `time` (seconds
since the epoch), and the fields of its kind, which `docs/events.md` lists. JSON has no NaN or
infinity, yet a diverged loss must survive: a number field may hold the text "NaN", "Infinity" or
"-Infinity", which `float()` reads back.
"""

import json
import re
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
    events = []
    for line in data.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("kind"), str):
            events.append(event)
    return events, end


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
