"""Ingests run folders into the database: incrementally, and every event exactly once.

A *tick* examines the folders that may have changed, reads the new lines of their journals, removes
the rows that a resumption invalidates, and commits rows and new byte offsets in one transaction.
A killed tick changes nothing; the next one reads the same bytes again.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from breakeven.storage.index.folders import FolderScan, IndexedRun
from breakeven.storage.index.journal_inserts import EVENT_TABLES, Cursor, insert_events
from breakeven.storage.index.watch import Watch

REVISIONS = "revisions"
"""The sequence that numbers the writes of the embedded database."""


def run_tick(cursor: Cursor, watch: Watch) -> tuple[int, bool]:
    """Runs one tick; returns the number of new event rows and whether bytes remain."""
    seen = watch.look()
    is_new = watch.is_news(seen)
    num_rows = _commit(cursor, seen, watch.changed(seen)) if is_new else 0
    watch.taken_in(seen, is_new=is_new)
    return num_rows, bool(seen.behind)


def start_watch(cursor: Cursor, runs: Path, examples: Path | None, data_folder: str = "") -> Watch:
    """A watch over run folders that starts with the state in the database."""
    known = known_progress(cursor, "data_folder = ?", data_folder)
    query = "SELECT folder, message FROM unreadable WHERE data_folder = ?"
    rows = cursor.execute(query, [data_folder]).fetchall()
    unreadable = {Path(folder).name: (folder, why) for folder, why in rows}
    # Modification times of the labels in the database, in nanoseconds.
    labels = dict(cursor.execute("SELECT run_id, stamp FROM labels").fetchall())
    mine = {run_id: stamp for run_id, stamp in labels.items() if run_id in known}
    return Watch(runs, examples, known, unreadable, mine)


def known_progress(cursor: Cursor, condition: str, *parameters: object) -> dict[str, IndexedRun]:
    """The stored progress of runs, by their ids."""
    names = [field.name for field in fields(IndexedRun)]
    query = f"SELECT {', '.join(names)} FROM progress WHERE {condition}"
    rows = cursor.execute(query, parameters).fetchall()
    return {row[0]: IndexedRun(**dict(zip(names, row, strict=True))) for row in rows}


def _commit(cursor: Cursor, seen: FolderScan, changed: list[IndexedRun]) -> int:
    with whole(cursor):
        row = cursor.execute(f"SELECT nextval('{REVISIONS}')").fetchone()
        assert row is not None
        numbers = add_numbers(cursor, experiments_of(seen))
        write_runs(cursor, seen, changed, numbers, int(row[0]))
        return insert_events(cursor, seen.events, numbers)


@contextmanager
def whole(cursor: Cursor) -> Iterator[None]:
    """Runs the body as one transaction: all of its changes count, or none."""
    cursor.begin()
    try:
        yield
        cursor.commit()
    except BaseException:
        with suppress(duckdb.Error):  # A failed commit has already rolled back.
            cursor.rollback()
        raise


def write_runs(
    cursor: Cursor,
    seen: FolderScan,
    changed: list[IndexedRun],
    numbers: Mapping[str, int],
    revision: int,
    data_folder: str = "",
) -> None:
    """Writes all results of a look except events; `revision`: the number of the write."""
    out = [*seen.gone, *seen.restarted]
    if out:
        for table in EVENT_TABLES.values():
            _delete(cursor, table, out)
    _delete(cursor, "runs", seen.gone)
    _insert(cursor, "runs", [{**row, "experiment": numbers[row["experiment_id"]]}
                             for row in seen.new_runs])  # fmt: skip
    _delete(cursor, "progress", [*seen.gone, *(row.run_id for row in changed)])
    noted = {"revision": revision, "data_folder": data_folder}
    _insert(cursor, "progress", [{**vars(row), **noted} for row in changed])
    cursor.execute("DELETE FROM unreadable WHERE data_folder = ?", [data_folder])
    rows = [{"folder": folder, "message": why, "data_folder": data_folder}
            for folder, why in seen.unreadable.values()]  # fmt: skip
    _insert(cursor, "unreadable", rows)
    _delete(cursor, "labels", [*seen.gone, *seen.labels])
    labels = [(run_id, *found) for run_id, found in seen.labels.items() if found is not None]
    _insert(cursor, "labels", [
        {"run_id": run_id, "stamp": stamp, "content": content, "revision": revision}
        for run_id, stamp, content in labels])  # fmt: skip


def experiments_of(seen: FolderScan) -> set[str]:
    """The ids of experiments with new runs or events."""
    ids = {str(row["experiment_id"]) for row in seen.new_runs}
    return ids | {run_id.partition(".")[0] for run_id in seen.events}


def add_numbers(cursor: Cursor, ids: Collection[str]) -> dict[str, int]:
    """The numbers of experiments; assigns numbers to new ones."""
    if not ids:
        return {}
    cursor.execute(
        """INSERT INTO experiments
        SELECT experiment_id, row_number() OVER (ORDER BY experiment_id)
            + (SELECT coalesce(max(experiment), 0) FROM experiments)
        FROM (SELECT unnest(?) AS experiment_id EXCEPT SELECT experiment_id FROM experiments)""",
        [sorted(ids)],
    )
    query = "SELECT * FROM experiments WHERE experiment_id IN (SELECT unnest(?))"
    return dict(cursor.execute(query, [sorted(ids)]).fetchall())


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
    """Makes texts valid Unicode: DuckDB fails completely on an invalid text, and then refuses all
    further queries."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
