"""Brings run folders into the database: incrementally, and every event exactly once.

A *tick* looks at the folders that may have changed, takes what their journals gained since the last
one, removes what a resumption takes back, and commits rows and new byte offsets in one transaction.
A tick that is killed leaves no trace; the next one reads the same bytes again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from breakeven.storage.index import folders
from breakeven.storage.index.folders import FolderScan, IndexedRun
from breakeven.storage.index.journal_inserts import (
    WIDE_BYTES,
    found_lines,
    insert_events,
    insert_frequent,
)
from breakeven.storage.index.journal_lines import Found, whole_lines
from breakeven.storage.index.journal_rows import EVENT_TABLES, Cursor, mend_slices
from breakeven.storage.index.watch import Watch

REVISIONS = "revisions"
"""The sequence that numbers the writes of the embedded database."""
MANY_LOOKS = 12
"""That are taken in together while more waits: of some 400 MB of journals, within a few seconds."""


class Doubtful(Exception):
    """The database gave up on a line of one of many looks."""


def run_tick(cursor: Cursor, watch: Watch, ticks: int = 1) -> tuple[int, bool]:
    """Runs one tick, or as much as several; returns the number of new event rows and whether more
    bytes wait.

    If several fail, the watch is astray. Raises `Doubtful` if a line is to blame: a watch with
    doubts, started anew, finds out which.
    """
    max_bytes = ticks * folders.MAX_TICK_BYTES
    if ticks > 1 and not watch.has_doubts:
        return _run_many(cursor, watch, max_bytes)
    seen = watch.next_look(max_bytes)
    is_new = watch.is_news(seen)
    num_rows = _commit(cursor, seen, watch.changed(seen)) if is_new else 0
    watch.taken_in(seen, is_new=is_new)
    watch.has_doubts &= bool(seen.behind)
    return num_rows, bool(seen.behind)


def _run_many(cursor: Cursor, watch: Watch, max_bytes: int) -> tuple[int, bool]:
    """Takes in some looks in one transaction: the next one is taken while the database reads, and
    the fewer transactions there are, the more rows it writes once, compressed, and not first into
    its log."""
    is_new, is_full = False, True

    def write() -> int:
        nonlocal is_new, is_full
        together = _Together(cursor, watch.unreadable)
        for _ in range(MANY_LOOKS):
            seen = watch.next_look(max_bytes)
            changed, is_news = watch.changed(seen), watch.is_news(seen)
            is_new, is_full = is_new or is_news, bool(seen.behind)
            watch.taken_in(seen, is_new=False)
            if is_full:
                watch.look_ahead(max_bytes, found_lines)
            if is_news:
                together.add(seen, changed)
            if not is_full:
                break
        together.finish()
        return together.num_rows

    try:
        num_rows = whole(cursor, write)
    except BaseException as error:
        watch.is_outdated = True
        is_short = isinstance(error, duckdb.OutOfMemoryException)
        if isinstance(error, duckdb.Error | UnicodeDecodeError) and not is_short:
            raise Doubtful from error
        raise
    watch.generation += is_new
    return num_rows, is_full


class _Together:
    """Writes what looks that follow each other found: steps and the like of each one, and all else,
    for which statements take longer than rows, once."""

    def __init__(self, cursor: Cursor, unreadable: Mapping[str, tuple[str, str]]) -> None:
        self.num_rows = 0
        self._cursor = cursor
        self._unreadable = dict(unreadable)
        self._begin()

    def _begin(self) -> None:
        self._seen = FolderScan(unreadable=self._unreadable, lines=Found())
        self._changed: dict[str, IndexedRun] = {}
        self._is_empty = True

    def add(self, seen: FolderScan, changed: list[IndexedRun]) -> None:
        self._unreadable = seen.unreadable
        if seen.gone or seen.restarted:  # Rows go before others come.
            self.finish()
            self.num_rows += _write(self._cursor, seen, changed)
            return self._begin()
        self._is_empty = False
        found, rest = seen.lines or found_lines(seen), self._seen
        numbers = add_numbers(self._cursor, experiments_of(seen))
        self.num_rows += insert_frequent(self._cursor, found, numbers)
        assert rest.lines is not None
        for run_id, lines in found.others.items():
            rest.lines.others[run_id] = rest.lines.others.get(run_id, b"") + lines
        rest.new_runs += seen.new_runs
        rest.labels |= seen.labels
        rest.unreadable = seen.unreadable
        self._changed |= {row.run_id: row for row in changed}
        if sum(map(len, rest.lines.others.values())) >= WIDE_BYTES:
            self.finish()

    def finish(self) -> None:
        """Writes what was put off."""
        if self._is_empty:
            return
        self.num_rows += _write(self._cursor, self._seen, [*self._changed.values()])
        self._begin()


def start_watch(cursor: Cursor, runs: Path, examples: Path | None, data_folder: str = "") -> Watch:
    """A watch over run folders that knows what the database holds of them."""
    known = known_progress(cursor, "data_folder = ?", data_folder)
    query = "SELECT folder, message FROM unreadable WHERE data_folder = ?"
    rows = cursor.execute(query, [data_folder]).fetchall()
    unreadable = {Path(folder).name: (folder, why) for folder, why in rows}
    # When the labels that were taken in were written, in nanoseconds.
    labels = dict(cursor.execute("SELECT run_id, stamp FROM labels").fetchall())
    mine = {run_id: stamp for run_id, stamp in labels.items() if run_id in known}
    return Watch(runs, examples, known, unreadable, mine)


def known_progress(cursor: Cursor, condition: str, *parameters: object) -> dict[str, IndexedRun]:
    """How runs stood when they were last taken in, by their ids."""
    names = [field.name for field in fields(IndexedRun)]
    query = f"SELECT {', '.join(names)} FROM progress WHERE {condition}"
    rows = cursor.execute(query, parameters).fetchall()
    return {row[0]: IndexedRun(**dict(zip(names, row, strict=True))) for row in rows}


def _commit(cursor: Cursor, seen: FolderScan, changed: list[IndexedRun]) -> int:
    return believing(cursor, seen, lambda with_care: whole(
        cursor, lambda: _write(cursor, seen, changed, with_care=with_care)))  # fmt: skip


def _write(
    cursor: Cursor, seen: FolderScan, changed: list[IndexedRun], *, with_care: bool = False
) -> int:
    row = cursor.execute(f"SELECT nextval('{REVISIONS}')").fetchone()
    assert row is not None
    numbers = add_numbers(cursor, experiments_of(seen))
    write_runs(cursor, seen, changed, numbers, Written(int(row[0])))
    return insert_events(cursor, seen, numbers, with_care=with_care)


def believing(cursor: Cursor, seen: FolderScan, take_in: Callable[[bool], int]) -> int:
    """Takes in the lines of a look: as if all were events, which takes a third of the time, then
    with care, then without those that the database gives up on: one of them must not keep all
    other journals out."""
    try:
        return take_in(False)
    except duckdb.OutOfMemoryException:
        raise  # No line is to blame.
    # The second: what the database says of a line that is no text.
    except (duckdb.Error, UnicodeDecodeError):
        seen.lines = None
    seen.slices = {run_id: whole_lines(lines) for run_id, lines in seen.slices.items()}
    try:
        return take_in(True)
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error:
        if not mend_slices(cursor, seen):
            raise
        return take_in(True)


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
    cursor: Cursor,
    seen: FolderScan,
    changed: list[IndexedRun],
    numbers: Mapping[str, int],
    by: Written,
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
    _insert(cursor, "progress", [{**vars(row), **vars(by)} for row in changed])
    cursor.execute("DELETE FROM unreadable WHERE data_folder = ?", [by.data_folder])
    rows = [{"folder": folder, "message": why, "data_folder": by.data_folder}
            for folder, why in seen.unreadable.values()]  # fmt: skip
    _insert(cursor, "unreadable", rows)
    _delete(cursor, "labels", [*seen.gone, *seen.labels])
    labels = [(run_id, *found) for run_id, found in seen.labels.items() if found is not None]
    _insert(cursor, "labels", [
        {"run_id": run_id, "stamp": stamp, "content": content, "revision": by.revision}
        for run_id, stamp, content in labels])  # fmt: skip


def experiments_of(seen: FolderScan) -> set[str]:
    """The ids of the experiments that a look found something of."""
    ids = {str(row["experiment_id"]) for row in seen.new_runs}
    others = seen.lines.others if seen.lines else ()
    return ids | {run_id.partition(".")[0] for run_id in (*seen.slices, *others)}


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
    """Makes texts valid Unicode: DuckDB fails completely on an invalid text, and then refuses all
    further queries."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
