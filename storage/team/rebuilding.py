"""Empties a team's store, or what one data folder told it: it fills again from the run folders."""

from contextlib import suppress

import duckdb

from breakeven.storage.index.journal_rows import EVENT_TABLES, Cursor
from breakeven.storage.team.lake import ALL_TABLES, Lake, create

NUMBERS = ("experiments", "present")
"""What stays: dashboards know experiments by these numbers."""


def forget_folder(lake: Lake, data_folder: str) -> int:
    """Removes what a data folder told and returns the number of its runs; raises
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
    """Makes all tables anew, whichever version made them; raises `TeamStoreUnusable`."""
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
