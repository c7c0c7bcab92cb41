"""Takes journals apart: the lines that count, by the kind of their event."""

import json
from typing import Any

import orjson

from breakeven.runner.folders.events import BOOLEANS, Order, read_event

USUAL = frozenset(BOOLEANS)
Lines = dict[str, list[bytes]]
"""Of a journal, by the kind of their event."""


def counting_lines(journal: bytes, order: Order) -> Lines:
    """The lines that are events and come after the events before, which `order` counts."""
    found: Lines = {}
    for line in journal.split(b"\n"):
        event, text = _parsed(line)
        if event is not None and order.takes(event):
            found.setdefault(event["kind"], []).append(text)
    return found


def _parsed(line: bytes) -> tuple[dict[str, Any] | None, bytes]:
    """The event of a line, None of one that is none, and the line as the database may read it:
    without true and false in the place of numbers, which it would take for 1 and 0."""
    try:
        event = orjson.loads(line)
    except ValueError:  # It may hold what is no JSON to the letter, such as NaN.
        event = None
    if isinstance(event, dict) and isinstance(event.get("kind"), str):
        num_words = line.count(b"true") + line.count(b"false")
        usual = [type(event[name]) for name in USUAL & event.keys()] if num_words else ()
        if num_words == usual.count(bool):
            return event, line
    event = read_event(line)
    return event, b"" if event is None else json.dumps(event).encode()
