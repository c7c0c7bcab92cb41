"""What the queries share: picking an experiment's runs, and the types that DuckDB does not give."""

import json
import pickle
from collections.abc import Collection, Iterable, Iterator
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from breakeven.runner.texts import read_json
from breakeven.storage.index.journal_rows import EVENT_TABLES
from breakeven.storage.index.store import Store
from breakeven.storage.queries.kept import kept

AT_ONCE = 200
"""Experiments whose specifications are looked at together."""
STAMP_CHARACTERS = 22
MICROSECONDS = "datetime64[us, UTC]"
CLOCKS_DIFFER = pd.Timedelta(days=1)
"""By so much at most a time of another machine may lie ahead."""
MINE = "experiment = $1"
"""Picks the rows of one experiment by its number, `Store.number_of`. It has to stand beside each
table of events, or else the database reads more than it must."""
USUAL = ("phases", "environments", "workloads", "steps", "blocks", "device_samples", "evaluations")
"""Tables of events in which nearly every experiment has rows."""
RARE = tuple(sorted(set(EVENT_TABLES.values()).difference(USUAL)))


def in_parts(experiment_ids: Iterable[str]) -> Iterator[list[str]]:
    """So many experiments at a time as have room for their specifications in the memory that the
    database is allowed."""
    ids = list(experiment_ids)
    return (ids[first : first + AT_ONCE] for first in range(0, len(ids), AT_ONCE))


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
    has_none = is_rare and tables.isdisjoint(_told_of(store, experiment_id))
    nothing = _nothing.setdefault(store, {})
    if has_none and sql in nothing:
        return pickle.loads(nothing[sql])
    found = store.query(sql, [store.number_of(experiment_id), *parameters])
    frame = with_runs(store, experiment_id, found, many=many)
    if has_none and frame.empty:
        nothing[sql] = pickle.dumps(frame)
    return frame


@kept
def _told_of(store: Store, experiment_id: str) -> frozenset[str]:
    """In which of the tables that are rarely written to the experiment has rows. To ask them all
    takes as long as to ask one of them for what is not there, and most pages ask a dozen."""
    asked = " UNION ALL ".join(
        f"(SELECT '{table}' FROM {table} WHERE {MINE} LIMIT 1)" for table in RARE
    )
    return frozenset(name for (name,) in store.rows(asked, [store.number_of(experiment_id)]))


_nothing: WeakKeyDictionary[Store, dict[str, bytes]] = WeakKeyDictionary()
"""What queries of a store answer where there is nothing: columns of their types without a row."""


def with_runs(
    store: Store, experiment_id: str, frame: pd.DataFrame, *, many: bool = False
) -> pd.DataFrame:
    """The frame with run_id, label and role for its `place`: a position among the variants.

    To fetch three texts with each of very many rows takes as long as all their numbers, and to keep
    them twice the room; as categories they take a byte each.
    """
    runs = _runs(store, experiment_id)
    row = np.searchsorted(runs["position"], frame.pop("place"))
    for column, name in enumerate(("run_id", "label", "role")):
        texts = runs[name].astype("category") if many else runs[name]
        frame.insert(column, name, texts.array.take(row))
    return frame


def ends_of_runs(frame: pd.DataFrame) -> list[int]:
    """Where the rows of each run begin, which lie together, and where the last ones end."""
    ids = frame["run_id"].array
    if not len(ids):
        return [0]
    # Held against each other as they are: to make objects of all texts takes ten times as long.
    return [0, *(np.flatnonzero(np.asarray(ids[1:] != ids[:-1])) + 1), len(ids)]


@kept
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


def submitted(ids: pd.Series, claimed: pd.Series) -> pd.Series:
    """When experiments were submitted, UTC: their ids begin with it, and of one made by other means
    the first claim, in seconds since the epoch, must do.

    NaT for what both put into the future, or before there were such times: a folder from elsewhere
    would be the newest for ever, of lists and of trends.
    """
    stamps = ids.str.slice(0, STAMP_CHARACTERS)
    said = pd.to_datetime(stamps, format="%Y%m%d-%H%M%S-%f", errors="coerce", utc=True)
    known = [_plausible(one.astype(MICROSECONDS)) for one in (said, timestamp(claimed))]
    return known[0].fillna(known[1])


def _plausible(times: pd.Series) -> pd.Series:
    first = pd.Timestamp(0, tz="UTC")
    return times.where((times >= first) & (times <= pd.Timestamp.now("UTC") + CLOCKS_DIFFER))


def timestamp(seconds: pd.Series) -> pd.Series:
    """Seconds since the epoch as UTC timestamps."""
    return pd.to_datetime(seconds.astype(float), unit="s", utc=True)
