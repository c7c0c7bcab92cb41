"""A row for every backend of every experiment that is over: what the matrix and trends are made of.

Numbers are those of the kept summaries; an experiment that was not compared yet has no row.
"""

from contextlib import suppress
from weakref import WeakKeyDictionary

import pandas as pd

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.experiment import RunSpec
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog
from breakeven.storage.library.facts import standings
from breakeven.storage.library.kept import kept_summary
from breakeven.storage.library.summary import BackendSummary
from breakeven.storage.library.workloads import workload_key

OF_EXPERIMENT = [
    "experiment_id", "name", "submitted", "scenario", "task", "model", "data", "device", "host",
    "torch", "transformers", "precision", "batch", "origin", "archived", "tags", "text",
]  # fmt: skip
_workloads: WeakKeyDictionary[Store, dict[str, str]] = WeakKeyDictionary()


def backend_rows(store: Store, chosen: pd.DataFrame | None = None) -> pd.DataFrame:
    """Of these rows of the catalog, or of all, one per backend, oldest experiment first.

    Columns: what the catalog says of the experiment, `workload` (`workload_key`), `backend` (its
    label) and all fields of `BackendSummary`.
    """
    frame = catalog(store) if chosen is None else chosen
    frame = frame[frame["experiment_id"].notna()]
    told = {row["experiment_id"]: row for row in frame[OF_EXPERIMENT].to_dict("records")}
    over = [one for one in standings(store) if one.experiment_id in told]
    keys = workload_keys(store, [one.experiment_id for one in over])
    rows = []
    for one in reversed(over):
        summary = kept_summary(store, one.experiment_id, one.revision)
        for backend in summary.backends if summary else ():
            known = {
                "backend": backend.label,
                "workload": keys.get(one.experiment_id),
            }
            rows.append({**told[one.experiment_id], **vars(backend), **known})
    columns = [*OF_EXPERIMENT, "backend", "workload", *BackendSummary.__dataclass_fields__]
    return pd.DataFrame(rows, columns=columns, dtype=object)


def workload_keys(store: Store, experiment_ids: list[str]) -> dict[str, str]:
    """`workload_key` of these experiments, of those whose specification can be read."""
    known = _workloads.setdefault(store, {})
    unknown = [one for one in experiment_ids if one not in known]
    if unknown:
        specs = store.query(
            """SELECT experiment_id, min(spec) AS spec FROM runs
            WHERE experiment_id IN (SELECT unnest(?)) GROUP BY experiment_id""",
            [unknown],
        )
        for row in specs.itertuples():
            with suppress(InvalidSpec):
                known[row.experiment_id] = workload_key(RunSpec.from_json(row.spec).experiment)
    return known
