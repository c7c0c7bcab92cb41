"""The catalog: a row for every experiment and imported result, with all data that lists show; and
its filters, which `runner.arguments.filters` defines.

The sizes of experiments on disk are measured a few at a time, because walking folders is slow, and
are valid for some minutes.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.runner.arguments.conditions import Condition
from breakeven.runner.arguments.filters import COMPUTED, FACETS, Filter
from breakeven.runner.experiments.freeing_space import size_of
from breakeven.runner.machine.uv_environments import OWN
from breakeven.runner.protocol.records import Labels
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import ACTIVE_EXPERIMENTS, FINAL_EXPERIMENTS
from breakeven.runner.specs.scenarios.by_name import SCENARIOS
from breakeven.runner.specs.workload import BUILTIN, SCRIPT_PREFIX, workload_of
from breakeven.storage import queries
from breakeven.storage.exchange.imports import imported_rows, imported_version
from breakeven.storage.index.store import Store
from breakeven.storage.library.summary import STORED_CLASSES, BackendSummary, Summary, summarize
from breakeven.storage.numbers.formats import format_verdict
from breakeven.storage.result_caches import Revision, memo, read_stored

SHARE_OF_SIZES = 0.2
"""Largest share of the computing time that measuring sizes on disk may take."""
EXPERIMENT_COLUMNS = [
    "experiment_id",
    "name",
    "submitted",
    "scenario",
    "task",
    "model",
    "data",
    "device",
    "host",
    "torch",
    "transformers",
    "precision",
    "batch",
    "origin",
    "archived",
    "tags",
    "text",
]
"""Columns of the catalog that rows of backends also have."""
BEST_COLUMNS = (
    "speedup",
    "speedup_low",
    "speedup_high",
    "compile_seconds",
    "break_even_steps",
    "break_even_verdict",
)
"""Columns with numbers of the best backend, named as in `BackendSummary`."""
_computing = threading.Lock()


def catalog_version(store: Store) -> tuple[Any, ...]:
    """A version that changes if the catalog must be computed again."""
    return store.generation, store.results_version, imported_version(store.data_dir)


@memo(catalog_version, shared=True)
def catalog(store: Store) -> pd.DataFrame:
    """One row per experiment, newest first, then one per imported result.

    `known` is false while the numbers are missing; `compute_missing` adds them. Undefined and
    unknown values are None; break-even steps are infinite for never. Callers must not change the
    frame, because all of them share it.
    """
    stored, sizes_by_id = summaries(store), known_sizes(store)
    rows = [
        _row(experiment, stored.get(experiment["experiment_id"]))
        | sizes_by_id.get(experiment["experiment_id"], {})
        for experiment in queries.list_experiments(store).to_dict("records")
    ]
    rows += _imported_rows(store)
    for row in rows:
        row["text"] = searchable(row)
    complete = [{name: row.get(name) for name in COLUMNS} for row in rows]
    return pd.DataFrame(complete, columns=COLUMNS, dtype=object)


@memo(catalog_version, shared=True)
def summaries(store: Store) -> dict[str, Summary]:
    """All stored summaries by experiment, the newest first."""
    stored = read_stored(store, "summary", STORED_CLASSES)
    listed = queries.list_experiments(store)
    keys = zip(listed["experiment_id"], listed["revision"], listed["num_runs"], strict=True)
    return {
        experiment_id: stored[experiment_id, Revision(revision, num_runs)]
        for experiment_id, revision, num_runs in keys
        if (experiment_id, Revision(revision, num_runs)) in stored
    }


def compute_missing(store: Store, seconds: float, only: Sequence[str] | None = None) -> int:
    """Computes missing summaries of experiments that are over, for about `seconds` but at least
    one, and measures missing sizes. Returns how many experiments still lack their summary or their
    sizes, the larger number. With `only`, just these experiments, in this order."""
    listed = queries.list_experiments(store).set_index("experiment_id")
    ids = [
        experiment_id
        for experiment_id in (listed.index if only is None else only)
        if experiment_id in listed.index
    ]
    is_over = ~listed["state"].isin(ACTIVE_EXPERIMENTS)
    folders_by_id = [
        (experiment_id, list(listed.at[experiment_id, "folders"])) for experiment_id in ids
    ]
    unmeasured = measure_sizes(store, folders_by_id, seconds * SHARE_OF_SIZES)
    over = [experiment_id for experiment_id in ids if is_over[experiment_id]]
    return max(unmeasured, _summarize(store, over, seconds))


def _summarize(store: Store, ids: Sequence[str], seconds: float) -> int:
    """Computes missing summaries, unless another thread does; returns how many are missing."""
    deadline, stored = time.monotonic() + seconds, summaries(store)
    missing = [experiment_id for experiment_id in ids if experiment_id not in stored]
    if not missing or not _computing.acquire(blocking=False):
        return len(missing)
    try:
        for number, experiment_id in enumerate(missing, start=1):
            summarize(store, experiment_id)
            store.results_version += 1
            if time.monotonic() > deadline:
                return len(missing) - number
    finally:
        _computing.release()
    return 0


def backend_rows(
    store: Store, rows: pd.DataFrame | None = None, environments: Collection[str] = ()
) -> pd.DataFrame:
    """One row for every backend of the compared experiments among `rows` of the catalog, or
    among all, the oldest first; matrix and trends use these rows. `environments`: only backends of
    these, unless empty.

    Columns: the catalog's columns of the experiment, `workload` (`workload_key`), `backend` (its
    label) and all fields of `BackendSummary`; versions are those of the backend's run, and
    `environment` is `own` for Breakeven's own Python.
    """
    frame = catalog(store) if rows is None else rows
    frame = frame[frame["experiment_id"].notna()]
    row_by_id = {row["experiment_id"]: row for row in frame[EXPERIMENT_COLUMNS].to_dict("records")}
    records = [
        {
            **row_by_id[experiment_id],
            **_recorded_fields(backend),
            "backend": backend.label,
            "workload": summary.workload,
            "environment": backend.environment or OWN,
        }
        for experiment_id, summary in reversed(summaries(store).items())
        if experiment_id in row_by_id
        for backend in summary.backends
        if not environments or backend.environment in environments
    ]
    fields = [
        name for name in BackendSummary.__dataclass_fields__ if name not in EXPERIMENT_COLUMNS
    ]
    columns = [*EXPERIMENT_COLUMNS, "backend", "workload", *fields]
    return pd.DataFrame(records, columns=columns, dtype=object)


def _recorded_fields(backend: BackendSummary) -> dict[str, Any]:
    """The fields of a backend, except versions that its run did not record: those of the experiment
    stay in its row."""
    return {
        name: value
        for name, value in vars(backend).items()
        if value is not None or name not in EXPERIMENT_COLUMNS
    }


def _row(experiment: dict[Any, Any], summary: Summary | None) -> dict[str, Any]:
    """The columns of the catalog, without sizes, for a row of `queries.list_experiments`; without a
    summary, results are None."""
    best = (summary.best if summary else None) or BackendSummary(label="", state="")
    labels: Labels = experiment["labels"]
    is_over = experiment["state"] in FINAL_EXPERIMENTS
    is_specified = workload_of(experiment["task"]).is_specified
    seconds = experiment["ended"] - experiment["claimed"] if is_over else math.nan
    return {
        **{
            name: experiment[name]
            for name in (
                "experiment_id",
                "name",
                "state",
                "submitted",
                "archived",
                "scenario",
                "task",
                "origin",
            )
        },
        **{name: _none_if_missing(experiment[name]) for name in ("host", "suite_run")},
        "model": short_source(experiment["model"]),
        "data": short_source(experiment["data"]),
        "device": _none_if_missing(experiment["device_name"]) or experiment["device"],
        "torch": _none_if_missing(experiment["torch_version"]),
        "transformers": _none_if_missing(experiment["transformers_version"]),
        "precision": experiment["precision"] if is_specified else None,
        "batch": int(experiment["batch"]) if is_specified else None,
        "backends": tuple(experiment["backends"]),
        "environments": tuple(experiment["environments"]),
        "duration": None if pd.isna(seconds) else max(0.0, seconds),
        "tags": labels.tags,
        "notes": labels.notes,
        "known": summary is not None or experiment["state"] in ACTIVE_EXPERIMENTS,
        "problem": summary.problem if summary else None,
        "answer": summary.answer if summary else None,
        "best": best.label or None,
        **{name: getattr(best, name) for name in BEST_COLUMNS},
        "verdict": best.speed_verdict,
        # Candidates of a search may fail or be cancelled.
        "parity": best.parity
        if SCENARIOS[experiment["scenario"]].has_candidates or not summary
        else summary.parity,
        "losses": list(summary.losses) if summary else None,
        "warnings": summary.num_warnings if summary else None,
    }


def _none_if_missing(value: Any) -> Any:
    return None if pd.isna(value) else value


def short_source(source: str) -> str:
    """The short name of a model or data set in lists: `bert-tiny`, `google/bert`, `reviews.csv`."""
    name = source.removeprefix(BUILTIN).removeprefix(SCRIPT_PREFIX).rstrip("/")
    return PurePosixPath(name).name if name.startswith(("/", "~", ".")) else name


def _imported_rows(store: Store) -> list[dict[str, Any]]:
    """Imported results of other programs; they have no page."""
    frame, _ = imported_rows(store.data_dir)  # The page of an experiment shows unusable files.
    results = frame.astype(object).where(frame.notna(), None)
    return [
        {
            "name": row.name,
            "state": "failed" if row.has_failed else "finished",
            "origin": "imported",
            "model": row.name,
            "device": row.dev,
            "batch": row.batch_size,
            "backends": (row.tag,) if row.tag else (),
            "environments": (),
            "best": row.tag,
            "speedup": row.speedup,
            "compile_seconds": row.compilation_latency,
            "tags": (),
            "notes": row.file,
            "archived": False,
            "known": True,
        }
        for row in results.itertuples(index=False)
    ]


COLUMNS = [
    "experiment_id",
    "name",
    "state",
    "submitted",
    "duration",
    "model",
    "data",
    "task",
    "scenario",
    "device",
    "host",
    "torch",
    "transformers",
    "precision",
    "batch",
    "backends",
    "environments",
    "answer",
    "best",
    "speedup",
    "speedup_low",
    "speedup_high",
    "verdict",
    "parity",
    "compile_seconds",
    "break_even_steps",
    "break_even_verdict",
    "losses",
    "warnings",
    "tags",
    "notes",
    "archived",
    "origin",
    "suite_run",
    "known",
    "problem",
    "total_bytes",
    "checkpoint_bytes",
    "artifact_bytes",
    "text",
]


SIZES_VALID_SECONDS = 300.0
"""Time after which the sizes of an experiment are measured again."""


def known_sizes(store: Store) -> dict[str, dict[str, int]]:
    """Measured sizes by experiment, of any age."""
    measured = store.sizes.copy()  # another thread may measure at the same time
    return {experiment_id: sizes for experiment_id, (_when, sizes) in measured.items()}


def forget_sizes(store: Store, experiment_ids: Iterable[str]) -> None:
    """Removes the sizes of experiments whose files have changed."""
    for experiment_id in experiment_ids:
        store.sizes.pop(experiment_id, None)
    store.results_version += 1


def measure_sizes(
    store: Store, folders_by_id: Sequence[tuple[str, Sequence[str]]], seconds: float
) -> int:
    """Measures the sizes of experiments, where unknown or old, for about `seconds`; returns the
    number of experiments still without sizes. `folders_by_id`: experiments with their folders."""
    started = time.monotonic()
    measured = store.sizes.copy()  # another thread may call `forget_sizes` meanwhile
    new = [
        (experiment_id, folders)
        for experiment_id, folders in folders_by_id
        if experiment_id not in measured
    ]
    old = [
        (experiment_id, folders)
        for experiment_id, folders in folders_by_id
        if experiment_id in measured and started - measured[experiment_id][0] > SIZES_VALID_SECONDS
    ]
    for experiment_id, folders in (*new, *old):
        before, sizes = store.sizes.get(experiment_id), _sizes_on_disk(folders)
        store.sizes[experiment_id] = time.monotonic(), sizes
        store.results_version += before is None or before[1] != sizes
        if time.monotonic() - started > seconds:
            break
    return sum(experiment_id not in store.sizes for experiment_id, _ in folders_by_id)


def _sizes_on_disk(folders: Iterable[str]) -> dict[str, int]:
    """Bytes on disk by column of the catalog; artifacts exclude checkpoints."""
    total = checkpoints = artifacts = 0
    for folder in folders:
        run = RunDir(Path(folder))
        total += size_of(run.path)
        if not run.workplace.is_symlink():
            artifacts += size_of(run.workplace)
        if not run.artifacts.is_symlink():
            saved = 0 if run.checkpoints.is_symlink() else size_of(run.checkpoints)
            checkpoints += saved
            artifacts += size_of(run.artifacts) - saved
    return {"total_bytes": total, "checkpoint_bytes": checkpoints, "artifact_bytes": artifacts}


Mask = NDArray[np.bool_]
COLUMN_BY_FACET = {"backend": "backends", "environment": "environments", "tag": "tags"}
"""Facets with several values per row; other columns have the facet's name and one value per row."""
COLUMN_AND_FACTOR = {
    "speedup": ("speedup", 1.0),
    "compile": ("compile_seconds", 1.0),
    "steps": ("break_even_steps", 1.0),
    "duration": ("duration", 1.0),
    "warnings": ("warnings", 1.0),
    "mb": ("total_bytes", 1e-6),
}
"""Column and factor of each number that a filter text can compare."""
SEARCHED = (
    "experiment_id",
    "name",
    "state",
    "model",
    "data",
    "task",
    "scenario",
    "device",
    "host",
    "torch",
    "transformers",
    "precision",
    "backends",
    "environments",
    "tags",
    "notes",
    "origin",
    "suite_run",
    "verdict",
    "parity",
    "problem",
)
"""Columns in which a filter searches words."""


def matching_rows(frame: pd.DataFrame, criteria: Filter) -> pd.DataFrame:
    """The rows of a catalog that match a filter, in its order, rows without a sort value last;
    raises ValueError for an invalid text."""
    kept = frame[
        _text_mask(frame, criteria) & _all_of(frame, _facet_masks(frame, criteria).values())
    ]
    return kept.sort_values(
        _sort_column(criteria.sort),
        ascending=not criteria.sort.startswith("-"),
        kind="stable",
        key=lambda cells: cells.map(_sort_key),
    )


def facet_counts(frame: pd.DataFrame, criteria: Filter) -> dict[str, Counter[str]]:
    """The number of rows for each value of each facet that match the text and the other facets."""
    base, masks = _text_mask(frame, criteria), _facet_masks(frame, criteria)
    counts = {}
    for name in FACETS:
        others = _all_of(frame, (mask for facet, mask in masks.items() if facet != name))
        cells = frame.loc[base & others, COLUMN_BY_FACET.get(name, name)]
        counts[name] = Counter(value for cell in cells for value in _values(cell))
    return counts


def searchable(row: Mapping[str, Any]) -> str:
    """All searched texts of a row in lower case."""
    texts = [" ".join(_spellings(name, row.get(name))) for name in SEARCHED]
    return "\n".join(texts).casefold()


def _text_mask(frame: pd.DataFrame, criteria: Filter) -> Mask:
    """Which rows match the text and the choice of archived experiments."""
    archived = np.array(frame["archived"], dtype=bool)
    mask = {"no": ~archived, "yes": np.ones(len(frame), dtype=bool), "only": archived}
    masks = [mask[criteria.archived]]
    masks += [_comparison_mask(frame, condition) for condition in criteria.terms.comparisons]
    masks += [_contains(frame, word) for word in criteria.terms.wanted]
    masks += [~_contains(frame, word) for word in criteria.terms.unwanted]
    return _all_of(frame, masks)


def _contains(frame: pd.DataFrame, word: str) -> Mask:
    return np.array([word in text for text in frame["text"]], dtype=bool)


def _facet_masks(frame: pd.DataFrame, criteria: Filter) -> dict[str, Mask]:
    return {
        name: np.array(
            [
                any(value in allowed for value in _spellings(name, cell))
                for cell in frame[COLUMN_BY_FACET.get(name, name)]
            ],
            dtype=bool,
        )
        for name, allowed in criteria.facets.items()
        if allowed
    }


def _spellings(facet: str, cell: Any) -> tuple[str, ...]:
    """Spellings that match the values of a cell; a verdict has one in files and one on pages."""
    values = _values(cell)
    return (*values, *map(format_verdict, values)) if facet in COMPUTED else values


def _all_of(frame: pd.DataFrame, masks: Iterable[Mask]) -> Mask:
    every: Mask = np.logical_and.reduce([np.ones(len(frame), dtype=bool), *masks])
    return every


def _comparison_mask(frame: pd.DataFrame, condition: Condition) -> Mask:
    """The rows that satisfy a comparison; unknown numbers never do."""
    column, factor = COLUMN_AND_FACTOR[condition.name]
    numbers = np.array(frame[column], dtype=float) * factor
    assert condition.limit is not None, "a word of a text has a number behind its sign"
    is_met: Mask = numbers > condition.limit if condition.above else numbers < condition.limit
    return is_met


def _values(cell: Any) -> tuple[str, ...]:
    if isinstance(cell, tuple | list):
        return tuple(map(str, cell))
    is_nan = cell != cell
    return () if cell is None or is_nan else (str(cell),)


def _sort_column(sort: str) -> str:
    name = sort.removeprefix("-")
    return "submitted" if name == "when" else COLUMN_AND_FACTOR.get(name, (name, 1.0))[0]


def _sort_key(cell: Any) -> Any:
    return cell.casefold() if isinstance(cell, str) else cell
