"""Keeps a team's store fast and small; one machine runs this daily.

Upkeep writes rows of the database to files, merges small files of an experiment, deletes removed
rows, and deletes old snapshots without readers and the files that only they need. This module also
empties the store, or removes the rows of one data folder; the run folders fill it again.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import duckdb

from breakeven.storage.index.journal_inserts import EVENT_TABLES, Cursor
from breakeven.storage.team.lake import ALL_TABLES, LAKE, RESULTS, Lake, Overtaken, create

ATTEMPTS = 5
NUMBERS = ("experiments", "present")
"""Tables that a reset preserves: dashboards identify experiments by these numbers."""


@dataclass(frozen=True, kw_only=True)
class StoreSize:
    """The size of a store."""

    files: int
    bytes: int
    rows_in_database: int


def upkeep(lake: Lake, days: float = 7.0) -> Iterator[str]:
    """Maintains one table after the other, so that writers wait only briefly; yields the name of
    each part. May be interrupted at any point. Raises `TeamStoreUnusable`."""
    lake.speed_up()
    for table in ALL_TABLES:
        yield table
        for function in ("flush_inlined_data", "rewrite_data_files", "merge_adjacent_files"):
            named = f"table_name => '{table}'" if function.startswith("flush") else f"'{table}'"
            _call(lake, f"{function}('{LAKE}', {named})")
    yield "results"
    with lake.telling(), lake.connection.cursor() as cursor, suppress(duckdb.CatalogException):
        gone = f"experiment_id NOT IN (SELECT experiment_id FROM {LAKE}.runs)"
        cursor.execute(f"DELETE FROM {RESULTS} WHERE {gone}")
    yield "earlier states"
    old = f"older_than => now() - INTERVAL '{round(days * 86400)} seconds'"
    _call(lake, f"expire_snapshots('{LAKE}', {old})")
    _call(lake, f"cleanup_old_files('{LAKE}', {old})")
    _call(lake, f"delete_orphaned_files('{LAKE}', {old})")


def _call(lake: Lake, function: str) -> None:
    for _ in range(ATTEMPTS):
        try:
            lake.execute(f"CALL ducklake_{function}")
            return
        except Overtaken:  # Only a writer that had lost the lock can cause this.
            continue


def size(lake: Lake) -> StoreSize:
    """The size of the store; raises `TeamStoreUnusable`."""
    with lake.reading() as cursor:
        row = cursor.execute(
            f"SELECT coalesce(sum(file_count), 0), coalesce(sum(file_size_bytes), 0) "
            f"FROM ducklake_table_info('{LAKE}')"
        ).fetchone()
        assert row is not None
        return StoreSize(files=int(row[0]), bytes=int(row[1]), rows_in_database=_inlined(lake))


def _inlined(lake: Lake) -> int:
    """Number of rows that wait in the database for upkeep."""
    with lake.connection.cursor() as cursor:
        catalog = f"__ducklake_metadata_{LAKE}"
        query = f"SELECT DISTINCT table_name FROM {catalog}.ducklake_inlined_data_tables"
        counts = [
            f'SELECT count(*) AS n FROM {catalog}."{table}" WHERE end_snapshot IS NULL'
            for (table,) in cursor.execute(query).fetchall()
        ]
        if not counts:
            return 0
        row = cursor.execute(f"SELECT sum(n) FROM ({' UNION ALL '.join(counts)})").fetchone()
        return int(row[0] or 0) if row else 0


def forget_folder(lake: Lake, data_folder: str) -> int:
    """Removes the rows of a data folder and returns the number of its runs; raises
    `TeamStoreUnusable`."""
    mine = "run_id IN (SELECT run_id FROM progress WHERE data_folder = ?)"
    with lake.writing() as (cursor, _):
        row = cursor.execute(
            f"SELECT count(*) FROM progress WHERE {mine}", [data_folder]
        ).fetchone()
        for table in (*EVENT_TABLES.values(), "runs", "labels", "progress"):
            cursor.execute(f"DELETE FROM {table} WHERE {mine}", [data_folder])
        cursor.execute("DELETE FROM unreadable WHERE data_folder = ?", [data_folder])
        cursor.execute("DELETE FROM data_folders WHERE data_folder = ?", [data_folder])
    return int(row[0]) if row else 0


def reset(lake: Lake) -> None:
    """Creates all tables again, whichever version created them; raises `TeamStoreUnusable`."""
    with lake.writing() as (cursor, _):
        kept = {table: _rows(cursor, table) for table in NUMBERS}
        for table in ALL_TABLES:
            cursor.execute(f"DROP TABLE IF EXISTS {table}")
        macros = cursor.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() "
            "WHERE database_name = current_database() AND function_type = 'table_macro'"
        ).fetchall()
        for (macro,) in macros:
            cursor.execute(f"DROP MACRO TABLE {macro}")
        create(cursor)
        for table, rows in kept.items():
            if rows:
                columns = [list(column) for column in zip(*rows, strict=True)]
                cursor.execute(f"INSERT INTO {table} SELECT unnest(?), unnest(?)", columns)


def _rows(cursor: Cursor, table: str) -> list[tuple[object, ...]]:
    with suppress(duckdb.CatalogException):
        return cursor.execute(f"FROM {table}").fetchall()
    return []
