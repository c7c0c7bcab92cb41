"""Sentences that know which of their words are numbers.

Whoever shows one decides how: the terminal as plain text, a page with every number leading to its
definition.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from string import Formatter
from typing import Any

from breakeven.storage.numbers.recorded import NUMBERS


@dataclass(frozen=True)
class Figure:
    """A number in a sentence: its name in NUMBERS, and how it is written there."""

    name: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Sentence:
    """Words and figures in their order; no two texts stand beside each other."""

    parts: tuple[str | Figure, ...] = ()

    def __str__(self) -> str:
        return "".join(map(str, self.parts))


Words = str | Figure | Sentence


def figure(name: str, value: Any) -> Figure:
    """A value as the registry writes it."""
    return Figure(name, NUMBERS[name].format(value))


def said(template: str, **values: Words) -> Sentence:
    """`{name} is slower by {share}`, with a value for each name."""
    words: list[Words] = []
    for text, name, _format, _conversion in Formatter().parse(template):
        words += [text] if name is None else [text, values[name]]
    return joined(words)


def joined(words: Iterable[Words], separator: str = "") -> Sentence:
    """One sentence of several."""
    parts: list[str | Figure] = []
    for number, one in enumerate(words):
        between = [separator] if number else []
        for part in (*between, *(one.parts if isinstance(one, Sentence) else (one,))):
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            elif isinstance(part, Figure) or part:
                parts.append(part)
    return Sentence(tuple(parts))
