"""Parses journals: the lines that count, by the kind of their event."""

import json
from typing import Any

import orjson

from breakeven.runner.folders.events import BOOLEANS, Order, read_event

USUAL = frozenset(BOOLEANS)
Lines = dict[str, list[bytes]]
"""Lines of a journal by the kind of their event."""


def counting_lines(journal: bytes, order: Order) -> Lines:
    """The lines that are events in ascending order; `order` counts the others."""
    found: Lines = {}
    for line in journal.split(b"\n"):
        event, text = _parsed(line)
        if event is not None and order.takes(event):
            found.setdefault(event["kind"], []).append(text)
    return found


def _parsed(line: bytes) -> tuple[dict[str, Any] | None, bytes]:
    """The event of a line, or None, and the line in a form that the database reads correctly:
    without true and false in fields of numbers, which it would read as 1 and 0."""
    try:
        event = orjson.loads(line)
    except ValueError:  # It may contain values that are no strict JSON, such as NaN.
        event = None
    if isinstance(event, dict) and isinstance(event.get("kind"), str):
        num_words = line.count(b"true") + line.count(b"false")
        usual = [type(event[name]) for name in USUAL & event.keys()] if num_words else ()
        if num_words == usual.count(bool):
            return event, line
    event = read_event(line)
    return event, b"" if event is None else json.dumps(event).encode()
