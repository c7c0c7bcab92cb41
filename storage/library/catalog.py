"""The catalog: a row for every experiment and imported result, with all that lists show of it."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import pandas as pd

from breakeven.storage.errors import ImportUnusable
from breakeven.storage.exchange.imports import imported, imported_version
from breakeven.storage.index.store import Store
from breakeven.storage.library import sizes
from breakeven.storage.library.facts import Facts, Standing, facts, standings
from breakeven.storage.library.filters import searchable
from breakeven.storage.library.kept import Revision, fill, kept_summary, kept_version
from breakeven.storage.library.summary import BackendSummary, Summary

SHARE_OF_SIZES = 0.2
"""Of the time of a step, what measuring sizes on disk may take at most."""


@dataclass
class _Memory:
    facts: dict[str, tuple[Revision, Facts]] = field(default_factory=dict)
    made_from: tuple[Any, ...] = ()
    """What differs once the catalog has to be made anew."""
    frame: pd.DataFrame = field(default_factory=pd.DataFrame)


_memories: WeakKeyDictionary[Store, _Memory] = WeakKeyDictionary()


def catalog(store: Store) -> pd.DataFrame:
    """One row per experiment, newest first, then one per imported result.

    `known` says whether the numbers are there yet: `compute` adds them. What is undefined or not
    known is None, break-even steps of never are infinite. Nobody may change the frame: it is kept
    until something has changed.
    """
    memory = _memories.setdefault(store, _Memory())
    made_from = _made_from(store)
    if memory.made_from != made_from:
        memory.frame, memory.made_from = _catalog(store), made_from
    return memory.frame


def _made_from(store: Store) -> tuple[Any, ...]:
    versions = store.query("""SELECT
        (SELECT max(revision) FROM progress), (SELECT count(*) FROM progress),
        (SELECT max(revision) FROM labels), (SELECT count(*) FROM labels)""")
    return (*versions.fillna(0).iloc[0], kept_version(store), sizes.version(store),
            imported_version(store.data_dir))  # fmt: skip


def _catalog(store: Store) -> pd.DataFrame:
    found = standings(store)
    known = _facts(store, found)
    measured = sizes.known_sizes(store)
    rows = [
        _row(one, known[one.experiment_id], kept_summary(store, one.experiment_id, one.revision),
             measured.get(one.experiment_id))
        for one in found
    ]  # fmt: skip
    rows += _imported_rows(store)
    for row in rows:
        row["text"] = searchable(row)
    whole = [{name: row.get(name) for name in COLUMNS} for row in rows]
    return pd.DataFrame(whole, columns=COLUMNS, dtype=object)


def compute(store: Store, seconds: float, only: Sequence[str] | None = None) -> int:
    """Computes what the catalog does not know yet of experiments that are over, for about so long;
    returns how many rows are still to come. With `only` these experiments, in this order."""
    found = {one.experiment_id: one for one in standings(store)}
    chosen = [found[key] for key in (found if only is None else only) if key in found]
    over = [(one.experiment_id, one.revision) for one in chosen if not one.state.is_active]
    places = [(one.experiment_id, one.folders) for one in chosen]
    unmeasured = sizes.measure(store, places, seconds * SHARE_OF_SIZES)
    return max(unmeasured, fill(store, over, seconds))


def _facts(store: Store, found: Sequence[Standing]) -> dict[str, Facts]:
    memory = _memories.setdefault(store, _Memory()).facts
    unknown = {}
    for one in found:
        kept = memory.get(one.experiment_id)
        if kept is None or kept[0] != one.revision:
            unknown[one.experiment_id] = one.revision
    if unknown:
        for experiment_id, told in facts(store, unknown).items():
            memory[experiment_id] = unknown[experiment_id], told
    return {one.experiment_id: memory[one.experiment_id][1] for one in found}


def _row(
    one: Standing, told: Facts, summary: Summary | None, measured: sizes.Sizes | None
) -> dict[str, Any]:
    best = (summary.best if summary else None) or BackendSummary(label="", state="")
    return {
        **vars(told),
        "experiment_id": one.experiment_id,
        "name": one.labels.name or told.name,
        "state": one.state.value,
        "submitted": one.submitted,
        "duration": one.seconds,
        "tags": one.labels.tags,
        "notes": one.labels.notes,
        "archived": one.labels.archived,
        "known": summary is not None or one.state.is_active,
        "problem": summary.problem if summary else None,
        "best": best.label or None,
        "speedup": best.speedup,
        "speedup_low": best.speedup_low,
        "speedup_high": best.speedup_high,
        "verdict": best.speed_verdict,
        "parity": summary.parity if summary else None,
        "compile_seconds": best.compile_seconds,
        "break_even_steps": best.break_even_steps,
        "break_even_verdict": best.break_even_verdict,
        "losses": list(summary.losses) if summary else None,
        "doubts": summary.num_doubts if summary else None,
        "total_bytes": measured.total if measured else None,
        "checkpoint_bytes": measured.checkpoints if measured else None,
        "artifact_bytes": measured.artifacts if measured else None,
    }


def _imported_rows(store: Store) -> list[dict[str, Any]]:
    """Results of other programs; they have no page of their own."""
    with suppress(ImportUnusable):  # which Compare tells
        return [
            {
                "name": row.name,
                "state": "failed" if row.has_failed else "finished",
                "origin": "imported",
                "model": row.name,
                "device": row.dev,
                "batch": row.batch_size,
                "backends": (row.tag,) if row.tag else (),
                "best": row.tag,
                "speedup": row.speedup,
                "compile_seconds": row.compilation_latency,
                "tags": (),
                "notes": row.file,
                "archived": False,
                "known": True,
            }
            for row in _rows_of(store)
        ]
    return []


def _rows_of(store: Store) -> list[Any]:
    frame = imported(store.data_dir)
    whole = frame.astype(object).where(frame.notna(), None)
    return list(whole.itertuples(index=False))


COLUMNS = [
    "experiment_id", "name", "state", "submitted", "duration", "model", "data", "task", "scenario",
    "device", "host", "torch", "transformers", "precision", "batch", "backends", "best", "speedup",
    "speedup_low", "speedup_high", "verdict", "parity", "compile_seconds", "break_even_steps",
    "break_even_verdict", "losses", "doubts", "tags", "notes", "archived", "origin", "suite_run",
    "known", "problem", "total_bytes", "checkpoint_bytes", "artifact_bytes", "text",
]  # fmt: skip
