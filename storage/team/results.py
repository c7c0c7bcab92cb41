"""Results that one process of a team computed, for all others: in a table of PostgreSQL's own.

DuckLake's tables would be the wrong place: each result would be a state of the store, for which
writers wait and every dashboard looks through its lists again.
"""

from contextlib import suppress

import duckdb

from breakeven.storage.errors import TeamStoreUnusable
from breakeven.storage.index.results import ResultKey, Results
from breakeven.storage.team.extensions import quoted
from breakeven.storage.team.lake import LAKE, LOCK, Lake

TABLE = "breakeven_results"
MAKING = f"""CREATE TABLE IF NOT EXISTS {TABLE} (
    experiment_id text, name text, revision bigint, num_runs bigint, version text, content text,
    PRIMARY KEY (experiment_id, name))"""


class TeamResults(Results):
    """Those of a team. Whoever may write them may change the rows that they were computed from."""

    is_shared = True

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def find(self, key: ResultKey) -> tuple[str, str] | None:
        """Nothing while the database is away."""
        wanted = " AND ".join(
            f"{name} = {_literal(value)}" for name, value in key._asdict().items()
        )
        rows = self._rows(f"SELECT content FROM {TABLE} WHERE {wanted}")
        return (rows[0][0], "") if rows else None

    def keep(self, key: ResultKey, content: str, mark: str) -> None:
        """Raises `TeamStoreUnusable`."""
        values = ", ".join(_literal(one) for one in (*key, content))
        told = ", ".join(
            f"{name} = excluded.{name}" for name in (*ResultKey._fields[2:], "content")
        )
        writing = (
            f"INSERT INTO {TABLE} VALUES ({values}) "
            f"ON CONFLICT (experiment_id, name) DO UPDATE SET {told}"
        )
        with self._lake.telling(), self._lake.connection.cursor() as cursor:
            for statement in (MAKING, writing):
                cursor.execute(f"CALL postgres_execute('{LOCK}', '{quoted(statement)}')")

    def all_of(self, name: str, version: str) -> set[tuple[str, int, int]]:
        wanted = f"name = {_literal(name)} AND version = {_literal(version)}"
        query = f"SELECT experiment_id, revision, num_runs FROM {TABLE} WHERE {wanted}"
        return {(str(one), int(newest), int(count)) for one, newest, count in self._rows(query)}

    def _rows(self, query: str) -> list[tuple[str, ...]]:
        """Nothing while the database is away, or before anything was kept."""
        if not self._lake.is_attached:
            return []
        with (
            suppress(TeamStoreUnusable),
            self._lake.telling(),
            self._lake.connection.cursor() as cursor,
        ):
            return cursor.execute(f"FROM postgres_query('{LOCK}', '{quoted(query)}')").fetchall()
        return []


def forget_gone(lake: Lake) -> None:
    """Removes the results of experiments that the store has no more; raises `TeamStoreUnusable`."""
    gone = (
        f"DELETE FROM {LOCK}.{TABLE} WHERE experiment_id NOT IN "
        f"(SELECT experiment_id FROM {LAKE}.runs)"
    )
    with lake.telling(), lake.connection.cursor() as cursor, suppress(duckdb.CatalogException):
        cursor.execute(gone)


def _literal(text: str) -> str:
    """As PostgreSQL reads it."""
    return f"'{quoted(text)}'"
