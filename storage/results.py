"""Caches computed results of finished experiments in the index.

A stored result is valid if the same code computed it from the same revision of the experiment; else
it is computed again. Results are JSON of dataclasses, numbers, texts and collections. A value that
is no plain number, text, list or None is an object with one entry, whose key is its type. Reading
creates only classes that the caller names, so the index of a copied data folder cannot run code.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from breakeven.runner.folders.states import RunState
from breakeven.runner.project import PACKAGE
from breakeven.storage.index.store import Store
from breakeven.storage.memo import Revision, standing

T = TypeVar("T")
LIBRARIES = ("duckdb", "numpy", "pandas", "scipy")
NUMPY: dict[str, Callable[[Any], Any]] = {
    name: getattr(np, name) for name in ("float64", "float32", "int64", "int32", "bool_")
}


class NotStorable(ValueError):
    """A value that cannot be stored in a result."""


Compute: TypeAlias = Callable[[Store, str], T]


def stored(name: str, *kinds: type) -> Callable[[Compute[T]], Compute[T]]:
    """Caches a function of an experiment in the index, for all processes.

    `kinds`: the class of the result, unless it is None, and all classes in it, except numbers,
    texts and collections.
    """

    def storing(compute: Compute[T]) -> Compute[T]:
        @wraps(compute)
        def result(store: Store, experiment_id: str) -> T:
            # The revision before the computation: later rows count as new the next time.
            now = standing(store, experiment_id)
            # The result of a running experiment would soon be outdated.
            if any(RunState(state).is_active for state in now.states):
                return compute(store, experiment_id)
            known = read_stored(store, name, kinds, experiment_id)
            if (experiment_id, now.revision) in known:
                return cast(T, known[experiment_id, now.revision])
            computed = compute(store, experiment_id)
            with suppress(NotStorable, RecursionError):
                content = written(computed, kinds)
                store.store_result(experiment_id, name, now.revision, code_version(), content)
            return computed

        return result

    return storing


def read_stored(
    store: Store, name: str, kinds: Sequence[type], experiment_id: str | None = None
) -> dict[tuple[str, Revision], Any]:
    """Stored results with this name, of one experiment or of all, by experiment and revision."""
    found = {}
    for one, newest, num_runs, content in store.stored_results(name, code_version(), experiment_id):
        # Even a correct result may be nested more deeply than this Python reads.
        with suppress(ValueError, TypeError, RecursionError):
            result = read(content, kinds)
            if result is None or not kinds or isinstance(result, kinds[0]):
                found[one, Revision(newest, num_runs)] = result
    return found


@cache
def code_version() -> str:
    """Hash of all code that can change a result: reading of specifications and folders, views of
    the database, queries, statistics, and versions of libraries."""
    numbers = [f"{name} {version(name)}" for name in LIBRARIES]
    return hashlib.sha256("\n".join([hash_of(), *numbers]).encode()).hexdigest()


def hash_of(root: Path = PACKAGE) -> str:
    """Hash of the sources of `storage/` and of `runner/` without `worker/` and `commands/`."""
    whole = hashlib.sha256()
    for house in ("storage", "runner"):
        for file in sorted((root / house).rglob("*")):
            parts = file.relative_to(root).parts
            if file.suffix in (".py", ".sql") and parts[1] not in ("worker", "commands"):
                whole.update(f"{'/'.join(parts)}\n".encode() + file.read_bytes())
    return whole.hexdigest()


def written(value: Any, kinds: Sequence[type]) -> str:
    """The value as JSON text; raises `NotStorable` for a value that JSON cannot store exactly."""
    by_name = {kind.__name__: kind for kind in kinds}
    return json.dumps(_as_json(value, by_name), separators=(",", ":"))


def read(text: str, kinds: Sequence[type]) -> Any:
    """Reads a text of `written`; raises `ValueError`, `TypeError` or `RecursionError` otherwise."""
    return _from_json(json.loads(text), {kind.__name__: kind for kind in kinds})


def _as_json(value: Any, kinds: Mapping[str, type]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_as_json(one, kinds) for one in value]
    if kind is tuple:
        return {"tuple": [_as_json(one, kinds) for one in value]}
    if kind is dict:
        pairs = [[_as_json(key, kinds), _as_json(one, kinds)] for key, one in value.items()]
        return {"dict": pairs}
    name = "bool_" if kind is np.bool_ else kind.__name__
    if isinstance(value, np.generic) and name in NUMPY:
        return {name: value.item()}
    if kinds.get(name) is not kind:
        raise NotStorable(f"a result has no place for {kind.__name__}")
    if isinstance(value, Enum):
        return {name: value.value}
    if is_dataclass(value):
        return {name: [_as_json(getattr(value, one.name), kinds) for one in fields(value)]}
    raise NotStorable(f"a result has no place for {kind.__name__}")


def _from_json(content: Any, kinds: Mapping[str, type]) -> Any:
    if isinstance(content, list):
        return [_from_json(one, kinds) for one in content]
    if not isinstance(content, dict):
        return content
    ((name, inner),) = content.items()
    if name == "tuple":
        return tuple(_from_json(one, kinds) for one in inner)
    if name == "dict":
        return {_from_json(key, kinds): _from_json(one, kinds) for key, one in inner}
    if name in NUMPY:
        return NUMPY[name](inner)
    if name not in kinds:
        raise ValueError(f"{name!r} is no kind of this result")
    kind = kinds[name]
    if issubclass(kind, Enum):
        return kind(inner)
    names = [one.name for one in fields(cast(Any, kind))]
    return kind(**dict(zip(names, (_from_json(one, kinds) for one in inner), strict=True)))
