"""Reads and writes values as text: numbers, lists, keyword arguments such as `weight_decay=0.01,
betas=(0.9, 0.95), fused=true`, names with settings such as `name:setting=value+setting=value`."""

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from breakeven.runner.errors import InvalidSpec, shown

Options = dict[str, bool | int | float | str | tuple[float, ...]]
"""Keyword arguments of an optimizer, a schedule, a loss or a compiler."""
LARGEST_WHOLE_NUMBER = 2**63 - 1
TRUTHS = {"yes": True, "true": True, "no": False, "false": False}
LONGEST_TEXT = 4096
"""Characters; no path of a file can be longer."""
COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^()]*\))")
PLUS_BEFORE_NAME = re.compile(r"\+(?=[^\W\d][\w.]*(?:=|$))")
"""Separates settings; any other plus sign, as in `g++`, belongs to a value."""
BY_PATH = re.compile(r"([\w./~ -]+\.py|[A-Za-z_]\w*(\.[A-Za-z_]\w*)+):[A-Za-z_]\w*(?=:|$)")
"""A backend by its path, `package.module:attribute` or `path.py:name`: the part before the colon
has a dot, and no `=` follows the name."""


def split_at_commas(text: str) -> list[str]:
    """Splits at commas outside parentheses; empty parts are left out."""
    return list(filter(None, map(str.strip, COMMA_OUTSIDE_PARENTHESES.split(text))))


def split_words(text: str) -> tuple[str, ...]:
    """The words of a command line; raises `ValueError` with a sentence for an open quote."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"{shown(text)} cannot be read: {error}") from None


def parse_options(text: str) -> Options:
    """The values by name; raises `ValueError` with the reason in a sentence."""
    options: Options = {}
    for part in split_at_commas(text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name.isidentifier() and equals and value):
            raise ValueError(f"{part!r} must read name=value; several are separated by commas")
        if name in options:
            raise ValueError(f"{name!r} is given twice")
        options[name] = read_value(value)
    return options


def write_options(options: Options) -> str:
    """The text that `parse_options` reads."""
    return ", ".join(f"{name}={_written(value)}" for name, value in options.items())


def read_value(text: str) -> bool | int | float | str | tuple[float, ...]:
    """A number, `true` or `false`, several numbers in parentheses, or else text.

    Raises `ValueError` with the reason in a sentence.
    """
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("(") != text.endswith(")"):
        raise ValueError(f"{text!r} has an unmatched parenthesis")
    if text.startswith("("):
        numbers = [_number(part.strip()) for part in text[1:-1].split(",") if part.strip()]
        if not numbers or any(number is None for number in numbers):
            raise ValueError(f"{text!r} must be numbers separated by commas")
        return tuple(number for number in numbers if number is not None)
    number = _number(text)
    return text if number is None else number


def read_whole_number(text: str) -> int:
    """Raises `ValueError` with a sentence for anything but a whole number written in digits."""
    number = _number(text)
    if not isinstance(number, int):
        raise ValueError(f"{shown(text)} must be a whole number, written in digits")
    return number


def read_number(text: str) -> float:
    """Raises `ValueError` with a sentence for anything but a finite number."""
    number = _number(text)
    if number is None:
        raise ValueError(f"{shown(text)} must be a number, such as 0.001 or 1e-3")
    return float(number)


def read_truth(text: str) -> bool:
    """Raises `ValueError` with a sentence for anything but yes, no, true or false."""
    if text not in TRUTHS:
        raise ValueError(f"{shown(text)} must be yes or no")
    return TRUTHS[text]


def _number(text: str) -> int | float | None:
    """None for other text; raises `ValueError` for a number that is too large or not finite."""
    kinds: tuple[Callable[[str], int | float], ...] = (int, float)
    for kind in kinds:
        try:
            number = kind(text)
        except ValueError:
            continue
        if isinstance(number, int) and abs(number) > LARGEST_WHOLE_NUMBER:
            raise ValueError(f"{shown(text)} must be at most {LARGEST_WHOLE_NUMBER:,}")
        if not math.isfinite(number):
            raise ValueError(f"{shown(text)} is not a finite number")
        return number
    return None


def _written(value: bool | int | float | str | tuple[float, ...]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(str, value))})"
    return str(value)


def parse_settings(text: str, field: str, *, dotted: bool = False) -> tuple[str, Options]:
    """Name and settings; raises `InvalidSpec` for the field if a setting is not `name=value`.

    `dotted`: whether names of settings may have several parts, as in `triton.cudagraphs`, and
    whether the name may be a backend's path.
    """
    path = BY_PATH.match(text) if dotted else None
    name = path[0] if path else text.partition(":")[0]
    settings = text[len(name) + 1 :]
    options: Options = {}
    for setting in filter(None, PLUS_BEFORE_NAME.split(settings)):
        key, equals, value = setting.partition("=")
        rule = f"the setting {setting!r} must read name=value; several are joined by '+'"
        rule += "; a path reads package.module:attribute" if dotted and not equals else ""
        is_name = all(map(str.isidentifier, key.split(".") if dotted else [key]))
        if not (is_name and equals and value):
            raise InvalidSpec(field, text, rule)
        try:
            options[key] = read_value(value)
        except ValueError as error:
            raise InvalidSpec(field, text, str(error)) from None
    return name, options


def nearest(value: object, known: Iterable[str]) -> str:
    """End of a sentence with the known word nearest to a mistyped one; empty if none is near."""
    matches = get_close_matches(str(value), list(known), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


OWN_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_VISIBLE_DEVICES")
"""Variables that Breakeven sets in each run: its compile caches, so that no run finds what another
one compiled, and the devices for which it has the turn."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
"""The beginning of an environment variable's assignment."""


def check_variables(field: str, variables: tuple[str, ...]) -> None:
    """Raises `InvalidSpec` for the field unless these are environment variables, `NAME=VALUE`, that
    a run may set."""
    names = [text.partition("=")[0] for text in variables]
    if not all(map(VARIABLE.match, variables)) or len(set(names)) < len(names):
        raise InvalidSpec(field, variables, "must read NAME=VALUE, each name once")
    for name in names:
        if name.startswith("BREAKEVEN_") or name in OWN_VARIABLES:
            rule = f"must not set what Breakeven itself sets: leave {name} out"
            raise InvalidSpec(field, variables, rule)


def check_plain(name: str, value: Any) -> None:
    """Raises `InvalidSpec` for a number or text, at any depth, that no file or database can hold.

    Foreign JSON may have numbers of 400 digits and lone surrogates.
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
        rule = f"must be at most {LARGEST_WHOLE_NUMBER:,}: larger numbers cannot be stored"
        raise InvalidSpec(name, value, rule)


def _check_text(name: str, value: str) -> None:
    if len(value) > LONGEST_TEXT:
        raise InvalidSpec(name, value, f"must be at most {LONGEST_TEXT:,} characters")
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InvalidSpec(name, value, "must be valid Unicode without NUL")


class Margin(NamedTuple):
    """The largest difference of outcomes that counts as as good."""

    amount: float
    is_share: bool
    """Whether it is a share of the loss; else it is one of accuracy, or of the loss itself."""


def parse_margin(text: str) -> Margin:
    """Reads `1%` or `0.005`; raises `ValueError`."""
    number = text.strip()
    is_share = number.endswith("%")
    try:
        amount = float(number.removesuffix("%")) / (100 if is_share else 1)
    except ValueError:
        amount = math.nan
    if not 0 < amount < 1:
        raise ValueError(
            "must be a share of the loss, such as 1%, or a difference of accuracies, such as "
            "0.005; both above 0 and below 100 %"
        )
    return Margin(amount, is_share)
