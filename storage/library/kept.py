"""Summaries that were computed once and are kept, until something of their experiment changes.

Kept in the database by revision of the experiment and version of the code. They are computed in
small steps, so that nobody waits for a thousand of them.
"""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from breakeven.runner.texts import printable
from breakeven.storage.errors import StoreUnusable
from breakeven.storage.index.store import Store
from breakeven.storage.kept.code_version import code_version
from breakeven.storage.library.summary import Summary, summarize


@dataclass(frozen=True, order=True)
class Revision:
    """What differs once anything of an experiment has changed."""

    newest: int
    num_runs: int


@dataclass
class _Memory:
    """The kept summaries of a store."""

    summaries: dict[str, tuple[Revision, Summary]] = field(default_factory=dict)
    is_loaded: bool = False
    filling: threading.Lock = field(default_factory=threading.Lock)
    version: int = 0
    """Counts changes."""


_memories: WeakKeyDictionary[Store, _Memory] = WeakKeyDictionary()


def kept_summary(store: Store, experiment_id: str, revision: Revision) -> Summary | None:
    """None if it has to be computed."""
    known = _memory(store).summaries.get(experiment_id)
    return known[1] if known is not None and known[0] == revision else None


def kept_version(store: Store) -> int:
    """Another one after every change of what is kept."""
    return _memory(store).version


def fill(store: Store, wanted: Sequence[tuple[str, Revision]], seconds: float) -> int:
    """Computes missing summaries, in this order, for about so long, at least one; returns how many
    are still missing. While another thread is at it, nothing."""
    memory = _memory(store)
    missing = [one for one in wanted if kept_summary(store, *one) is None]
    if not missing or not memory.filling.acquire(blocking=False):
        return len(missing)
    try:
        return len(missing) - _compute(store, memory, missing, time.monotonic() + seconds)
    finally:
        memory.filling.release()


def _compute(
    store: Store, memory: _Memory, missing: Sequence[tuple[str, Revision]], deadline: float
) -> int:
    rows = []
    for experiment_id, revision in missing:
        summary = _summary(store, experiment_id)
        memory.summaries[experiment_id] = revision, summary
        memory.version += 1
        rows.append(
            (experiment_id, revision.newest, revision.num_runs, code_version(), summary.to_json())
        )
        if time.monotonic() > deadline:
            break
    with suppress(StoreUnusable):  # Then it is computed again after a restart.
        _keep(store, rows)
    return len(rows)


def _summary(store: Store, experiment_id: str) -> Summary:
    try:
        return summarize(store, experiment_id)
    except Exception as error:  # Whatever one experiment holds, the others are told of.
        return Summary(problem=printable(f"{type(error).__name__}: {error}"))


def _keep(store: Store, rows: Sequence[tuple[str, int, int, str, str]]) -> None:
    store.write(
        "DELETE FROM summaries WHERE experiment_id IN (SELECT unnest(?)) "
        "OR experiment_id NOT IN (SELECT experiment_id FROM runs)",
        [[row[0] for row in rows]],
    )
    columns = [list(column) for column in zip(*rows, strict=True)]
    store.write(
        "INSERT INTO summaries SELECT unnest(?), unnest(?), unnest(?), unnest(?), unnest(?)",
        columns,
    )


def _memory(store: Store) -> _Memory:
    memory = _memories.setdefault(store, _Memory())
    if not memory.is_loaded:
        found = store.query("FROM summaries WHERE version = ?", [code_version()])
        for row in found.itertuples():
            revision = Revision(int(row.revision), int(row.num_runs))
            memory.summaries[row.experiment_id] = revision, Summary.from_json(row.content)
        memory.is_loaded = True
    return memory
