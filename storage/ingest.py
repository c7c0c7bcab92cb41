"""Brings run folders into the database: incrementally, and every event exactly once.

A *tick* looks at every folder, takes what its journal gained since the last one, removes what a
resumption takes back, and commits rows and new byte offsets in one transaction. A tick that is
killed leaves no trace; the next one reads the same bytes again.
"""

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from runner.run_dir import RunDir
from storage.folders import Look, Progress, look
from storage.resumption import take_back

EVENT_TABLES = {
    "phase": "phases",
    "environment": "environments",
    "workload": "workloads",
    "compile_started": "compile_starts",
    "compile_ended": "compile_ends",
    "compile_metrics": "compile_metrics",
    "compile_cache": "compile_caches",
    "graph_break": "graph_breaks",
    "step": "steps",
    "block": "blocks",
    "device": "device_samples",
    "evaluation": "evaluations",
    "checkpoint": "checkpoints",
    "resumed": "resumptions",
    "gradient_statistics": "gradient_statistics",
    "prediction": "predictions",
    "value": "own_values",
    "stopped": "stops",
    "source": "sources",
    "accuracy": "accuracy_tensors",
    "accuracy_status": "accuracy_statuses",
    "error": "errors",
}
"""Kind of event to its table, whose columns name the fields to read."""

Cursor = duckdb.DuckDBPyConnection


def run_tick(cursor: Cursor, folders: Mapping[str, tuple[RunDir, str]]) -> tuple[int, bool]:
    """Runs one tick; returns the number of new event rows and whether more bytes wait."""
    known = _known_progress(cursor)
    known_unreadable = cursor.execute("SELECT folder, message FROM unreadable").fetchall()
    seen = look(folders, known)
    moved = [row.run_id for row in seen.progress.values() if _has_moved(row, known)]
    gone = [*(known.keys() - seen.progress.keys()), *moved]
    changed = [row for run_id, row in seen.progress.items() if row != known.get(run_id)]
    if not gone and not changed and seen.unreadable == dict(known_unreadable):
        return 0, seen.is_full
    cursor.begin()
    try:
        num_rows = _write(cursor, seen, gone, changed)
        cursor.commit()
    except BaseException:
        cursor.rollback()
        raise
    return num_rows, seen.is_full


def _has_moved(row: Progress, known: Mapping[str, Progress]) -> bool:
    """Whether another copy of the same run takes the place of the one that was read."""
    return row.run_id in known and row.folder != known[row.run_id].folder


def forget_all(cursor: Cursor) -> None:
    """Empties the index."""
    cursor.begin()
    for table in ("runs", "progress", "unreadable", *EVENT_TABLES.values()):
        cursor.execute(f"DELETE FROM {table}")
    cursor.commit()


def _known_progress(cursor: Cursor) -> dict[str, Progress]:
    names = [field.name for field in fields(Progress)]
    rows = cursor.execute(f"SELECT {', '.join(names)} FROM progress").fetchall()
    return {row[0]: Progress(**dict(zip(names, row, strict=True))) for row in rows}


def _write(cursor: Cursor, seen: Look, gone: list[str], changed: list[Progress]) -> int:
    """Writes what a look found; returns the number of new event rows."""
    for table in EVENT_TABLES.values():
        _delete(cursor, table, [*gone, *seen.restarted])
    _delete(cursor, "runs", gone)
    _insert(cursor, "runs", seen.new_runs)
    _delete(cursor, "progress", [*gone, *(row.run_id for row in changed)])
    _insert(cursor, "progress", [asdict(row) for row in changed])
    cursor.execute("DELETE FROM unreadable")
    rows = [{"folder": folder, "message": why} for folder, why in seen.unreadable.items()]
    _insert(cursor, "unreadable", rows)
    return _insert_events(cursor, seen.slices) if seen.slices else 0


def _delete(cursor: Cursor, table: str, run_ids: list[str]) -> None:
    if run_ids:
        cursor.execute(f"DELETE FROM {table} WHERE run_id IN (SELECT unnest(?))", [run_ids])


def _insert(cursor: Cursor, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    frame = pd.DataFrame(rows, dtype=object)
    if not frame.empty:
        cursor.register("new_rows", frame)
        cursor.execute(f"INSERT INTO {table} BY NAME SELECT * FROM new_rows")
        cursor.unregister("new_rows")


def _insert_events(cursor: Cursor, slices: Mapping[str, bytes]) -> int:
    """Inserts journal lines of many runs in two passes over files that hold just them.

    Steps, by far the most rows, go with their few columns straight into their table. All other
    kinds are read once, with all columns that any of them has, and then distributed.
    """
    tables = _event_columns(cursor)
    with tempfile.TemporaryDirectory(prefix="breakeven-") as folder:
        files = [Path(folder, f"{run_id}.ndjson") for run_id in slices]
        for file, lines in zip(files, slices.values(), strict=True):
            file.write_bytes(lines)
        names = [str(file) for file in files]
        steps = _reader(tables["steps"])
        num_rows = _insert_kind(cursor, "step", tables["steps"], steps, names)
        merged = {name: column for table in tables.values() for name, column in table.items()}
        staging = (
            f"CREATE TEMP TABLE staged AS SELECT * FROM {_reader(merged)} WHERE kind <> 'step'"
        )
        cursor.execute(staging, [names])
    for kind in EVENT_TABLES.keys() - {"step"}:
        num_rows += _insert_kind(cursor, kind, tables[EVENT_TABLES[kind]], "staged")
    resumed = cursor.execute("SELECT DISTINCT run_id FROM staged WHERE kind = 'resumed'").fetchall()
    take_back(cursor, [run_id for (run_id,) in resumed])
    cursor.execute("DROP TABLE staged")
    return num_rows


Columns = dict[str, tuple[str, bool]]
"""Name to type and whether a value is required."""


def _event_columns(cursor: Cursor) -> dict[str, Columns]:
    tables: dict[str, Columns] = {table: {} for table in EVENT_TABLES.values()}
    query = (
        "SELECT table_name, column_name, data_type, NOT is_nullable FROM duckdb_columns() "
        "WHERE table_name IN (SELECT unnest(?)) AND column_name <> 'run_id'"
    )
    for table, name, kind, required in cursor.execute(query, [list(tables)]).fetchall():
        tables[table][name] = (kind, required)
    return tables


def _reader(columns: Columns) -> str:
    """SQL that reads journal files, given as its parameter, as a table with these columns.

    Ill-formed lines become rows of NULLs and ill-typed fields NULL. The texts "NaN", "Infinity"
    and "-Infinity" become numbers in a number column.
    """
    types = {"kind": "VARCHAR"} | {name: kind for name, (kind, _) in columns.items()}
    listed = ", ".join(f"'{name}': '{kind}'" for name, kind in types.items())
    return (
        f"(SELECT * EXCLUDE (filename), parse_filename(filename, true) AS run_id FROM "
        f"read_ndjson(?, columns={{{listed}}}, ignore_errors=true, filename=true))"
    )


def _insert_kind(
    cursor: Cursor, kind: str, columns: Columns, source: str, files: list[str] | None = None
) -> int:
    """Inserts the rows of one kind that have all required fields; returns their number."""
    names = ", ".join(["run_id", *columns])
    required = "".join(
        f" AND {name} IS NOT NULL" for name, (_, needed) in columns.items() if needed
    )
    query = (
        f"INSERT INTO {EVENT_TABLES[kind]} BY NAME "
        f"SELECT {names} FROM {source} WHERE kind = '{kind}'{required}"
    )
    row = cursor.execute(query, [] if files is None else [files]).fetchone()
    return 0 if row is None else int(row[0])
