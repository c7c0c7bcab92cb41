"""What each experiment is: from its specification, its machine, how its runs stand, its labels."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

import pandas as pd

from breakeven.runner.folders.states import ExperimentState, Labels, RunState
from breakeven.runner.specs.workload import BUILTIN, SCRIPT_PREFIX, SCRIPT_TASK, known_as
from breakeven.storage.index.store import Store
from breakeven.storage.library.kept import Revision
from breakeven.storage.queries.rows import in_parts, submitted


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What does not change once an experiment's runs have begun."""

    name: str
    scenario: str
    task: str
    model: str
    data: str
    device: str
    """Name of the device, or what the specification calls it as long as that is all."""
    torch: str | None
    transformers: str | None
    precision: str | None
    """None for a script, like the batch."""
    batch: int | None
    backends: tuple[str, ...]
    suite_run: str | None
    host: str | None
    origin: str


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How an experiment stands."""

    experiment_id: str
    revision: Revision
    state: ExperimentState
    submitted: Any
    """A UTC timestamp, or NaT."""
    seconds: float | None
    """From the first claim to the last end; None until it is over."""
    folders: tuple[str, ...]
    data_folder: str
    """The one that told of it, as a team's store calls it."""
    labels: Labels = field(default_factory=Labels)


def standings(store: Store) -> list[Standing]:
    """Every experiment, newest first."""
    frame = store.query("""
        SELECT experiment_id, max(progress.revision) AS newest, count(*) AS num_runs,
            array_agg(state) AS states, min(claimed) AS claimed, max(ended) AS ended,
            array_agg(folder) AS folders, any_value(data_folder) AS data_folder,
            any_value(content) FILTER (position = 0) AS labels
        FROM runs JOIN progress USING (run_id) LEFT JOIN labels USING (run_id)
        GROUP BY experiment_id""")
    frame["submitted"] = submitted(frame["experiment_id"], frame["claimed"])
    frame = frame.sort_values(["submitted", "experiment_id"], ascending=False)
    return [_standing(row) for row in frame.to_dict("records")]


def _standing(row: dict[str, Any]) -> Standing:
    state = ExperimentState.of([RunState(one) for one in row["states"]])
    begun, ended = row["claimed"], row["ended"]
    is_known = state.is_final and pd.notna(begun) and pd.notna(ended)
    labels = row["labels"]
    return Standing(
        experiment_id=str(row["experiment_id"]),
        revision=Revision(int(row["newest"]), int(row["num_runs"])),
        state=state,
        submitted=row["submitted"],
        seconds=max(0.0, float(ended) - float(begun)) if is_known else None,
        folders=tuple(row["folders"]),
        data_folder=str(row["data_folder"]),
        labels=_labels(labels) if isinstance(labels, str) else Labels(),
    )


@lru_cache(maxsize=10_000)
def _labels(content: str) -> Labels:
    return Labels.from_json(content)


def facts(store: Store, experiment_ids: Iterable[str]) -> dict[str, Facts]:
    """The facts of these experiments."""
    return {name: told for some in in_parts(experiment_ids) for name, told in _facts(store, some)}


def _facts(store: Store, experiment_ids: list[str]) -> Iterator[tuple[str, Facts]]:
    frame = store.query(
        """
        WITH mine AS (FROM runs WHERE experiment_id IN (SELECT unnest(?))),
        known AS (
            SELECT run_id, device_name, host, versions->>'torch' AS torch,
                versions->>'transformers' AS transformers
            FROM environments WHERE experiment IN (SELECT experiment FROM mine)
            QUALIFY seq = max(seq) OVER (PARTITION BY run_id)),
        summed AS (
            SELECT experiment_id, max(origin) AS origin, min(spec)::JSON->'experiment' AS spec,
                max(device_name) AS device_name, max(torch) AS torch, max(host) AS host,
                max(transformers) AS transformers
            FROM mine LEFT JOIN known USING (run_id) GROUP BY experiment_id)
        SELECT experiment_id, origin, torch, transformers, host, spec->>'name' AS name,
            spec->>'scenario' AS scenario, spec->>'task' AS task,
            spec->>'$.model.source' AS model, spec->>'$.data.source' AS data,
            coalesce(device_name, spec->>'$.devices[0]') AS device,
            spec->>'$.training.precision' AS precision,
            (spec->>'$.training.batch_size')::BIGINT AS batch,
            spec->>'backends' AS backends, spec->>'suite_run' AS suite_run
        FROM summed""",
        [experiment_ids],
    )
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    for row in rows:
        experiment_id = str(row.pop("experiment_id"))
        backends = tuple(json.loads(row.pop("backends")))
        if row["task"] == SCRIPT_TASK:
            row |= {"precision": None, "batch": None}
        row["name"] = known_as(row["name"], row["model"], row["data"])
        row |= {name: short_source(row[name]) for name in ("model", "data")}
        yield experiment_id, Facts(backends=backends, **row)


def short_source(source: str) -> str:
    """`bert-tiny`, `google/bert`, `reviews.csv`: what a model or data set is called in lists."""
    name = source.removeprefix(BUILTIN).removeprefix(SCRIPT_PREFIX).rstrip("/")
    return PurePosixPath(name).name if name.startswith(("/", "~", ".")) else name
