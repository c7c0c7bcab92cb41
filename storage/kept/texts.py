"""Results as JSON and back: dataclasses of numbers, texts and collections, and nothing else.

What is no plain number, text, list or None is an object with one entry, whose name says what it is.
Only classes that the reader names are made again, so a text can ask for no other code.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, cast

import numpy as np

Kinds = Sequence[type]
NUMPY: dict[str, Callable[[Any], Any]] = {
    name: getattr(np, name) for name in ("float64", "float32", "int64", "int32", "bool_")
}


PACKED = "zlib "
"""How a text begins that is packed; none that `written` says begins so."""
LONG = 10_000
"""Characters from which on a text is worth it."""


class NotWritable(ValueError):
    """A value that has no place in such a text."""


def written(value: Any, kinds: Kinds) -> str:
    """Raises `NotWritable` for what cannot be told exactly."""
    return json.dumps(_told(value, {kind.__name__: kind for kind in kinds}), separators=(",", ":"))


def read(text: str, kinds: Kinds) -> Any:
    """Raises `ValueError`, `TypeError` or `RecursionError` for what `written` did not write."""
    return _made(json.loads(text), {kind.__name__: kind for kind in kinds})


def packed(text: str) -> str:
    """A long text in about half as many characters: those of charts would take as much room as all
    that they are drawn from."""
    if len(text) < LONG:
        return text
    # The first level: others take twice as long for a tenth less.
    return PACKED + b64encode(zlib.compress(text.encode(), 1)).decode()


def unpacked(text: str) -> str:
    """The text again; raises `ValueError` for what `packed` did not say."""
    if not text.startswith(PACKED):
        return text
    try:
        return zlib.decompress(b64decode(text[len(PACKED) :])).decode()
    except zlib.error as error:
        raise ValueError(str(error)) from None


def _told(value: Any, kinds: Mapping[str, type]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_told(one, kinds) for one in value]
    if kind is tuple:
        return {"tuple": [_told(one, kinds) for one in value]}
    if kind is dict:
        return {"dict": [[_told(key, kinds), _told(one, kinds)] for key, one in value.items()]}
    name = "bool_" if kind is np.bool_ else kind.__name__
    if isinstance(value, np.generic) and name in NUMPY:
        return {name: value.item()}
    if kinds.get(name) is not kind:
        raise NotWritable(f"{kind.__name__} is not kept")
    if isinstance(value, Enum):
        return {name: value.value}
    if is_dataclass(value):
        return {name: [_told(getattr(value, field.name), kinds) for field in fields(value)]}
    raise NotWritable(f"{kind.__name__} is not kept")


def _made(told: Any, kinds: Mapping[str, type]) -> Any:
    if isinstance(told, list):
        return [_made(one, kinds) for one in told]
    if not isinstance(told, dict):
        return told
    ((name, inner),) = told.items()
    if name == "tuple":
        return tuple(_made(one, kinds) for one in inner)
    if name == "dict":
        return {_made(key, kinds): _made(one, kinds) for key, one in inner}
    if name in NUMPY:
        return NUMPY[name](inner)
    if name not in kinds:
        raise ValueError(f"{name!r} is no kind of result that is kept")
    kind = kinds[name]
    if issubclass(kind, Enum):
        return kind(inner)
    names = [field.name for field in fields(cast(Any, kind))]
    return kind(**dict(zip(names, (_made(one, kinds) for one in inner), strict=True)))
