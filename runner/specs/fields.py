"""How a specification declares its fields: type, range, text, to JSON and back."""

import ast
import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from textwrap import dedent
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.texts import read_json

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


Options = dict[str, bool | int | float | str | tuple[float, ...]]
"""Keyword arguments of something that is named beside them."""

UNKNOWN_FIELD = "is not a field of"


@cache
def _type_hints(kind: Any) -> dict[str, Any]:
    """Types by field name; finding them anew for each specification would dominate reading it."""
    return get_type_hints(kind)


@cache
def _bounds(kind: Any) -> dict[str, Bounds]:
    return bounds_of(kind)


@cache
def _required(kind: Any) -> list[str]:
    """Names of the fields without a default."""
    return [
        one.name
        for one in fields(kind)
        if one.default is MISSING and one.default_factory is MISSING
    ]


class Spec:
    """Base of all specifications: checks types, bounds and rules on construction, reads and writes
    JSON.

    A part of an experiment says how its fields are called there: `class DataSpec(Spec,
    path="data.")`.
    """

    _path = ""

    def __init_subclass__(cls, path: str = "") -> None:
        cls._path = path

    def __post_init__(self) -> None:
        for name, hint in _type_hints(type(self)).items():  # type: ignore[arg-type]
            _check_type(self._path + name, getattr(self, name), hint)
        for name, bounds in _bounds(type(self)).items():  # type: ignore[arg-type]
            bounds.check(self._path + name, getattr(self, name))
        self.check_rules()

    def check_rules(self) -> None:
        """Raises `InvalidSpec` for the first field whose value breaks its rule."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote; raises `InvalidSpec` for anything else."""
        try:
            content = read_json(text)
        except ValueError as error:  # not JSON, or a whole number of thousands of digits
            raise InvalidSpec(
                cls.__name__, text[:80], f"is not JSON that can be read: {error}"
            ) from None
        return cls.from_dict(content)

    @classmethod
    def from_dict(cls, content: Any, path: str = "") -> Self:
        """Builds the specification from plain values; fields left out take their defaults."""
        if not isinstance(content, Mapping):
            raise InvalidSpec(path or cls.__name__, content, "must be an object of named fields")
        hints = _type_hints(cls)  # type: ignore[arg-type]
        unknown = set(content) - set(hints)
        if unknown:
            name = min(unknown)
            rule = f"{UNKNOWN_FIELD} {cls.__name__}; its fields are {', '.join(hints)}"
            raise InvalidSpec(path + name, content[name], rule)
        values = {
            name: _from_plain(value, hints[name], name, path) for name, value in content.items()
        }
        for name in _required(cls):  # type: ignore[arg-type]
            require(name in content, path + name, None, "is required")
        try:
            return cls(**values)
        except InvalidSpec as error:
            if path and not error.field.startswith(path):
                raise InvalidSpec(path + error.field, error.value, error.rule) from None
            raise


def _from_plain(value: Any, hint: Any, name: str, path: str) -> Any:
    if isinstance(hint, type) and issubclass(hint, Spec):
        if isinstance(value, hint):
            return value
        return hint.from_dict(value, path=f"{name}.")
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(value)
    if get_origin(hint) is dict and isinstance(value, Mapping):
        return {key: tuple(v) if isinstance(v, list) else v for key, v in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        check_plain(path + name, value)  # a float holds no number of 400 digits
        return float(value)
    return value


def _check_type(name: str, value: Any, hint: Any) -> None:
    if not _has_type(value, hint):
        raise InvalidSpec(name, value, f"must be {_type_name(hint)}")
    check_plain(name, value)


def _has_type(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin in (UnionType, Union):
        return any(_has_type(value, option) for option in get_args(hint))
    if origin is tuple:
        item = get_args(hint)[0]
        return isinstance(value, tuple) and all(_has_type(entry, item) for entry in value)
    if origin is dict:
        _, item = get_args(hint)
        return isinstance(value, dict) and all(
            isinstance(key, str) and _has_type(entry, item) for key, entry in value.items()
        )
    if hint in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if hint is float else hint)


def _type_name(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if origin in (UnionType, Union):
        return " or ".join(map(_type_name, get_args(hint)))
    if origin is tuple:
        return f"a list of {_type_name(get_args(hint)[0])}"
    if origin is dict:
        return f"named values, each {_type_name(get_args(hint)[1])}"
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return "null" if hint is NoneType else names.get(hint, hint.__name__)


def require(condition: bool, name: str, value: Any, rule: str) -> None:
    """Raises `InvalidSpec` for the field `name` unless the condition holds."""
    if not condition:
        raise InvalidSpec(name, value, rule)


@cache
def field_texts(kind: type[Spec]) -> dict[str, str]:
    """The documented fields of a specification with their texts, on one line each; those that it
    has from another specification first."""
    classes = [one for one in reversed(kind.__mro__) if one not in (Spec, object)]
    return {name: text for one in classes for name, text in _own_texts(one).items()}


def _own_texts(kind: Any) -> dict[str, str]:
    (definition,) = ast.parse(dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
