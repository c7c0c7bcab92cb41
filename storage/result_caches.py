"""Caches: answers in the memory of this process, and results of experiments in the index.

The memo holds answers until their inputs change: pages are drawn again at every click and for every
reader, mostly from unchanged data.

A stored result of a finished experiment is valid if the same code computed it from the same
revision of the experiment; else it is computed again. Results are JSON of dataclasses, numbers,
texts, collections, and frames of numbers. A value that is no plain number, text, list or None is an
object with one entry, whose key is its type; that of a frame has the bytes of its columns as texts.
Reading creates only classes that the caller names, so the index of a copied data folder cannot run
code.
"""

import base64
import hashlib
import json
import pickle
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache, partial, wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.runner.project import PACKAGE
from breakeven.runner.protocol.states import RunState
from breakeven.storage.index.store import Store

MAX_BYTES = 32_000_000
"""Limit of all answers; the series of one experiment with six runs of 10,000 steps, and the results
computed from them, fit."""
ENTRY_BYTES = 1000
"""Bytes of an answer in addition to its content."""
RECORD_BYTES = 10_000
"""Bytes of a record in addition to its frames: texts and dictionaries."""
FRAME_BYTES = 15_000
"""Bytes of a frame in addition to its numbers: objects for columns, blocks and indexes."""

FINAL_STATES = [state.value for state in RunState if state.is_final]

MAX_DEPTH = 4
"""Depth to which records are searched for frames."""
FRAMES = (pd.DataFrame, pd.Series)
WITHOUT_FRAMES = (bytes, str, int, float, type(None))

T = TypeVar("T")
Ask = TypeVar("Ask", bound=Callable[..., Any])
Version = Callable[..., Hashable]


class Revision(NamedTuple):
    """Identifies the state of an experiment; each change makes a new revision."""

    newest: int
    """Number of the newest write to any of its runs, or to an ended investigation of one, whose
    answer changes verdicts; the numbers ascend."""
    num_runs: int
    """Number of runs, which shows removed runs."""


@dataclass(frozen=True)
class Snapshot:
    """The state of an experiment in the store."""

    revision: Revision
    states: frozenset[str]
    """States of its runs."""


def memo(version: Version, *, shared: bool = False) -> Callable[[Ask], Ask]:
    """Caches a function in memory as long as `version` of its arguments is the same.

    Arguments must be hashable; a store counts by its `id`. A frame is stored as bytes, so that each
    caller gets its own copy: an object takes several times the memory, and 48 kB per column for
    pandas' references. Callers must not change other answers, nor any of a `shared` function.
    """

    def remembering(ask: Ask) -> Ask:
        @wraps(ask)
        def answer(*args: Any, **options: Any) -> Any:
            values = tuple(value.id if isinstance(value, Store) else value for value in args)
            return remembered(
                (ask, values, tuple(sorted(options.items()))),
                partial(version, *args, **options),
                partial(ask, *args, **options),
                shared=shared,
            )

        return cast(Ask, answer)

    return remembering


def remembered(
    key: Hashable,
    version: Callable[[], Hashable],
    compute: Callable[[], T],
    *,
    shared: bool = False,
) -> T:
    """The answer of `compute`, cached under `key` as `memo` does."""
    return cast(T, _memory.get(key, version, compute, shared))


def forget() -> None:
    """Removes all answers."""
    _memory.clear()


def generation(store: Store, *args: Any, **options: Any) -> Hashable:
    """The version of answers that depend on all data of a store."""
    return store.generation


def always(*args: Any, **options: Any) -> Hashable:
    """The version of answers that never change."""
    return None


def revision(store: Store, experiment_id: str, *args: Any, **options: Any) -> Revision:
    """The version of answers that depend on one experiment."""
    return snapshot_of(store, experiment_id).revision


@memo(generation)
def snapshot_of(store: Store, experiment_id: str) -> Snapshot:
    """The state of an experiment after the last ingest."""
    query = """SELECT coalesce(max(revision), 0), count(*), list(DISTINCT state)
        FROM progress WHERE starts_with(run_id, $1)"""
    newest, num_runs, states = store.rows(query, [f"{experiment_id}."])[0]
    investigated = """SELECT coalesce(max(revision), 0) FROM runs JOIN progress USING (run_id)
        WHERE starts_with(investigates, $1) AND list_contains($2, state)"""
    ((answered,),) = store.rows(investigated, [f"{experiment_id}.", FINAL_STATES])
    return Snapshot(Revision(max(newest, answered), int(num_runs)), frozenset(states or ()))


class _Packed(bytes):
    """A pickled frame."""


@dataclass
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Makes other threads wait for the same answer instead of computing it again."""
    is_known: bool = False
    version: Hashable = None
    value: Any = None
    size: int = ENTRY_BYTES


class _Memory:
    """All answers; the last one was used most recently."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._num_bytes = 0

    def get(
        self,
        key: Hashable,
        version_now: Callable[[], Hashable],
        compute: Callable[[], Any],
        shared: bool,
    ) -> Any:
        with self._lock:
            if key not in self._entries:
                self._entries[key] = _Entry()
                self._num_bytes += ENTRY_BYTES
            entry = self._entries[key]
            self._entries.move_to_end(key)
        with entry.lock:
            # Version before the query: rows that arrive during the query count as new next time.
            version = version_now()
            if entry.is_known and entry.version == version:
                return _unpacked(entry.value)
            value = compute()
            is_packed = isinstance(value, pd.DataFrame) and not shared  # protocol 5 copies least
            entry.value = _Packed(pickle.dumps(value, 5)) if is_packed else value
            entry.version, entry.is_known = version, True
            self._keep(key, entry)
            return value

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._num_bytes = 0

    def _keep(self, key: Hashable, latest: _Entry) -> None:
        """Removes the least recently used answers, but never the latest one: its query may have
        used other answers, which would then be newer."""
        size = ENTRY_BYTES + _size(latest.value)
        with self._lock:
            before = self._entries.pop(key, None)
            self._num_bytes += size - (before.size if before else 0)
            latest.size = size
            self._entries[key] = latest
            while self._num_bytes > MAX_BYTES and len(self._entries) > 1:
                _, oldest = self._entries.popitem(last=False)
                self._num_bytes -= oldest.size


_memory = _Memory()


def _unpacked(value: Any) -> Any:
    return pickle.loads(value) if isinstance(value, _Packed) else value


def _frames(value: Any, depth: int = MAX_DEPTH) -> Iterator[pd.DataFrame | pd.Series]:
    """Frames in a record, in its parts, and in collections of records."""
    if isinstance(value, FRAMES):
        yield value
    elif depth:
        sequence = value if isinstance(value, list | tuple) else ()
        named = value if isinstance(value, dict) else getattr(value, "__dict__", {})
        for part in (*sequence, *named.values()):
            if not isinstance(part, WITHOUT_FRAMES):
                yield from _frames(part, depth - 1)


def _size(value: Any) -> int:
    """Approximate bytes; for records rather too many, because shared parts count repeatedly."""
    if isinstance(value, FRAMES):
        return FRAME_BYTES + 8 * int(value.size)
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    if isinstance(value, WITHOUT_FRAMES):
        return sys.getsizeof(value)
    return RECORD_BYTES + sum(map(_size, _frames(value)))


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
            now = snapshot_of(store, experiment_id)
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
    results = {}
    for experiment, newest, num_runs, content in store.stored_results(
        name, code_version(), experiment_id
    ):
        # Even a correct result may be nested more deeply than this Python reads.
        with suppress(ValueError, TypeError, RecursionError):
            result = read(content, kinds)
            if result is None or not kinds or isinstance(result, kinds[0]):
                results[experiment, Revision(newest, num_runs)] = result
    return results


@cache
def code_version() -> str:
    """Hash of all code that can change a result: reading of specifications and folders, views of
    the database, queries, statistics, and versions of libraries."""
    numbers = [f"{name} {version(name)}" for name in LIBRARIES]
    return hashlib.sha256("\n".join([hash_of(), *numbers]).encode()).hexdigest()


def hash_of(root: Path = PACKAGE) -> str:
    """Hash of the sources of `storage/` and of `runner/` without `worker/` and `commands/`."""
    content_hash = hashlib.sha256()
    for package in ("storage", "runner"):
        for file in sorted((root / package).rglob("*")):
            parts = file.relative_to(root).parts
            if file.suffix in (".py", ".sql") and parts[1] not in ("worker", "commands"):
                content_hash.update(f"{'/'.join(parts)}\n".encode() + file.read_bytes())
    return content_hash.hexdigest()


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
        return [_as_json(part, kinds) for part in value]
    if kind is tuple:
        return {"tuple": [_as_json(part, kinds) for part in value]}
    if kind is dict:
        pairs = [[_as_json(key, kinds), _as_json(part, kinds)] for key, part in value.items()]
        return {"dict": pairs}
    name = "bool_" if kind is np.bool_ else kind.__name__
    if isinstance(value, np.generic) and name in NUMPY:
        return {name: value.item()}
    if kind is pd.DataFrame:
        return {"frame": [[name, *_packed(value[name])] for name in value.columns]}
    if kinds.get(name) is not kind:
        raise NotStorable(f"a result has no place for {kind.__name__}")
    if isinstance(value, Enum):
        return {name: value.value}
    if is_dataclass(value):
        return {name: [_as_json(getattr(value, field.name), kinds) for field in fields(value)]}
    raise NotStorable(f"a result has no place for {kind.__name__}")


def _packed(column: pd.Series) -> tuple[str, str]:
    """The type of a column's numbers, and their bytes as text."""
    numbers = column.to_numpy()
    if numbers.dtype.kind not in "iuf":
        raise NotStorable(f"a result has no place for a column of {numbers.dtype}")
    return numbers.dtype.str, base64.b64encode(numbers.tobytes()).decode()


def _numbers(kind: str, text: str) -> NDArray[Any]:
    """The numbers of `_packed`; raises `ValueError` or `TypeError` for others."""
    numbers = np.frombuffer(base64.b64decode(text), np.dtype(kind))
    if numbers.dtype.kind not in "iuf":
        raise ValueError(f"{kind!r} is no kind of number")
    return numbers.copy()


def _from_json(content: Any, kinds: Mapping[str, type]) -> Any:
    if isinstance(content, list):
        return [_from_json(part, kinds) for part in content]
    if not isinstance(content, dict):
        return content
    ((name, inner),) = content.items()
    if name == "tuple":
        return tuple(_from_json(part, kinds) for part in inner)
    if name == "dict":
        return {_from_json(key, kinds): _from_json(part, kinds) for key, part in inner}
    if name in NUMPY:
        return NUMPY[name](inner)
    if name == "frame":
        return pd.DataFrame({name: _numbers(kind, text) for name, kind, text in inner})
    if name not in kinds:
        raise ValueError(f"{name!r} is no kind of this result")
    kind = kinds[name]
    if issubclass(kind, Enum):
        return kind(inner)
    names = [field.name for field in fields(cast(Any, kind))]
    return kind(**dict(zip(names, (_from_json(part, kinds) for part in inner), strict=True)))
