"""Keeps what was asked about an experiment until the store takes in something new of it.

Pages are drawn again at every click and for every reader, mostly from what has not changed.
"""

import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import pandas as pd

from breakeven.storage.index.store import Store

MAX_BYTES = 32_000_000
"""Of all that is kept of a store, so that the series of one experiment of six runs and 10,000 steps
fit, and what is made of them."""
ENTRY_BYTES = 1000
"""Of an answer beside its own."""
RECORD_BYTES = 10_000
"""Of a record beside its frames: texts and dictionaries."""
FRAME_BYTES = 15_000
"""Of a frame beside its numbers: columns, blocks and indexes are objects, however few the rows."""
MAX_ANSWERS = 50
"""Of the same record: pandas notes every look at a column with it, until there are 500."""
MAX_STANDINGS = 100
"""Experiments of which it is kept how they stand."""

Ask = TypeVar("Ask", bound=Callable[..., Any])
Revision = tuple[int, int]


@dataclass(frozen=True)
class Standing:
    """How an experiment stands in the store."""

    revision: Revision
    """The newest write to any of its runs, and how many there are: a write has a number above all
    earlier ones, and a run that is gone makes them fewer."""
    states: frozenset[str]
    """Those of its runs."""


def standing(store: Store, experiment_id: str) -> Standing:
    """As of what the store took in last; asked for once as long as that is the same."""
    return _memory(store).standing(store, experiment_id, store.generation)


def revision(store: Store, experiment_id: str) -> Revision:
    """Differs from every earlier answer if anything of the experiment has changed since."""
    return standing(store, experiment_id).revision


def kept(ask: Ask) -> Ask:
    """The function, which asks a store about an experiment, answering from memory if it can.

    A frame is kept as bytes, so that each answer is one's own to change: kept as it is it takes
    several times the room, and 48 kB a column for notes on who was answered with it. Other answers
    are only to be looked at.
    """

    @wraps(ask)
    def answer(store: Store, experiment_id: str, *args: Any, **options: Any) -> Any:
        key = (*_key(ask, experiment_id), args, tuple(sorted(options.items())))
        found = _memory(store).get(
            store, experiment_id, key, lambda: ask(store, experiment_id, *args, **options)
        )
        return _unpacked(found)

    return cast(Ask, answer)


def at_hand(ask: Ask, store: Store, experiment_id: str) -> Any:
    """What such a function answers without asking the store; None if it would have to."""
    found = _memory(store).known(store, experiment_id, (*_key(ask, experiment_id), (), ()))
    return _unpacked(found)


def _packed(value: Any) -> Any:
    return pickle.dumps(value) if isinstance(value, pd.DataFrame) else value


def _unpacked(value: Any) -> Any:
    return pickle.loads(value) if isinstance(value, bytes) else value


def _key(ask: Callable[..., Any], experiment_id: str) -> tuple[str, str, str]:
    return ask.__module__, ask.__name__, experiment_id


@dataclass
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Who wants the same meanwhile waits for it, rather than asking again."""
    generation: int = -1
    revision: Revision | None = None
    value: Any = None
    size: int = 0
    answers: int = 0
    """Of a record, since it was made."""

    def is_used_up(self) -> bool:
        return self.answers >= MAX_ANSWERS and not isinstance(self.value, bytes)


class _Memory:
    """What is kept of a store, the latest asked for last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._standings: dict[str, tuple[int, Standing]] = {}

    def get(self, store: Store, experiment_id: str, key: Hashable, ask: Callable[[], Any]) -> Any:
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
        with entry.lock:
            entry.answers += 1
            # Before anything is asked: what arrives meanwhile then counts as new the next time.
            generation = store.generation
            if entry.generation == generation and not entry.is_used_up():
                return entry.value
            now = self.standing(store, experiment_id, generation).revision
            if entry.revision != now or entry.is_used_up():
                entry.value = _packed(ask())
                entry.size = ENTRY_BYTES + _size(entry.value)
                entry.revision, entry.answers = now, 0
                self._keep(key, entry)
            entry.generation = generation
            return entry.value

    def known(self, store: Store, experiment_id: str, key: Hashable) -> Any:
        with self._lock:
            entry = self._entries.get(key)
        if entry is None:
            return None
        with entry.lock:
            now = self.standing(store, experiment_id, store.generation).revision
            return entry.value if entry.revision == now else None

    def standing(self, store: Store, experiment_id: str, generation: int) -> Standing:
        known = self._standings.get(experiment_id)
        if known is None or known[0] != generation:
            known = generation, _standing(store, experiment_id)
            self._standings[experiment_id] = known
            for oldest in list(self._standings)[:-MAX_STANDINGS]:
                self._standings.pop(oldest, None)
        return known[1]

    def _keep(self, key: Hashable, latest: _Entry) -> None:
        """Drops what was not asked for the longest, but for the latest: also where it took others
        to answer it, which were asked after it."""
        with self._lock:
            self._entries[key] = latest
            self._entries.move_to_end(key)
            total = sum(entry.size for entry in self._entries.values())
            while total > MAX_BYTES and len(self._entries) > 1:
                _, oldest = self._entries.popitem(last=False)
                total -= oldest.size


def _standing(store: Store, experiment_id: str) -> Standing:
    query = """SELECT coalesce(max(revision), 0), count(*), list(DISTINCT state)
        FROM progress WHERE starts_with(run_id, $1)"""
    newest, num_runs, states = store.rows(query, [f"{experiment_id}."])[0]
    return Standing((int(newest), int(num_runs)), frozenset(states or ()))


def _size(value: Any) -> int:
    """Bytes, about and of records rather too many: parts of others count as if they were none."""
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, pd.DataFrame | pd.Series):
        return FRAME_BYTES + 8 * int(value.size)
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    frames = (one for one in getattr(value, "__dict__", {}).values()
              if isinstance(one, pd.DataFrame | pd.Series))  # fmt: skip
    return RECORD_BYTES + sum(map(_size, frames))


def _memory(store: Store) -> _Memory:
    return _memories.setdefault(store, _Memory())


_memories: WeakKeyDictionary[Store, _Memory] = WeakKeyDictionary()
