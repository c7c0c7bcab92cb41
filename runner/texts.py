"""Text functions for all parts: durations, JSON, sentences, lists, untrusted text on one line."""

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from shutil import get_terminal_size
from typing import Any

MAX_CHARACTERS = 500
MAX_NESTING = 100
"""Levels of JSON that are read; Breakeven itself writes only a few."""
TOO_DEEP = f"it is nested too deeply, in more than {MAX_NESTING} levels"


def read_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises `ValueError` with a reason for any other text, and for
    nesting so deep that a recursive reader would overflow the stack."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    level = [content]
    for _ in range(MAX_NESTING):
        level = [
            inner
            for nested in level
            if isinstance(nested, (dict, list))
            for inner in (nested.values() if isinstance(nested, dict) else nested)
        ]
        if not level:
            return content
    raise ValueError(TOO_DEEP)


def json_lines(content: bytes) -> Iterator[dict[str, Any]]:
    """The JSON objects in lines; skips all other lines, such as one that a killed writer left."""
    for line in content.splitlines():
        with suppress(ValueError):
            value = read_json(line)
            if isinstance(value, dict):
                yield value


def printable(text: object, limit: int = MAX_CHARACTERS) -> str:
    """The text on one line, cut at `limit`, with all invisible characters escaped: line ends,
    terminal controls, and bytes of a file name that are not UTF-8."""
    shown = str(text)
    if len(shown) > limit:
        shown = shown[: limit - 4] + " ..."
    if shown.isprintable():
        return shown
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in shown
    )


def duration(seconds: float) -> str:
    """`0.4 s`, `45 s`, `3 min 20 s`, `2 h 5 min`; a negative duration counts as 0."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 10:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def listed(names: Sequence[str]) -> str:
    """`A`, `A and B`, `A, B and C`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def first_few(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first texts, and the number of the others: `A, B and 4 more`."""
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + more


def capital(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


LONGEST_SENTENCE = 160


def first_sentence(text: str) -> str:
    """The beginning of a message, up to the end of its first sentence or line."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return re.split(r"(?<=[a-z])\. (?=[A-Z])", line)[0][:LONGEST_SENTENCE]


def filled(text: str, head: str) -> str:
    """The text after `head`, further lines below its beginning, in the width of the terminal."""
    return textwrap.fill(
        text,
        get_terminal_size((100, 24)).columns,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
