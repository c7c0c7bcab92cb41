"""The base of all specifications: typed fields checked on construction, to JSON and back.

A field that is unknown, missing, ill-typed or against its rule is refused with `InvalidSpec`, which
names the field, the value and the rule.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.bounds import Bounds, bounds_of, check_plain
from breakeven.runner.texts import read_json

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
