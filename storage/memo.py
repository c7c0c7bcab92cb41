"""The memo: answers are remembered, in this process, until what they depend on changes.

Pages are drawn again at every click and for every reader, mostly from what has not changed.
"""

import pickle
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast
from weakref import ref

import pandas as pd

from breakeven.storage.index.store import Store

MAX_BYTES = 32_000_000
"""Of all answers, so that the series of one experiment of six runs and 10,000 steps fit, and what
is made of them."""
ENTRY_BYTES = 1000
"""Bytes of an answer in addition to its content."""
RECORD_BYTES = 10_000
"""Bytes of a record in addition to its frames: texts and dictionaries."""
FRAME_BYTES = 15_000
"""Bytes of a frame in addition to its numbers: columns, blocks and indexes are objects, however few
the rows."""
MAX_ANSWERS = 50
"""Of the same record with frames: pandas notes every look at a column with the column, until there
are 500 notes."""

MAX_DEPTH = 4
"""Of frames in the parts of parts of records."""

Ask = TypeVar("Ask", bound=Callable[..., Any])
Version = Callable[..., Hashable]


class Revision(NamedTuple):
    """Differs from every earlier one if anything of an experiment has changed since."""

    newest: int
    """The newest write to any of its runs: a write has a number above all earlier ones."""
    num_runs: int
    """A run that is gone makes them fewer."""


@dataclass(frozen=True)
class Snapshot:
    """How an experiment stands in the store."""

    revision: Revision
    states: frozenset[str]
    """Those of its runs."""


def memo(version: Version, *, shared: bool = False) -> Callable[[Ask], Ask]:
    """The function, answering from memory as long as `version` of its arguments is the same.

    Arguments must be hashable; a store counts as itself. A frame is kept as bytes, so that each
    answer is the caller's own to change: as an object it takes several times the memory, and 48 kB
    a column for pandas' notes on who looked at it. Other answers, and all of a function that is
    `shared`, are only to be looked at.
    """

    def remembering(ask: Ask) -> Ask:
        @wraps(ask)
        def answer(*args: Any, **options: Any) -> Any:
            return _memory.get(ask, version, args, options, shared)

        return cast(Ask, answer)

    return remembering


def at_hand(ask: Callable[..., Any], version: Version, *args: Any) -> Any:
    """What such a function answers from memory; None if it would have to ask."""
    return _unpacked(_memory.known(ask, version, args))


def forget() -> None:
    """Forgets all answers."""
    _memory.clear()


def generation(store: Store, *args: Any, **options: Any) -> Hashable:
    """The version of what depends on all that a store has taken in."""
    return store.generation


def always(*args: Any, **options: Any) -> Hashable:
    """The version of what never changes."""
    return None


def revision(store: Store, experiment_id: str, *args: Any, **options: Any) -> Revision:
    """The version of what depends on one experiment."""
    return standing(store, experiment_id).revision


@memo(generation)
def standing(store: Store, experiment_id: str) -> Snapshot:
    """As of what the store took in last."""
    query = """SELECT coalesce(max(revision), 0), count(*), list(DISTINCT state)
        FROM progress WHERE starts_with(run_id, $1)"""
    newest, num_runs, states = store.rows(query, [f"{experiment_id}."])[0]
    return Snapshot(Revision(int(newest), int(num_runs)), frozenset(states or ()))


class _Packed(bytes):
    """A frame."""


@dataclass
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Who wants the same meanwhile waits for it, rather than asking again."""
    is_known: bool = False
    version: Hashable = None
    value: Any = None
    size: int = ENTRY_BYTES
    answers_left: float = 0
    """Of a record with frames, until it is made anew."""

    def answers(self, version: Hashable) -> bool:
        return self.is_known and self.version == version and self.answers_left > 0


class _Memory:
    """All answers, the last used one last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._num_bytes = 0

    def get(
        self,
        ask: Callable[..., Any],
        version_of: Version,
        args: tuple[Any, ...],
        options: dict[str, Any],
        shared: bool,
    ) -> Any:
        key = _key(ask, args, options)
        with self._lock:
            if key not in self._entries:
                self._entries[key] = _Entry()
                self._num_bytes += ENTRY_BYTES
            entry = self._entries[key]
            self._entries.move_to_end(key)
        with entry.lock:
            # Read before the query: rows that arrive during the query then count as new next time.
            version = version_of(*args, **options)
            if entry.answers(version):
                entry.answers_left -= 1
                return _unpacked(entry.value)
            value = ask(*args, **options)
            is_packed = isinstance(value, pd.DataFrame) and not shared
            entry.value = _Packed(pickle.dumps(value)) if is_packed else value
            entry.version, entry.is_known = version, True
            has_frames = not shared and next(_frames(entry.value), None) is not None
            entry.answers_left = MAX_ANSWERS - 1 if has_frames else float("inf")
            self._keep(key, entry)
            return value

    def known(self, ask: Callable[..., Any], version_of: Version, args: tuple[Any, ...]) -> Any:
        with self._lock:
            entry = self._entries.get(_key(ask, args, {}))
        if entry is None:
            return None
        with entry.lock:
            return entry.value if entry.answers(version_of(*args)) else None

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._num_bytes = 0

    def _keep(self, key: Hashable, latest: _Entry) -> None:
        """Drops the answers that were unused for the longest, but never the latest one: its query
        may itself have used other answers, which then are newer."""
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


def _key(ask: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Hashable:
    identities = tuple(ref(one) if isinstance(one, Store) else one for one in args)
    return ask.__module__, ask.__qualname__, identities, tuple(sorted(options.items()))


def _unpacked(value: Any) -> Any:
    return pickle.loads(value) if isinstance(value, _Packed) else value


def _frames(value: Any, depth: int = MAX_DEPTH) -> Iterator[pd.DataFrame | pd.Series]:
    """Those in a record, in its parts, and in collections of records."""
    if isinstance(value, pd.DataFrame | pd.Series):
        yield value
    elif depth:
        parts = value if isinstance(value, list | tuple) else ()
        named = value if isinstance(value, dict) else getattr(value, "__dict__", {})
        for one in (*parts, *named.values()):
            yield from _frames(one, depth - 1)


def _size(value: Any) -> int:
    """Bytes, about and of records rather too many: parts of others count as if they were none."""
    if isinstance(value, pd.DataFrame | pd.Series):
        return FRAME_BYTES + 8 * int(value.size)
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    if isinstance(value, bytes | str | int | float) or value is None:
        return sys.getsizeof(value)
    return RECORD_BYTES + sum(map(_size, _frames(value)))
