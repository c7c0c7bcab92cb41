"""JSON from a file that anybody may have written: what no database, clock or page could hold is no
value, but an error."""

import json
import math
from typing import Any

MAX_WHOLE = 2**63 - 1
"""Largest whole number that the database and the trainings can hold."""
MAX_DEPTH = 50


def parse(text: str) -> Any:
    """The value that the text stands for; raises `ValueError` that says what is wrong with it."""
    try:
        content = json.loads(
            text, parse_int=_whole, parse_float=_finite, parse_constant=_no_constant
        )
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep") from None
    _check(content)
    return content


def _check(content: Any) -> None:
    level = [content]
    for _ in range(MAX_DEPTH):
        for text in level:
            if isinstance(text, str):
                _check_text(text)
        nested = [one for one in level if isinstance(one, (dict, list))]
        level = [part for one in nested for part in one]
        level += [part for one in nested if isinstance(one, dict) for part in one.values()]
        if not level:
            return
    raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")


def _check_text(text: str) -> None:
    if "\0" in text:
        raise ValueError("it holds the character NUL")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # JSON can write the lone half of a surrogate pair, which then nothing can print or store.
        raise ValueError(f"it holds half a character, {text[error.start]!a}") from None


def _whole(digits: str) -> int:
    # int() takes ever longer, and gives up at 4,300 digits.
    number = int(digits) if len(digits) < 20 else MAX_WHOLE + 1
    if abs(number) > MAX_WHOLE:
        raise ValueError(f"the number {digits[:20]} is too large ({len(digits)} digits)")
    return number


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:20]} is too large")
    return number


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
