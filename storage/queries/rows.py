"""Shared parts of the queries: an experiment's rows, and types that DuckDB does not return."""

import json
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pandas as pd

from breakeven.runner.texts import read_json
from breakeven.storage.index.ingest import EVENT_TABLES
from breakeven.storage.index.store import Store
from breakeven.storage.result_caches import always, memo, remembered, revision

IN_EXPERIMENT = "experiment = $1"
"""Selects the rows of one experiment by its number, `Store.number_of`. Each table of events needs
its own condition; otherwise the database reads too many rows."""
RECORDED = "* EXCLUDE (place, experiment, run_id, seq, time)"
"""All fields of an event except its time, as columns of `rows`."""
OF_RUNS = ("run_id", "label", "role")
USUAL_TABLES = (
    "phases",
    "environments",
    "workloads",
    "steps",
    "blocks",
    "device_samples",
    "evaluations",
)
"""Tables of events in which nearly every experiment has rows."""
RARE_TABLES = tuple(sorted(set(EVENT_TABLES.values()).difference(USUAL_TABLES)))

Query = Callable[[Store, str], pd.DataFrame]


def query(
    source: str,
    columns: str = RECORDED,
    order: str = "seq",
    *,
    event_tables: Collection[str] = (),
    many: bool = False,
    json: Collection[str] = (),
    only_last: bool = False,
) -> Query:
    """A cached function that returns the `rows` of an experiment from a store and the experiment's
    id. `json`: columns of JSON texts, which it parses. `only_last`: the last row of each run, for
    what a resumed run records again; a window in the database would take longer."""

    def ask(store: Store, experiment_id: str) -> pd.DataFrame:
        frame = rows(
            store, experiment_id, source, columns, order, event_tables=event_tables, many=many
        )
        if only_last:
            frame = frame.drop_duplicates("run_id", keep="last", ignore_index=True)
        return parsed(frame, *json)

    return memo(revision)(ask)


def rows(
    store: Store,
    experiment_id: str,
    source: str,
    columns: str,
    order: str,
    *parameters: object,
    event_tables: Collection[str] = (),
    many: bool = False,
) -> pd.DataFrame:
    """run_id, label, role and columns of the experiment's rows, in the order of the arms.

    `source`: a table of events, or a query in parentheses or a view of the index, both with the
    experiment's number as parameter `$1`; `parameters` are `$2` and so on. If all `event_tables`
    are empty, the query or view has no rows. `many`: one row per step or block, so the three texts
    are categories.
    """
    is_table = source.isidentifier()
    sql = f"""SELECT place, {columns}
        FROM (FROM {source} {f"WHERE {IN_EXPERIMENT}" if is_table else ""})
        JOIN (SELECT run_id, position AS place FROM runs WHERE {IN_EXPERIMENT}) USING (run_id)
        ORDER BY place, {order}"""
    tables = {source} if is_table else set(event_tables)
    is_rare = bool(tables) and tables.isdisjoint(USUAL_TABLES)
    if is_rare and tables.isdisjoint(_tables_with_rows(store, experiment_id)):
        return _without_rows(store, sql, *parameters)
    by_column = store.columns(sql, [store.number_of(experiment_id), *parameters])
    return with_runs(store, experiment_id, by_column, many=many)


@memo(revision)
def _tables_with_rows(store: Store, experiment_id: str) -> frozenset[str]:
    """The rare tables with rows of the experiment. One query over all of them takes as long as one
    empty query, and most pages query a dozen."""
    query = " UNION ALL ".join(
        f"(SELECT '{table}' FROM {table} WHERE {IN_EXPERIMENT} LIMIT 1)" for table in RARE_TABLES
    )
    return frozenset(name for (name,) in store.rows(query, [store.number_of(experiment_id)]))


def _without_rows(store: Store, sql: str, *parameters: object) -> pd.DataFrame:
    """The empty result of a query, with the types of its columns: the same for all stores of a
    kind."""

    def ask() -> pd.DataFrame:
        return with_runs(store, "", store.columns(sql, [0, *parameters]))

    return remembered((type(store), sql, parameters), always, ask)


def with_runs(
    store: Store, experiment_id: str, columns: dict[str, Any], *, many: bool = False
) -> pd.DataFrame:
    """A frame of the columns, with run_id, label and role instead of `place`, the position among
    the arms.

    Fetching three texts per row would take as long as all numbers, and twice their memory; a
    category takes one byte per row.
    """
    runs = _runs(store, experiment_id, many)
    row = np.searchsorted(runs["position"].to_numpy(), columns.pop("place"))
    texts = {name: runs[name].array.take(row) for name in OF_RUNS}
    return pd.DataFrame({**texts, **columns}, copy=False)


def ends_of_runs(frame: pd.DataFrame) -> list[int]:
    """First index of each run's rows, which must be consecutive, and the end of the last run."""
    ids = frame["run_id"].array
    if not len(ids):
        return [0]
    # Compares the array directly: converting all texts to objects takes ten times as long.
    return [0, *(np.flatnonzero(np.asarray(ids[1:] != ids[:-1])) + 1), len(ids)]


@memo(revision, shared=True)
def _runs(store: Store, experiment_id: str, as_categories: bool) -> pd.DataFrame:
    if as_categories:
        return _runs(store, experiment_id, False).astype(dict.fromkeys(OF_RUNS, "category"))
    return store.query(
        f"SELECT position, {', '.join(OF_RUNS)} FROM runs WHERE {IN_EXPERIMENT} ORDER BY position",
        [store.number_of(experiment_id)],
    )


def parsed(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The frame with these JSON columns parsed to dictionaries and lists of texts."""
    for column in columns:
        texts = frame[column].astype(object)
        frame[column] = [None if pd.isna(text) else _parsed(text) for text in texts]
    return frame


def _parsed(text: str) -> dict[str, str] | list[str] | None:
    try:
        content = read_json(text)
    except ValueError:
        return None
    if isinstance(content, dict):
        return {name: _as_text(value) for name, value in content.items()}
    return [_as_text(value) for value in content]


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def timestamp(seconds: pd.Series) -> pd.Series:
    """Seconds since the epoch as UTC timestamps."""
    return pd.to_datetime(seconds.astype(float), unit="s", utc=True)
