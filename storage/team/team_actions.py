"""Runs `breakeven team ACTION` on the store in the settings.

Upkeep, which one machine runs daily, writes rows of the database to files, merges small files of an
experiment, deletes removed rows, and deletes old snapshots without readers and the files that only
they need. The run folders fill an emptied store again.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.settings import FILE_NAME, read_settings
from breakeven.storage.errors import StoreError, TeamStoreUnusable
from breakeven.storage.index.ingest import EVENT_TABLES, Cursor
from breakeven.storage.team.feed import data_folder_id
from breakeven.storage.team.lake import ALL_TABLES, LAKE, RESULTS, Lake, Overtaken, create
from breakeven.storage.team.store_address import Address, team_address
from breakeven.storage.team.team_store import TeamStore

MAX_ATTEMPTS = 5
NUMBER_TABLES = ("experiments", "present")
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
    with lake.connected(), lake.connection.cursor() as cursor, suppress(duckdb.CatalogException):
        gone = f"experiment_id NOT IN (SELECT experiment_id FROM {LAKE}.runs)"
        cursor.execute(f"DELETE FROM {RESULTS} WHERE {gone}")
    yield "earlier states"
    old = f"older_than => now() - INTERVAL '{round(days * 86400)} seconds'"
    _call(lake, f"expire_snapshots('{LAKE}', {old})")
    _call(lake, f"cleanup_old_files('{LAKE}', {old})")
    _call(lake, f"delete_orphaned_files('{LAKE}', {old})")


def _call(lake: Lake, function: str) -> None:
    for _ in range(MAX_ATTEMPTS):
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
    of_folder = "run_id IN (SELECT run_id FROM progress WHERE data_folder = ?)"
    with lake.writing() as (cursor, _):
        row = cursor.execute(
            f"SELECT count(*) FROM progress WHERE {of_folder}", [data_folder]
        ).fetchone()
        for table in (*EVENT_TABLES.values(), "runs", "labels", "progress"):
            cursor.execute(f"DELETE FROM {table} WHERE {of_folder}", [data_folder])
        cursor.execute("DELETE FROM unreadable WHERE data_folder = ?", [data_folder])
        cursor.execute("DELETE FROM data_folders WHERE data_folder = ?", [data_folder])
    return int(row[0]) if row else 0


def reset(lake: Lake) -> None:
    """Creates all tables again, whichever version created them; raises `TeamStoreUnusable`."""
    with lake.writing() as (cursor, _):
        kept = {table: _rows(cursor, table) for table in NUMBER_TABLES}
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


PAUSE_SECONDS, PAUSE_SHARE = 2.0, 10.0
"""Shortest pause between two ticks, and the pause as a multiple of the last tick's duration: if
many machines wait for each other, all write less often and more rows at once."""


def run(data_dir: DataDir, options: argparse.Namespace, examples: Path) -> int:
    """Runs an action; raises `StoreError`."""
    address = team_address(read_settings(data_dir.path).store)
    if address is None:
        file = data_dir.path / FILE_NAME
        raise StoreError(f"store.address of {file} names no store (docs/operating.md)")
    if options.action == "ingest":
        return _ingest(address, data_dir, examples, goes_on=options.watch)
    if options.action == "reset" and not options.yes:
        raise StoreError(
            "reset forgets every run whose folder no machine has any more; say it again with --yes"
        )
    lake = Lake(address, check=options.action != "reset")
    try:
        if options.action == "status":
            _say(_status(lake))
        elif options.action == "upkeep":
            _keep_up(lake, options.days)
        elif options.action == "reset":
            reset(lake)
            _say("the store is empty; each machine takes its run folders in again by itself")
        else:
            count = forget_folder(lake, data_folder_id(data_dir))
            _say(f"forgot {count} runs of {data_dir.path}")
    finally:
        lake.close()
    return _ingest(address, data_dir, examples) if options.action == "rebuild" else 0


def _ingest(address: Address, data_dir: DataDir, examples: Path, *, goes_on: bool = False) -> int:
    with TeamStore.at(address, data_dir, examples) as store:
        while True:
            begun = time.monotonic()
            try:
                num_rows = store.ingest_all()
            except TeamStoreUnusable as error:
                if not goes_on:
                    raise
                _say(str(error))
                num_rows = 0
            if num_rows or not goes_on:
                _say(f"took in {num_rows} rows")
            if not store.feeds:
                raise StoreError(f"another process takes in {data_dir.path} already")
            if not goes_on:
                return 0
            time.sleep(max(PAUSE_SECONDS, PAUSE_SHARE * (time.monotonic() - begun)))


def _keep_up(lake: Lake, days: float) -> None:
    before = size(lake)
    for part in upkeep(lake, days):
        _say(part)
    after = size(lake)
    _say(
        f"files {before.files} -> {after.files}, bytes {before.bytes} -> {after.bytes}, "
        f"rows that wait in the database {before.rows_in_database} -> {after.rows_in_database}"
    )


def _status(lake: Lake) -> str:
    with lake.reading() as cursor:
        folders = cursor.execute("""
            SELECT host, path, count(run_id), max(coalesce(ended, claimed))
            FROM (SELECT DISTINCT data_folder, host, path FROM data_folders)
                LEFT JOIN progress USING (data_folder)
            GROUP BY data_folder, host, path ORDER BY host, path""").fetchall()
        (experiments,) = cursor.execute(
            "SELECT count(DISTINCT experiment_id) FROM runs"
        ).fetchone() or (0,)
    held = size(lake)
    lines = [
        lake.address.masked,
        f"{experiments} experiments; {held.files} files, {held.bytes} bytes; "
        f"{held.rows_in_database} rows wait in the database for upkeep",
    ]
    for host, path, runs, latest in folders:
        when = "never" if latest is None else time.strftime("%Y-%m-%d %H:%M", time.gmtime(latest))
        lines.append(f"  {host}:{path}  {runs} runs, the latest claimed or ended {when} UTC")
    return "\n".join(lines)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
