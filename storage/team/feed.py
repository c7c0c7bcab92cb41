"""Brings run folders into a team's store: every event exactly once, with any number of writers.

As in the embedded database (storage/index/ingest.py), byte offsets are committed with the rows.
What new lines say is first put into tables of this process's own, while others write; then, alone,
it is looked whether the runs still stand as this process knew them, and what is ready goes over.

A run belongs to the data folder that recorded it first. A copy of it elsewhere, such as an example,
is skipped as long as the first folder has it.
"""

import os
import secrets
import socket
import time
from contextlib import suppress
from pathlib import Path

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.errors import TeamStoreUnusable
from breakeven.storage.index.folders import FolderScan
from breakeven.storage.index.ingest import (
    add_numbers,
    experiments_of,
    known_progress,
    start_watch,
    whole,
    write_runs,
)
from breakeven.storage.index.journal_inserts import (
    EVENT_TABLES,
    SCHEMA,
    Cursor,
    insert_events,
    take_back,
)
from breakeven.storage.index.watch import Watch
from breakeven.storage.team.lake import OWN, Lake, Overtaken

OUTBOX = "outbox"
ID_FILE = "team-store-id"
"""Names the data folder in a team's store: the same from every machine that has it mounted, another
one for a copy of it."""
PATIENCE = 20
"""Times that a write begins anew because somebody else was quicker."""
ELSEWHERE_SECONDS = 30.0
"""After which it is looked whether the first one of a copied run still has it."""


class Feed:
    """Takes the folders of one data folder into a team's store. One thread at a time."""

    def __init__(self, lake: Lake, data_dir: DataDir, examples: Path | None) -> None:
        """Raises `TeamStoreUnusable`."""
        self._lake, self._data_dir, self._examples = lake, data_dir, examples
        self.name = data_folder_id(data_dir)
        self._watch: Watch | None = None
        self._numbers: dict[str, int] = {}
        self._present: set[tuple[int, str]] = set()
        self._looked_elsewhere = 0.0
        self._register()

    @property
    def watch(self) -> Watch | None:
        """What the data folder held when it was last looked at."""
        return self._watch

    def tick(self) -> tuple[int, bool]:
        """Like `ingest.run_tick`: number of new event rows, and whether more bytes wait.

        Raises `TeamStoreUnusable`; then the next call begins with what the store says.
        """
        for _ in range(PATIENCE):
            watch = self._watch or self._start()
            seen = watch.look()
            try:
                num_rows = self._take_in(watch, seen)
            except Overtaken:
                self._watch = None
                continue
            except BaseException:
                # The commit may have come through all the same.
                self._watch = None
                raise
            watch.taken_in(seen, is_new=num_rows > 0)
            return num_rows, bool(seen.behind)
        raise self._lake.always_overtaken()

    def compare(self, num_runs: int) -> None:
        """Begins anew if the store has not as many runs of this folder as it should: somebody had
        it forget them."""
        if self._watch is not None and len(self._watch.known) != num_runs:
            self._watch = None

    def _register(self) -> None:
        """Notes who this is, once."""
        for _ in range(PATIENCE):
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
        self._watch, self._looked_elsewhere = watch, 0.0
        return watch

    def _take_in(self, watch: Watch, seen: FolderScan) -> int:
        self._leave_to_others(watch, seen)
        if not watch.is_news(seen):
            return 0
        numbers = self._numbers_of(experiments_of(seen))
        with self._lake.telling(), self._lake.connection.cursor() as cursor:
            try:
                _open_outbox(cursor)
                with whole(cursor):
                    num_rows = insert_events(cursor, seen.events, numbers)
                self._send(watch, seen, numbers, _filled(cursor))
            finally:
                cursor.execute(f"USE {OWN}")
                cursor.execute(f"DETACH DATABASE IF EXISTS {OUTBOX}")
        return num_rows

    def _send(
        self, watch: Watch, seen: FolderScan, numbers: dict[str, int], filled: dict[str, list[int]]
    ) -> None:
        """Has what is ready count, if the runs stand as they did."""
        changed = watch.changed(seen)
        touched = sorted({*seen.gone, *seen.labels, *(row.run_id for row in changed)})
        with self._lake.writing() as (cursor, revision):
            stand = known_progress(cursor, "run_id IN (SELECT unnest(?))", touched)
            if stand != {name: watch.known[name] for name in touched if name in watch.known}:
                raise Overtaken
            write_runs(cursor, seen, changed, numbers, revision, self.name)
            present = [(number, table) for table, found in filled.items() for number in found]
            new = [one for one in present if one not in self._present]
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
        """Drops the runs of other data folders from a look."""
        run_ids = {str(row["run_id"]) for row in seen.new_runs}
        again = time.monotonic() >= self._looked_elsewhere + ELSEWHERE_SECONDS
        if not run_ids and not (again and watch.elsewhere):
            return
        run_ids |= watch.elsewhere
        with self._lake.reading() as cursor:
            found = cursor.execute(
                "SELECT run_id FROM progress WHERE run_id IN (SELECT unnest(?)) "
                "AND data_folder <> ?", [sorted(run_ids), self.name]
            ).fetchall()  # fmt: skip
        watch.elsewhere = {run_id for (run_id,) in found}
        self._looked_elsewhere = time.monotonic()
        seen.drop(watch.elsewhere)

    def _numbers_of(self, ids: set[str]) -> dict[str, int]:
        """The numbers of experiments, which count from here on whatever becomes of the look."""
        for _ in range(PATIENCE):
            if ids <= self._numbers.keys():
                return {name: self._numbers[name] for name in ids}
            with suppress(Overtaken), self._lake.writing() as (cursor, _):
                found = add_numbers(cursor, ids)
                self._numbers |= found
        raise self._lake.always_overtaken()


def _open_outbox(cursor: Cursor) -> None:
    """Makes the cursor's tables those of an empty database in memory."""
    cursor.execute(f"DETACH DATABASE IF EXISTS {OUTBOX}")
    cursor.execute(f"ATTACH ':memory:' AS {OUTBOX}")
    cursor.execute(f"USE {OUTBOX}")
    cursor.execute(SCHEMA)


def _filled(cursor: Cursor) -> dict[str, list[int]]:
    """Tables of events that hold rows, and of which experiments."""
    found = {}
    for table in EVENT_TABLES.values():
        rows = cursor.execute(f"SELECT DISTINCT experiment FROM {table}").fetchall()
        if rows:
            found[table] = [number for (number,) in rows]
    return found


def data_folder_id(data_dir: DataDir) -> str:
    """The name in the folder's file `team-store-id`, which is made if there is none.

    The file says in which inode it was written: a copy lies in another one, and is named anew.
    Raises `TeamStoreUnusable`.
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
    """Puts a new name in place; of several who do so at once the last one counts for all."""
    draft = file.with_name(f"{ID_FILE}.{secrets.token_hex(4)}")
    with draft.open("x") as text:
        text.write(f"{secrets.token_hex(8)} {os.fstat(text.fileno()).st_ino}\n")
    if file.exists():
        os.replace(draft, file)
        return
    try:
        os.link(draft, file)  # Unlike a renaming this fails where another one was quicker.
    except FileExistsError:
        pass
    finally:
        draft.unlink()
