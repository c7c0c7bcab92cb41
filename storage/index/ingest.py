"""Brings run folders into the database: incrementally, and every event exactly once.

A *tick* looks at the folders that may have changed, takes what their journals gained since the last
one, removes what a resumption takes back, and commits rows and new byte offsets in one transaction.
A tick that is killed leaves no trace; the next one reads the same bytes again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, fields
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

REVISIONS = "revisions"
"""The sequence that numbers the writes of the embedded database."""
SMALL_BYTES = 500_000
"""Of new lines, up to which reading all of them at once takes less than a statement per kind."""


def run_tick(cursor: Cursor, watch: Watch, ticks: int = 1) -> tuple[int, bool]:
    """Runs one tick, or as much as several; returns the number of new event rows and whether more
    bytes wait."""
    seen = watch.look(ticks * folders.MAX_TICK_BYTES)
    is_new = watch.is_news(seen)
    num_rows = _commit(cursor, seen, watch.changed(seen)) if is_new else 0
    watch.taken_in(seen, is_new=is_new)
    return num_rows, bool(seen.behind)


def start_watch(cursor: Cursor, runs: Path, examples: Path | None, data_folder: str = "") -> Watch:
    """A watch over run folders that knows what the database holds of them."""
    known = known_progress(cursor, "data_folder = ?", data_folder)
    query = "SELECT folder, message FROM unreadable WHERE data_folder = ?"
    told = cursor.execute(query, [data_folder]).fetchall()
    unreadable = {Path(folder).name: (folder, why) for folder, why in told}
    labels = known_labels(cursor)
    mine = {run_id: stamp for run_id, stamp in labels.items() if run_id in known}
    return Watch(runs, examples, known, unreadable, mine)


def known_progress(cursor: Cursor, condition: str, *parameters: object) -> dict[str, Progress]:
    """How runs stood when they were last taken in, by their ids."""
    names = [field.name for field in fields(Progress)]
    query = f"SELECT {', '.join(names)} FROM progress WHERE {condition}"
    rows = cursor.execute(query, parameters).fetchall()
    return {row[0]: Progress(**dict(zip(names, row, strict=True))) for row in rows}


def _commit(cursor: Cursor, seen: Look, changed: list[Progress]) -> int:
    def write() -> int:
        row = cursor.execute(f"SELECT nextval('{REVISIONS}')").fetchone()
        assert row is not None
        numbers = add_numbers(cursor, experiments_of(seen))
        write_runs(cursor, seen, changed, numbers, Written(int(row[0])))
        return insert_events(cursor, owned(seen, numbers))

    return believing(cursor, seen, lambda: whole(cursor, write))


def believing(cursor: Cursor, seen: Look, take_in: Callable[[], int]) -> int:
    """Takes in the lines of a look, without those that the database gives up on: one of them must
    not keep all other journals out."""
    seen.slices = {run_id: whole_lines(lines) for run_id, lines in seen.slices.items()}
    try:
        return take_in()
    except duckdb.OutOfMemoryException:
        raise  # No line is to blame.
    except duckdb.Error:
        if not mend_slices(cursor, seen):
            raise
        return take_in()


def whole(cursor: Cursor, write: Callable[[], int]) -> int:
    """Does what `write` does in one transaction, or nothing of it."""
    cursor.begin()
    try:
        num_rows = write()
        cursor.commit()
    except BaseException:
        with suppress(duckdb.Error):  # A commit that failed has rolled back already.
            cursor.rollback()
        raise
    return num_rows


@dataclass(frozen=True)
class Written:
    """What is noted of a write."""

    revision: int
    data_folder: str = ""


def write_runs(
    cursor: Cursor, seen: Look, changed: list[Progress], numbers: Mapping[str, int], by: Written
) -> None:
    """Writes all that a look found but for events."""
    out = [*seen.gone, *seen.restarted]
    if out:
        for table in EVENT_TABLES.values():
            _delete(cursor, table, out)
    _delete(cursor, "runs", seen.gone)
    _insert(cursor, "runs", [{**row, "experiment": numbers[row["experiment_id"]]}
                             for row in seen.new_runs])  # fmt: skip
    _delete(cursor, "progress", [*seen.gone, *(row.run_id for row in changed)])
    _insert(cursor, "progress", [{**asdict(row), **asdict(by)} for row in changed])
    cursor.execute("DELETE FROM unreadable WHERE data_folder = ?", [by.data_folder])
    rows = [{"folder": folder, "message": why, "data_folder": by.data_folder}
            for folder, why in seen.unreadable.values()]  # fmt: skip
    _insert(cursor, "unreadable", rows)
    _delete(cursor, "labels", [*seen.gone, *seen.labels])
    labels = [(run_id, *found) for run_id, found in seen.labels.items() if found is not None]
    _insert(cursor, "labels", [
        {"run_id": run_id, "stamp": stamp, "content": content, "revision": by.revision}
        for run_id, stamp, content in labels])  # fmt: skip


def experiments_of(seen: Look) -> set[str]:
    """The ids of the experiments that a look found something of."""
    ids = {str(row["experiment_id"]) for row in seen.new_runs}
    return ids | {run_id.partition(".")[0] for run_id in seen.slices}


def owned(seen: Look, numbers: Mapping[str, int]) -> dict[Owner, bytes]:
    """The new lines, by whose they are."""
    return {(numbers[run_id.partition(".")[0]], run_id): lines
            for run_id, lines in seen.slices.items()}  # fmt: skip


def add_numbers(cursor: Cursor, ids: Collection[str]) -> dict[str, int]:
    """The numbers of experiments; new ones are given theirs."""
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
    """DuckDB takes a text that is not Unicode for its own failure, and then answers nobody."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def insert_events(cursor: Cursor, slices: Mapping[Owner, bytes]) -> int:
    """Inserts journal lines of many runs.

    The most frequent kinds go, each with its few columns, straight into their tables. All other
    lines are read with all columns that any kind has, and then distributed.
    """
    if not slices:
        return 0
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
