"""What the queries share: picking an experiment's runs, and the types that DuckDB does not give."""

import json

import pandas as pd

from storage.index.store import Store

MINE = "starts_with(run_id, $1)"
"""Picks the runs of one experiment by `prefix`. Unlike a join, DuckDB applies it before it sorts
rows into windows, which makes these queries ten times faster in a large store."""


def rows(store: Store, experiment_id: str, table: str, columns: str, order: str) -> pd.DataFrame:
    """run_id, label, role and columns of a table, view or query, in the order of the variants."""
    return store.query(
        f"""SELECT run_id, label, role, {columns}
        FROM (FROM {table} WHERE {MINE})
        JOIN (SELECT run_id, label, role, position AS place FROM runs) USING (run_id)
        ORDER BY place, {order}""",
        [prefix(experiment_id)],
    )


def prefix(experiment_id: str) -> str:
    """How the ids of an experiment's runs begin, and of no other's: ids hold no dot."""
    return f"{experiment_id}."


def parsed(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The frame with these columns of JSON texts read: dictionaries and lists of texts."""
    for column in columns:
        texts = frame[column].astype(object)
        frame[column] = [None if pd.isna(text) else _parsed(text) for text in texts]
    return frame


def _parsed(text: str) -> dict[str, str] | list[str] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict):
        return {name: _as_text(value) for name, value in found.items()}
    return [_as_text(value) for value in found]


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def timestamp(seconds: pd.Series) -> pd.Series:
    """Seconds since the epoch as UTC timestamps."""
    return pd.to_datetime(seconds.astype(float), unit="s", utc=True)
