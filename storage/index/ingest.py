"""Brings run folders into the database: incrementally, and every event exactly once.

A *tick* looks at the folders that may have changed, takes what their journals gained since the last
one, removes what a resumption takes back, and commits rows and new byte offsets in one transaction.
A tick that is killed leaves no trace; the next one reads the same bytes again.
"""

from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from storage.index import folders
from storage.index.batches import Batch, batches, together
from storage.index.folders import Look, Progress
from storage.index.journal_lines import kinds_in, whole_lines
from storage.index.journal_rows import (
    EVENT_TABLES,
    OF_FILE,
    OF_LINE,
    Columns,
    Cursor,
    Owner,
    event_columns,
    journal_files,
    mend_slices,
    reader,
)
from storage.index.labels import known_labels
from storage.index.resumption import take_back
from storage.index.watch import Watch

SMALL_BYTES = 500_000
"""Of new lines, up to which reading all of them at once takes less than a statement per kind."""


def run_tick(cursor: Cursor, watch: Watch, ticks: int = 1) -> tuple[int, bool]:
    """Runs one tick, or as much as several; returns the number of new event rows and whether more
    bytes wait."""
    seen = watch.look(ticks * folders.MAX_TICK_BYTES)
    changed = [row for run_id, row in seen.progress.items() if row != watch.known.get(run_id)]
    is_new = bool(seen.gone or changed or seen.labels or seen.unreadable != watch.unreadable)
    num_rows = _take_in(cursor, seen, changed) if is_new else 0
    watch.taken_in(seen, is_new=is_new)
    return num_rows, bool(seen.behind)


def start_watch(cursor: Cursor, runs: Path, examples: Path | None) -> Watch:
    """A watch over run folders that knows what the database holds of them."""
    names = [field.name for field in fields(Progress)]
    rows = cursor.execute(f"SELECT {', '.join(names)} FROM progress").fetchall()
    known = {row[0]: Progress(**dict(zip(names, row, strict=True))) for row in rows}
    told = cursor.execute("SELECT folder, message FROM unreadable").fetchall()
    unreadable = {Path(folder).name: (folder, why) for folder, why in told}
    return Watch(runs, examples, known, unreadable, known_labels(cursor))


def _take_in(cursor: Cursor, seen: Look, changed: list[Progress]) -> int:
    seen.slices = {run_id: whole_lines(lines) for run_id, lines in seen.slices.items()}
    try:
        return _commit(cursor, seen, changed)
    except duckdb.Error:
        # One line that the database gives up on must not keep all other journals out.
        if not mend_slices(cursor, seen):
            raise
        return _commit(cursor, seen, changed)


def _commit(cursor: Cursor, seen: Look, changed: list[Progress]) -> int:
    cursor.begin()
    try:
        num_rows = _write(cursor, seen, changed)
        _write_labels(cursor, seen)
        cursor.commit()
    except BaseException:
        with suppress(duckdb.Error):  # A commit that failed has rolled back already.
            cursor.rollback()
        raise
    return num_rows


def _write(cursor: Cursor, seen: Look, changed: list[Progress]) -> int:
    """Writes what a look found; returns the number of new event rows."""
    for table in EVENT_TABLES.values():
        _delete(cursor, table, [*seen.gone, *seen.restarted])
    _delete(cursor, "runs", seen.gone)
    numbers = _numbers(cursor, seen)
    _insert(cursor, "runs", [{**row, "experiment": numbers[row["experiment_id"]]}
                             for row in seen.new_runs])  # fmt: skip
    _delete(cursor, "progress", [*seen.gone, *(row.run_id for row in changed)])
    _insert(cursor, "progress", [asdict(row) for row in changed])
    cursor.execute("DELETE FROM unreadable")
    rows = [{"folder": folder, "message": why} for folder, why in seen.unreadable.values()]
    _insert(cursor, "unreadable", rows)
    slices = {(numbers[run_id.partition(".")[0]], run_id): lines
              for run_id, lines in seen.slices.items()}  # fmt: skip
    return _insert_events(cursor, slices) if slices else 0


def _numbers(cursor: Cursor, seen: Look) -> dict[str, int]:
    """The numbers of the experiments that a look found something of; new ones are given theirs."""
    ids = {row["experiment_id"] for row in seen.new_runs}
    ids |= {run_id.partition(".")[0] for run_id in seen.slices}
    if not ids:
        return {}
    cursor.execute(
        "INSERT INTO experiments (experiment_id) SELECT unnest(?) AS experiment_id "
        "EXCEPT SELECT experiment_id FROM experiments", [sorted(ids)]
    )  # fmt: skip
    query = "SELECT * FROM experiments WHERE experiment_id IN (SELECT unnest(?))"
    return dict(cursor.execute(query, [sorted(ids)]).fetchall())


def _write_labels(cursor: Cursor, seen: Look) -> None:
    _delete(cursor, "labels", [*seen.gone, *seen.labels])
    rows = [{"run_id": run_id, "stamp": found[0], "content": found[1]}
            for run_id, found in seen.labels.items() if found is not None]  # fmt: skip
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


def _insert_events(cursor: Cursor, slices: Mapping[Owner, bytes]) -> int:
    """Inserts journal lines of many runs.

    The most frequent kinds go, each with its few columns, straight into their tables. All other
    lines are read with all columns that any kind has, and then distributed.
    """
    tables = event_columns(cursor)
    if sum(map(len, slices.values())) < SMALL_BYTES:
        return _distribute(cursor, tables, slices)
    num_rows = 0
    others: dict[Owner, bytes] = {}
    with closing(batches(slices)) as ready:
        for batch in ready:
            num_rows += _insert_batch(cursor, tables, batch)
            others |= batch.others
    return num_rows + _distribute(cursor, tables, others)


def _insert_batch(cursor: Cursor, tables: Mapping[str, Columns], batch: Batch) -> int:
    """Inserts the rows of the most frequent kinds."""
    num_rows = 0
    for files, owner in ((batch.own_files, OF_FILE), (batch.shared_files, OF_LINE)):
        for kind, names in files.items():
            columns = tables[EVENT_TABLES[kind]]
            num_rows += _insert_kind(cursor, kind, columns, reader(columns, owner), names)
    return num_rows


def _distribute(
    cursor: Cursor, tables: Mapping[str, Columns], slices: Mapping[Owner, bytes]
) -> int:
    """Inserts lines into the tables of their kinds."""
    if not slices:
        return 0
    joined = together(slices)
    kinds = kinds_in(b"".join(joined.values()), EVENT_TABLES)
    if not kinds:
        return 0
    merged = {name: column for kind in kinds for name, column in tables[EVENT_TABLES[kind]].items()}
    with journal_files(joined) as names:
        staging = f"CREATE TEMP TABLE staged AS SELECT * FROM {reader(merged, OF_LINE)}"
        cursor.execute(staging, [names])
    found = {kind for (kind,) in cursor.execute("SELECT DISTINCT kind FROM staged").fetchall()}
    num_rows = 0
    for kind in EVENT_TABLES.keys() & found:
        num_rows += _insert_kind(cursor, kind, tables[EVENT_TABLES[kind]], "staged")
    resumed = cursor.execute("SELECT DISTINCT run_id FROM staged WHERE kind = 'resumed'").fetchall()
    take_back(cursor, [run_id for (run_id,) in resumed])
    cursor.execute("DROP TABLE staged")
    return num_rows


def _insert_kind(
    cursor: Cursor, kind: str, columns: Columns, source: str, files: list[str] | None = None
) -> int:
    """Inserts the rows of one kind that have all required fields; returns their number."""
    names = ", ".join(["experiment", "run_id", *columns])
    required = "".join(
        f" AND {name} IS NOT NULL" for name, (_, needed) in columns.items() if needed
    )
    query = (
        f"INSERT INTO {EVENT_TABLES[kind]} BY NAME "
        f"SELECT {names} FROM {source} WHERE kind = '{kind}'{required}"
    )
    row = cursor.execute(query, [] if files is None else [files]).fetchone()
    return 0 if row is None else int(row[0])
