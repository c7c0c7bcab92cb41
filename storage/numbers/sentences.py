"""Sentences from templates. A sentence records which of its words are numbers: the terminal prints
plain text, a page and a report link every number to its definition.

A template has slots, figures and options:

    {run}                 a text, a sentence, or a list of texts
    {seconds:step_seconds}  a number, written as the registry NUMBERS writes it: a figure
    {count:,}             a number in a format of Python
    {reason:recorded}     what a run wrote, without the full stop; a figure if it has a number
    {kernel:short}        the first line of a text, cut if it is long
    [step {step:,}](step)   words that are a figure of this name in NUMBERS
    <: {reason}>          words that are left out where one of their slots is empty, or 0
    <{is_code:?}code>     words that are left out unless `is_code` alone; with `:!` if `is_code`
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import Any

from breakeven.storage.numbers.formats import format_text, format_verdict
from breakeven.storage.numbers.metrics import NUMBERS

MAX_NAMED = 3
"""Largest number of functions, operations or processes in one sentence."""
MAX_SHORT = 90
TOKEN = re.compile(r"\{(\w+)(?::([^{}]+))?\}|\]\((\w+)\)|([\[<>])")


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
Facts = Mapping[str, Any]
Prepare = Callable[[Facts], Facts]
"""Adds slots to facts."""


def figure(name: str, value: Any) -> Figure:
    """A value as the registry writes it; raises TypeError where a number is no number."""
    write = NUMBERS[name].format
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    is_right = isinstance(value, str) if write in (format_text, format_verdict) else is_number
    if value is not None and not is_right:
        raise TypeError(f"{name} is {value!r}, which is no number")
    return Figure(name, write(value))


def fill(template: str, /, **slots: Any) -> Sentence:
    """The sentence of a template; raises TypeError for a slot of another type, and KeyError for a
    slot without a value."""
    return joined(_filled(_parsed(template), slots))


def prepared(template: str, facts: Facts, prepare: Prepare | None) -> Sentence:
    """The sentence of a template whose slots are facts and what is made of them."""
    return fill(template, **{**facts, **(prepare(facts) if prepare else {})})


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


def say(*words: Words) -> Sentence:
    """The sentence of these words, without a space between them."""
    return joined(words)


def first_few(words: Sequence[Words]) -> Sentence:
    """The first few of several words, and the number of the others."""
    more = f" and {len(words) - MAX_NAMED} more" if len(words) > MAX_NAMED else ""
    return say(joined(words[:MAX_NAMED], ", "), more)


def recorded_clause(text: str) -> Words:
    """What a run wrote, without the full stop."""
    return recorded(text.rstrip("."))


def recorded(text: str) -> Words:
    """What a run wrote, in which no number has a definition of its own."""
    return Figure("warnings", text) if any(map(str.isdigit, text)) else text


def short(text: Words) -> str:
    """The first line of a text, cut if it is long."""
    line = str(text).strip().partition("\n")[0]
    return line if len(line) <= MAX_SHORT else f"{line[:MAX_SHORT]}…"


TEXTS: dict[str | None, Callable[[Words], Words]] = {
    None: lambda text: text,
    "recorded": lambda text: recorded(str(text).rstrip(".")),
    "short": short,
}
"""Types of slots for texts."""


@dataclass(frozen=True)
class _Slot:
    name: str
    type: str | None
    """None for a text."""

    def fill(self, value: Any) -> Words:
        if self.is_condition:
            return ""
        if self.type is None and isinstance(value, list | tuple):
            return joined(map(self.fill, value), ", ")
        if self.type in TEXTS:
            if not isinstance(value, str | Figure | Sentence):
                raise TypeError(f"{self.name} is {value!r}, which is no text")
            return TEXTS[self.type](value)
        if self.type in NUMBERS:
            return figure(self.type, value)
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{self.name} is {value!r}, which is no number")
        return format(value, self.type or "").replace("%", " %")

    @property
    def is_condition(self) -> bool:
        return self.type in ("?", "!")

    def is_empty(self, value: Any) -> bool:
        """Whether an option with this slot is left out."""
        if self.type == "!":
            return bool(value)
        return value == Sentence() if isinstance(value, Sentence) else not value


@dataclass(frozen=True)
class _Span:
    """Words that belong together."""

    figure: str | None
    """Its name in NUMBERS; None for an option."""
    inside: "tuple[_Part, ...]"


_Part = str | _Slot | _Span


@cache
def _parsed(template: str) -> tuple[_Part, ...]:
    open_spans: list[list[_Part]] = [[]]
    at = 0
    for found in TOKEN.finditer(template):
        open_spans[-1].append(template[at : found.start()])
        at = found.end()
        slot, type, name, sign = found.groups()
        if slot:
            open_spans[-1].append(_Slot(slot, type))
        elif sign in ("[", "<"):
            open_spans.append([])
        else:
            inside = tuple(open_spans.pop())
            open_spans[-1].append(_Span(name, inside))
    (parts,) = open_spans
    return (*parts, template[at:])


def _filled(parts: Iterable[_Part], slots: Mapping[str, Any]) -> Iterator[Words]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, _Slot):
            yield part.fill(slots[part.name])
        elif part.figure is not None:
            yield Figure(part.figure, str(joined(_filled(part.inside, slots))))
        else:
            mine = list(_slots(part.inside))
            conditions = [slot for slot in mine if slot.is_condition] or mine
            if not any(slot.is_empty(slots[slot.name]) for slot in conditions):
                yield from _filled(part.inside, slots)


def _slots(parts: Iterable[_Part]) -> Iterator[_Slot]:
    """Slots of an option, without the slots of options in it."""
    for part in parts:
        if isinstance(part, _Slot):
            yield part
        elif isinstance(part, _Span) and part.figure is not None:
            yield from _slots(part.inside)
