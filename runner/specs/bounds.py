"""The range of every number in a specification, and what numbers and texts there can be at all."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from breakeven.runner.errors import InvalidSpec

MAX_STEPS = 100_000_000
EVERY_STEP_IS_KEPT = "every step is a line of the run's journal, and so many would take 20 GB"
FLOAT32_MAX = 3.4e38
NO_LARGER_FLOAT = "float32 holds no larger number"
LARGEST_WHOLE_NUMBER = 2**63 - 1
LONGEST_TEXT = 4096
"""Characters; no path of a file can be longer."""


@dataclass(frozen=True)
class Bounds:
    """The range of a field: `Annotated[int, Bounds(1, 9, "more repeats tell nothing new")]`."""

    least: float
    most: float
    why: str
    """Why there is nothing beyond `most`, to go on after a colon."""
    above: bool = False
    """Whether `least` itself is out of range."""

    def check(self, name: str, value: float | None) -> None:
        """Raises `InvalidSpec` for a value out of range; None has no range."""
        if value is None:
            return
        if value < self.least or (self.above and value == self.least):
            beyond = "above" if self.above else "at least"
            raise InvalidSpec(name, value, f"must be {beyond} {_written(self.least)}")
        if value > self.most:
            raise InvalidSpec(name, value, f"must be at most {_written(self.most)}: {self.why}")


def bounds_of(kind: Any) -> dict[str, Bounds]:
    """The range of each field of a specification that has one, by name."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: entry
        for name, hint in hints.items()
        if get_origin(hint) is Annotated
        for entry in get_args(hint)[1:]
        if isinstance(entry, Bounds)
    }


def check_plain(name: str, value: Any) -> None:
    """Raises `InvalidSpec` for a number or text, at any depth, that no file or database can hold.

    JSON of a stranger may have numbers of 400 digits and halves of characters.
    """
    if isinstance(value, Mapping):
        value = tuple(value.items())
    if isinstance(value, tuple):
        for entry in value:
            check_plain(name, entry)
    elif isinstance(value, str):
        _check_text(name, value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidSpec(name, value, "must be a finite number")
    elif isinstance(value, int) and abs(value) > LARGEST_WHOLE_NUMBER:
        rule = f"must be at most {LARGEST_WHOLE_NUMBER:,}: nothing here holds a larger number"
        raise InvalidSpec(name, value, rule)


def _check_text(name: str, value: str) -> None:
    if len(value) > LONGEST_TEXT:
        raise InvalidSpec(name, value, f"must be at most {LONGEST_TEXT:,} characters")
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InvalidSpec(name, value, "must be text without NUL and halves of characters")


def _written(number: float) -> str:
    """`100,000`, `0.5`, `3.4e+38`."""
    return f"{number:,.0f}" if float(number).is_integer() and number < 1e15 else f"{number:g}"
