"""The event journal: one JSON object a line, append only, one writer
(`runner/worker/event_log.py`).

Every line has `v` (format version), `seq` (0, 1, 2, ... within the run), `kind`, `time` (seconds
since the epoch), and the fields of its kind, which `docs/events.md` lists. JSON has no NaN or
infinity, yet a diverged loss must survive: a number field may hold the text "NaN", "Infinity" or
"-Infinity", which `float()` reads back.
"""

import json
from pathlib import Path
from typing import Any

from runner.folders.inside import open_inside


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


def read_complete_lines(path: Path, offset: int, max_bytes: int = -1) -> tuple[bytes, int]:
    """Bytes from `offset` up to the last newline within `max_bytes`, and the offset after it.

    Raises `InvalidRunFolder` if the journal is no plain file.
    """
    try:
        with open_inside(path.parent, path.name) as journal:
            journal.seek(offset)
            data = journal.read(max_bytes)
    except FileNotFoundError:
        return b"", offset
    length = data.rfind(b"\n") + 1
    return data[:length], offset + length
