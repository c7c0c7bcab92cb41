"""What the queries share: picking an experiment's runs, and the types that DuckDB does not give."""

import json
from collections.abc import Callable, Collection, Sequence

import numpy as np
import pandas as pd

from breakeven.runner.texts import read_json
from breakeven.storage.index.journal_inserts import EVENT_TABLES
from breakeven.storage.index.store import Store
from breakeven.storage.memo import memo, revision

MINE = "experiment = $1"
"""Picks the rows of one experiment by its number, `Store.number_of`. Each table of events needs its
own condition, or else the database reads too many rows."""
USUAL = ("phases", "environments", "workloads", "steps", "blocks", "device_samples", "evaluations")
"""Tables of events in which nearly every experiment has rows."""
RARE = tuple(sorted(set(EVENT_TABLES.values()).difference(USUAL)))
_no_rows: dict[str, pd.DataFrame] = {}
"""By query."""


Ask = Callable[[Store, str], pd.DataFrame]


def query(
    source: str,
    columns: str,
    order: str = "seq",
    *,
    of: Collection[str] = (),
    many: bool = False,
    json: Collection[str] = (),
) -> Ask:
    """A function that asks a store for the `rows` of an experiment, given its id, and remembers
    them; `json`: columns of JSON texts, which it reads."""

    def ask(store: Store, experiment_id: str) -> pd.DataFrame:
        return parsed(rows(store, experiment_id, source, columns, order, of=of, many=many), *json)

    ask.__qualname__ = f"{source}: {columns}"  # By which the memo knows it.
    return memo(revision)(ask)


def rows(
    store: Store,
    experiment_id: str,
    source: str,
    columns: str,
    order: str,
    *parameters: object,
    of: Collection[str] = (),
    many: bool = False,
) -> pd.DataFrame:
    """run_id, label, role and columns of the experiment's rows, in the order of the variants.

    `source`: a table of events, or a query in parentheses or a view of `schema.sql`, both of the
    experiment of which the number is the parameter `$1`; `parameters` are `$2` and so on. `of`:
    tables of events without whose rows such a query or view has none. `many`: rows of every step
    or block, of which the three texts are categories.
    """
    is_table = source.isidentifier()
    sql = f"""SELECT place, {columns}
        FROM (FROM {source} {f"WHERE {MINE}" if is_table else ""})
        JOIN (SELECT run_id, position AS place FROM runs WHERE {MINE}) USING (run_id)
        ORDER BY place, {order}"""
    tables = {source} if is_table else set(of)
    is_rare = bool(tables) and tables.isdisjoint(USUAL)
    if is_rare and tables.isdisjoint(_tables_with_rows(store, experiment_id)):
        found = _without_rows(store, sql, parameters)
    else:
        found = store.query(sql, [store.number_of(experiment_id), *parameters])
    return with_runs(store, experiment_id, found, many=many)


@memo(revision)
def _tables_with_rows(store: Store, experiment_id: str) -> frozenset[str]:
    """In which of the tables that are rarely written to the experiment has rows. To ask them all
    takes as long as to ask one of them for what is not there, and most pages ask a dozen."""
    query = " UNION ALL ".join(
        f"(SELECT '{table}' FROM {table} WHERE {MINE} LIMIT 1)" for table in RARE
    )
    return frozenset(name for (name,) in store.rows(query, [store.number_of(experiment_id)]))


def _without_rows(store: Store, sql: str, parameters: Sequence[object]) -> pd.DataFrame:
    """What a query answers of an experiment that has nothing: columns of their types, which are the
    same in every store."""
    if sql not in _no_rows:
        _no_rows[sql] = store.query(sql, [0, *parameters])
    return _no_rows[sql]


def with_runs(
    store: Store, experiment_id: str, frame: pd.DataFrame, *, many: bool = False
) -> pd.DataFrame:
    """The frame with run_id, label and role for its `place`: a position among the variants.

    To fetch three texts with each of very many rows takes as long as all their numbers, and to keep
    them twice the room; as categories they take a byte each.
    """
    runs = _runs(store, experiment_id)
    row = np.searchsorted(runs["position"], frame["place"])
    columns = {name: column.array for name, column in frame.items() if name != "place"}
    texts = {
        name: (runs[name].astype("category") if many else runs[name]).array.take(row)
        for name in ("run_id", "label", "role")
    }
    # Made anew from its columns: to insert three into a frame takes three times as long.
    return pd.DataFrame({**texts, **columns}, copy=False)


def ends_of_runs(frame: pd.DataFrame) -> list[int]:
    """Where the rows of each run begin, which lie together, and where the last ones end."""
    ids = frame["run_id"].array
    if not len(ids):
        return [0]
    # Held against each other as they are: to make objects of all texts takes ten times as long.
    return [0, *(np.flatnonzero(np.asarray(ids[1:] != ids[:-1])) + 1), len(ids)]


@memo(revision, shared=True)
def _runs(store: Store, experiment_id: str) -> pd.DataFrame:
    return store.query(
        f"SELECT position, run_id, label, role FROM runs WHERE {MINE} ORDER BY position",
        [store.number_of(experiment_id)],
    )


def parsed(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The frame with these columns of JSON texts read: dictionaries and lists of texts."""
    for column in columns:
        texts = frame[column].astype(object)
        frame[column] = [None if pd.isna(text) else _parsed(text) for text in texts]
    return frame


def _parsed(text: str) -> dict[str, str] | list[str] | None:
    try:
        found = read_json(text)
    except ValueError:
        return None
    if isinstance(found, dict):
        return {name: _as_text(value) for name, value in found.items()}
    return [_as_text(value) for value in found]


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def timestamp(seconds: pd.Series) -> pd.Series:
    """Seconds since the epoch as UTC timestamps."""
    return pd.to_datetime(seconds.astype(float), unit="s", utc=True)
