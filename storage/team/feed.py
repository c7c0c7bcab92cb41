"""Ingests run folders into a team's store: every event exactly once, with any number of writers.

As in the embedded database (storage/index/ingest.py), byte offsets are committed with the rows. The
process first inserts new lines into its own tables, while others may write. Then it takes the
writer's lock, checks that nobody has changed the runs, and copies the rows to the store.

A run belongs to the data folder that recorded it first. A copy elsewhere, such as an example, is
skipped as long as the first folder has the run.
"""

import os
import secrets
import socket
import time
from contextlib import suppress
from pathlib import Path

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.errors import TeamStoreUnusable
from breakeven.storage.index.folders import FolderScan
from breakeven.storage.index.ingest import (
    EVENT_TABLES,
    SCHEMA,
    Cursor,
    add_numbers,
    experiments_of,
    insert_events,
    known_progress,
    start_watch,
    take_back,
    transaction,
    write_runs,
)
from breakeven.storage.index.watch import Watch
from breakeven.storage.team.lake import OWN, Lake, Overtaken

OUTBOX = "outbox"
ID_FILE = "team-store-id"
"""File with the id of the data folder in a team's store: equal on all machines that mount the
folder, different for a copy of the folder."""
MAX_ATTEMPTS = 20
"""Number of attempts to write if other writers were faster."""
ELSEWHERE_SECONDS = 30.0
"""Interval of checks whether the first data folder of a copied run still has it."""


class Feed:
    """Ingests the run folders of one data folder into a team's store. Not thread-safe."""

    def __init__(self, lake: Lake, data_dir: DataDir, examples: Path | None) -> None:
        """Registers the data folder; raises `TeamStoreUnusable`."""
        self._lake, self._data_dir, self._examples = lake, data_dir, examples
        self.name = data_folder_id(data_dir)
        self.watch: Watch | None = None
        """The known state of the data folder; None before the first look."""
        self._numbers: dict[str, int] = {}
        self._present: set[tuple[int, str]] = set()
        self._looked_elsewhere = 0.0
        self._register()

    def tick(self) -> tuple[int, bool]:
        """Like `ingest.run_tick`: the number of new event rows, and whether bytes remain.

        Raises `TeamStoreUnusable`; then the next call reads the state from the store again.
        """
        for _ in range(MAX_ATTEMPTS):
            watch = self.watch or self._start()
            seen = watch.look()
            try:
                num_rows = self._take_in(watch, seen)
            except Overtaken:
                self.watch = None
                continue
            except BaseException:
                # The commit may have succeeded nevertheless.
                self.watch = None
                raise
            watch.taken_in(seen, is_new=num_rows > 0)
            return num_rows, bool(seen.behind)
        raise self._lake.always_overtaken()

    def compare(self, num_runs: int) -> None:
        """Starts again if the store has another number of runs of this folder, because somebody
        removed them from the store."""
        if self.watch is not None and len(self.watch.known) != num_runs:
            self.watch = None

    def _register(self) -> None:
        """Registers this data folder in the store, once."""
        for _ in range(MAX_ATTEMPTS):
            with self._lake.reading() as cursor:
                query = "SELECT 1 FROM data_folders WHERE data_folder = ?"
                if cursor.execute(query, [self.name]).fetchone():
                    return
            with suppress(Overtaken), self._lake.writing() as (cursor, _):
                row = [self.name, socket.gethostname(), str(self._data_dir.path), time.time()]
                cursor.execute("INSERT INTO data_folders VALUES (?, ?, ?, ?)", row)
        raise self._lake.always_overtaken()

    def _start(self) -> Watch:
        with self._lake.reading() as cursor:
            watch = start_watch(cursor, self._data_dir.runs, self._examples, self.name)
        self.watch, self._looked_elsewhere = watch, 0.0
        return watch

    def _take_in(self, watch: Watch, seen: FolderScan) -> int:
        self._leave_to_others(watch, seen)
        if not watch.is_news(seen):
            return 0
        numbers = self._numbers_of(experiments_of(seen))
        with self._lake.connected(), self._lake.connection.cursor() as cursor:
            try:
                _open_outbox(cursor)
                with transaction(cursor):
                    num_rows = insert_events(cursor, seen.events, numbers)
                self._send(watch, seen, numbers, _filled(cursor))
            finally:
                cursor.execute(f"USE {OWN}")
                cursor.execute(f"DETACH DATABASE IF EXISTS {OUTBOX}")
        return num_rows

    def _send(
        self, watch: Watch, seen: FolderScan, numbers: dict[str, int], filled: dict[str, list[int]]
    ) -> None:
        """Copies the prepared rows to the store, if nobody has changed the runs."""
        changed = watch.changed(seen)
        touched = sorted({*seen.gone, *seen.labels, *(row.run_id for row in changed)})
        with self._lake.writing() as (cursor, revision):
            present_progress = known_progress(cursor, "run_id IN (SELECT unnest(?))", touched)
            if present_progress != {
                name: watch.known[name] for name in touched if name in watch.known
            }:
                raise Overtaken
            write_runs(cursor, seen, changed, numbers, revision, self.name)
            present = [
                (number, table) for table, experiments in filled.items() for number in experiments
            ]
            new = [pair for pair in present if pair not in self._present]
            if new:
                columns = [list(column) for column in zip(*new, strict=True)]
                cursor.execute("INSERT INTO present SELECT unnest(?), unnest(?)", columns)
            for table in filled:
                cursor.execute(f"INSERT INTO {table} BY NAME FROM {OUTBOX}.{table}")
            if "resumptions" in filled:
                query = f"SELECT DISTINCT run_id FROM {OUTBOX}.resumptions"
                take_back(cursor, [run_id for (run_id,) in cursor.execute(query).fetchall()])
        self._present.update(new)

    def _leave_to_others(self, watch: Watch, seen: FolderScan) -> None:
        """Removes the runs of other data folders from a look."""
        run_ids = {str(row["run_id"]) for row in seen.new_runs}
        again = time.monotonic() >= self._looked_elsewhere + ELSEWHERE_SECONDS
        if not run_ids and not (again and watch.elsewhere):
            return
        run_ids |= watch.elsewhere
        with self._lake.reading() as cursor:
            run_ids_elsewhere = cursor.execute(
                "SELECT run_id FROM progress WHERE run_id IN (SELECT unnest(?)) "
                "AND data_folder <> ?",
                [sorted(run_ids), self.name],
            ).fetchall()
        watch.elsewhere = {run_id for (run_id,) in run_ids_elsewhere}
        self._looked_elsewhere = time.monotonic()
        seen.drop(watch.elsewhere)

    def _numbers_of(self, ids: set[str]) -> dict[str, int]:
        """The numbers of experiments; they remain valid even if the look cannot be written."""
        for _ in range(MAX_ATTEMPTS):
            if ids <= self._numbers.keys():
                return {name: self._numbers[name] for name in ids}
            with suppress(Overtaken), self._lake.writing() as (cursor, _):
                numbers = add_numbers(cursor, ids)
                self._numbers |= numbers
        raise self._lake.always_overtaken()


def _open_outbox(cursor: Cursor) -> None:
    """Switches the cursor to an empty database in memory."""
    cursor.execute(f"DETACH DATABASE IF EXISTS {OUTBOX}")
    cursor.execute(f"ATTACH ':memory:' AS {OUTBOX}")
    cursor.execute(f"USE {OUTBOX}")
    cursor.execute(SCHEMA)


def _filled(cursor: Cursor) -> dict[str, list[int]]:
    """Tables of events with rows, and the numbers of their experiments."""
    experiments_by_table = {}
    for table in EVENT_TABLES.values():
        rows = cursor.execute(f"SELECT DISTINCT experiment FROM {table}").fetchall()
        if rows:
            experiments_by_table[table] = [number for (number,) in rows]
    return experiments_by_table


def data_folder_id(data_dir: DataDir) -> str:
    """The id in the folder's file `team-store-id`, which is created if missing.

    The file also contains its own inode: a copy has another inode and gets a new id. Raises
    `TeamStoreUnusable`.
    """
    file = data_dir.path / ID_FILE
    try:
        for _ in range(10):
            name = _read_id(file)
            if name is not None:
                return name
            _write_id(file)
    except OSError as error:
        raise TeamStoreUnusable(f"{file} cannot be written: {error}") from None
    raise TeamStoreUnusable(f"{file} changes all the time; does something copy files there?")


def _read_id(file: Path) -> str | None:
    try:
        name, _, inode = file.read_text().strip().partition(" ")
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    return name if name and inode == str(os.stat(file).st_ino) else None


def _write_id(file: Path) -> None:
    """Writes a new id; if several processes do so at once, the last one counts for all."""
    draft = file.with_name(f"{ID_FILE}.{secrets.token_hex(4)}")
    with draft.open("x") as text:
        text.write(f"{secrets.token_hex(8)} {os.fstat(text.fileno()).st_ino}\n")
    if file.exists():
        os.replace(draft, file)
        return
    try:
        os.link(draft, file)  # Unlike renaming, this fails if another process was faster.
    except FileExistsError:
        pass
    finally:
        draft.unlink()
