"""Brings run folders into the database: incrementally, and every event exactly once.

A *tick* looks at every folder, takes what its journal gained since the last one, removes what a
resumption takes back, and commits rows and new byte offsets in one transaction. A tick that is
killed leaves no trace; the next one reads the same bytes again.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from typing import Any

import duckdb
import pandas as pd

from runner.folders.run_dir import RunDir
from storage.index.folders import Look, Progress, look
from storage.index.journal_rows import (
    EVENT_TABLES,
    Columns,
    Cursor,
    drop_torn_lines,
    event_columns,
    journal_files,
    mend_slices,
    reader,
)
from storage.index.labels import ChangedLabels, changed_labels, known_labels
from storage.index.resumption import take_back


def run_tick(cursor: Cursor, folders: Mapping[str, tuple[RunDir, str]]) -> tuple[int, bool]:
    """Runs one tick; returns the number of new event rows and whether more bytes wait."""
    known = _known_progress(cursor)
    known_unreadable = cursor.execute("SELECT folder, message FROM unreadable").fetchall()
    seen = look(folders, known)
    moved = [row.run_id for row in seen.progress.values() if _has_moved(row, known)]
    gone = [*(known.keys() - seen.progress.keys()), *moved]
    changed = [row for run_id, row in seen.progress.items() if row != known.get(run_id)]
    labels = changed_labels(seen, folders, known_labels(cursor))
    if not (gone or changed or labels) and seen.unreadable == dict(known_unreadable):
        return 0, seen.is_full
    drop_torn_lines(seen)
    try:
        num_rows = _commit(cursor, seen, gone, changed, labels)
    except duckdb.Error:
        # One line that the database gives up on must not keep all other journals out.
        if not mend_slices(cursor, seen):
            raise
        num_rows = _commit(cursor, seen, gone, changed, labels)
    return num_rows, seen.is_full


def _commit(
    cursor: Cursor, seen: Look, gone: list[str], changed: list[Progress], labels: ChangedLabels
) -> int:
    cursor.begin()
    try:
        num_rows = _write(cursor, seen, gone, changed)
        _write_labels(cursor, labels)
        cursor.commit()
    except BaseException:
        with suppress(duckdb.Error):  # A commit that failed has rolled back already.
            cursor.rollback()
        raise
    return num_rows


def _has_moved(row: Progress, known: Mapping[str, Progress]) -> bool:
    """Whether another copy of the same run takes the place of the one that was read."""
    return row.run_id in known and row.folder != known[row.run_id].folder


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


def _write_labels(cursor: Cursor, labels: ChangedLabels) -> None:
    _delete(cursor, "labels", list(labels))
    rows = [{"run_id": run_id, "stamp": found[0], "content": found[1]}
            for run_id, found in labels.items() if found is not None]  # fmt: skip
    _insert(cursor, "labels", rows)


def _delete(cursor: Cursor, table: str, run_ids: list[str]) -> None:
    if run_ids:
        cursor.execute(f"DELETE FROM {table} WHERE run_id IN (SELECT unnest(?))", [run_ids])


def _insert(cursor: Cursor, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    frame = pd.DataFrame([{name: _storable(value) for name, value in row.items()} for row in rows],
                         dtype=object)  # fmt: skip
    if not frame.empty:
        cursor.register("new_rows", frame)
        cursor.execute(f"INSERT INTO {table} BY NAME SELECT * FROM new_rows")
        cursor.unregister("new_rows")


def _storable(value: Any) -> Any:
    """DuckDB takes a text that is not Unicode for its own failure, and then answers nobody."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _insert_events(cursor: Cursor, slices: Mapping[str, bytes]) -> int:
    """Inserts journal lines of many runs in two passes over files that hold just them.

    Steps, by far the most rows, go with their few columns straight into their table. All other
    kinds are read once, with all columns that any of them has, and then distributed.
    """
    tables = event_columns(cursor)
    with journal_files(slices) as names:
        steps = reader(tables["steps"])
        num_rows = _insert_kind(cursor, "step", tables["steps"], steps, names)
        merged = {name: column for table in tables.values() for name, column in table.items()}
        staging = f"CREATE TEMP TABLE staged AS SELECT * FROM {reader(merged)} WHERE kind <> 'step'"
        cursor.execute(staging, [names])
    for kind in EVENT_TABLES.keys() - {"step"}:
        num_rows += _insert_kind(cursor, kind, tables[EVENT_TABLES[kind]], "staged")
    resumed = cursor.execute("SELECT DISTINCT run_id FROM staged WHERE kind = 'resumed'").fetchall()
    take_back(cursor, [run_id for (run_id,) in resumed])
    cursor.execute("DROP TABLE staged")
    return num_rows


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
