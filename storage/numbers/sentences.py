"""Sentences that know which of their words are numbers: the terminal prints plain text, pages and
reports link every number to its definition."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from breakeven.storage.numbers.formats import format_text, format_verdict
from breakeven.storage.numbers.metrics import NUMBERS

MAX_NAMED = 3
"""Largest number of functions, operations or processes in one sentence."""
MAX_SHORT = 90


@dataclass(frozen=True)
class Figure:
    """A number in a sentence: its name in NUMBERS, and how it is written."""

    name: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Sentence:
    """Words and figures in their order; adjacent texts are one."""

    parts: tuple[str | Figure, ...] = ()

    def __str__(self) -> str:
        return "".join(map(str, self.parts))


Words = str | Figure | Sentence


def figure(name: str, value: Any) -> Figure:
    """A value as the registry writes it; raises TypeError where a number is no number."""
    write = NUMBERS[name].format
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    is_right = isinstance(value, str) if write in (format_text, format_verdict) else is_number
    if value is not None and not is_right:
        raise TypeError(f"{name} is {value!r}, which is no number")
    return Figure(name, write(value))


def say(*words: Words) -> Sentence:
    """The sentence of these words, without a space between them."""
    return joined(words)


def joined(words: Iterable[Words], separator: str = "") -> Sentence:
    """One sentence of several."""
    parts: list[str | Figure] = []
    for number, word in enumerate(words):
        between = [separator] if number else []
        for part in (*between, *(word.parts if isinstance(word, Sentence) else (word,))):
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            elif isinstance(part, Figure) or part:
                parts.append(part)
    return Sentence(tuple(parts))


def first_few(words: Sequence[Words]) -> Sentence:
    """The first few of several words, and the number of the others."""
    more = f" and {len(words) - MAX_NAMED} more" if len(words) > MAX_NAMED else ""
    return say(joined(words[:MAX_NAMED], ", "), more)


def recorded(text: str) -> Words:
    """What a run wrote, in which no number has a definition of its own."""
    return Figure("warnings", text) if any(map(str.isdigit, text)) else text


def recorded_clause(text: str) -> Words:
    """What a run wrote, without the full stop."""
    return recorded(text.rstrip("."))


def short(text: Words) -> str:
    """The first line of a text, cut if it is long."""
    line = str(text).strip().partition("\n")[0]
    return line if len(line) <= MAX_SHORT else f"{line[:MAX_SHORT]}…"
