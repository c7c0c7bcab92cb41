"""The store: one DuckDB database per data folder, one process that owns it.

DuckDB lets one process write *or* many read, and loses its file lock when the owner opens the file
a second time. So one elected owner holds a separate lock file from before connecting until after
closing, no code here opens the database file itself, and all other processes read the run folders
into a database in memory.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import duckdb
import pandas as pd

from breakeven.runner.files import FileLock
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.supervision.heartbeat import busy
from breakeven.runner.texts import printable
from breakeven.storage.errors import StoreLocked, StoreUnusable
from breakeven.storage.index.folders import IndexedRun
from breakeven.storage.index.ingest import REVISIONS, run_tick, start_watch
from breakeven.storage.index.journal_inserts import SCHEMA
from breakeven.storage.index.watch import Watch

SCHEMA_MARK = hashlib.sha256(SCHEMA.encode()).hexdigest()
"""Tells a database that this schema made from one that another version of the project made."""
MANY_ROWS = 100_000
"""Of which it is worth a moment to give back the memory that taking them in took."""
MANY_ANSWERED = 20_000
"""The same of an answer: sorting and joining its rows took several times their room."""
CONFIG: dict[str, Any] = {
    # The machine's other cores belong to the training that is measured; and of an experiment there
    # are so few rows that a second thread takes more time than it saves.
    "threads": 1,
    "memory_limit": "200MB",  # so does its memory; with less, much at once goes over the disk
    # Of each column of each table that grows a block is held in memory: a quarter of DuckDB's own.
    "default_block_size": 65_536,
    "autoinstall_known_extensions": False,  # all that is needed is built in: stay off the network
}
SETTLED_MEMORY = "80MB"
"""Once all is taken in: queries are as fast, for the system has the file in its memory. Of it 32 MB
are for reading journals, however short they are, and some 30 for what is not in the file yet."""
SETTLED_WITHOUT_FILE = "100MB"
"""The same where all rows are in memory, and what does not fit lies in files for the time being."""
LARGEST_MEMORY = "1GB"
"""For what does not fit into less: a look that finds much at once, a question about very many."""

T = TypeVar("T")


class Store:
    """An index over run folders. Safe to use from several threads."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        data_dir: DataDir,
        examples: Path | None,
        lock: FileLock | None = None,
    ) -> None:
        self.data_dir = data_dir
        self._connection = connection
        self._examples = examples
        self._lock = lock
        self._ingesting = threading.Lock()
        self._watch: Watch | None = None
        self._numbers: dict[str, int] = {}
        self.num_results = 0
        """Grows with every summary that this process has computed or read."""
        self._unwritten: dict[tuple[str, str], list[Any]] = {}
        """Results that the database had no room for, by experiment and name."""
        self._caught_up: float | None = None
        self._allowed = str(CONFIG["memory_limit"])
        self._allowing = threading.Lock()

    @classmethod
    def open(cls, data_dir: DataDir, examples: Path | None = None) -> Self:
        """Becomes the owner of the data folder's database, until `close`.

        A file that is no database, or was made with another schema, is replaced by an empty one;
        `ingest` fills it. Raises `StoreLocked` if another process owns it, `StoreUnusable` if it
        cannot be created.
        """
        _require_unicode(data_dir)
        lock = FileLock(data_dir.database_lock)
        try:
            acquired = lock.try_acquire()
        except OSError as error:
            raise StoreUnusable(f"{lock.path} cannot be created: {error}") from None
        if not acquired:
            raise StoreLocked(
                f"another process owns {data_dir.database_file}, probably the dashboard; "
                "stop it, or read without the database (Store.in_memory)"
            )
        try:
            connection = _connect(data_dir.database_file)
        except BaseException:
            lock.release()
            raise
        return cls(connection, data_dir, examples, lock)

    @classmethod
    def in_memory(cls, data_dir: DataDir, examples: Path | None = None) -> Self:
        """Reads all run folders into a database in memory, while another process owns the file."""
        _require_unicode(data_dir)
        connection = duckdb.connect(":memory:", config=CONFIG)
        _create_schema(connection)
        store = cls(connection, data_dir, examples)
        store.ingest_all()
        return store

    def ingest(self) -> int:
        """Takes in what the run folders gained; returns the number of new event rows.

        Reads about 16 MB of journals at most, so that a call takes a fraction of a second; the
        next call goes on from there. Raises `StoreUnusable`, for instance while the disk is full;
        what was taken in before can still be queried.
        """
        return self._tick()[0]

    def ingest_all(self) -> int:
        """Ingests until nothing is left; returns the number of new event rows."""
        is_first = self._caught_up is None  # The amount is unknown yet.
        if is_first:
            self._allow(CONFIG["memory_limit"])
        num_rows, is_full = self._tick()
        if is_bulk := is_full:
            self._allow(CONFIG["memory_limit"])
        while is_full:
            new_rows, is_full = self._tick()
            num_rows += new_rows
        if (is_bulk or num_rows >= MANY_ROWS) and self._lock is not None:
            with self._ingesting, self._connection.cursor() as cursor, suppress(duckdb.Error):
                settle(cursor)
            self._allow(self._settled)
        elif is_first:
            self._allow(self._settled)
        return num_rows

    @property
    def _settled(self) -> str:
        return SETTLED_MEMORY if self.is_own_file else SETTLED_WITHOUT_FILE

    def give_back(self) -> None:
        """Returns the database's free memory to the system. Without a new memory limit the database
        holds the memory of a query, some thirty MB."""
        self._allow()

    def _allow(self, memory: str | None = None) -> None:
        """So much, or again as much as before."""
        with self._allowing, suppress(duckdb.Error), self._connection.cursor() as cursor:
            self._allowed = memory or self._allowed
            cursor.execute(f"SET memory_limit = '{self._allowed}'")

    @property
    def is_own_file(self) -> bool:
        """Whether its rows lie in a file of this machine alone, and not in memory."""
        return self._lock is not None

    @property
    def generation(self) -> int:
        """Grows whenever the store took in something new."""
        return 0 if self._watch is None else self._watch.generation

    @property
    def age(self) -> float | None:
        """Seconds since the store last had all that the run folders held; None if it never did."""
        return None if self._caught_up is None else time.monotonic() - self._caught_up

    @property
    def run_counts(self) -> dict[str, int]:
        """How many runs of the data folder are in each state."""
        return {} if self._watch is None else self._watch.counts

    @property
    def open_runs(self) -> list[IndexedRun]:
        """The data folder's runs without a recorded end."""
        return [] if self._watch is None else self._watch.open_runs

    @property
    def num_unreadable(self) -> int:
        """Run folders that cannot be read."""
        return 0 if self._watch is None else len(self._watch.unreadable)

    def number_of(self, experiment_id: str) -> int:
        """The number by which queries pick the rows of an experiment; 0 if there is none."""
        if experiment_id not in self._numbers:
            query = "SELECT experiment FROM experiments WHERE experiment_id = ?"
            found = self.rows(query, [experiment_id])
            if not found:
                return 0
            self._numbers[experiment_id] = int(found[0][0])
        return self._numbers[experiment_id]

    def rows(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[tuple[Any, ...]]:
        """Like `query`, for a few rows: a data frame takes longer than they do."""

        def ask() -> list[tuple[Any, ...]]:
            with self._connection.cursor() as cursor:
                return cursor.execute(sql, parameters).fetchall()

        return self._with_room(ask)

    def query(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> pd.DataFrame:
        """Runs one query, on a cursor of its own: a shared connection returns wrong rows."""

        def ask() -> pd.DataFrame:
            with self._connection.cursor() as cursor:
                return cursor.execute(sql, parameters).df()

        found = self._with_room(ask)
        if len(found) >= MANY_ANSWERED:
            self.give_back()
        return found

    def write(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Keeps something that was computed from the rows; raises `StoreUnusable`."""

        def keep() -> None:
            with self._ingesting, self._busy(), self._connection.cursor() as cursor:
                cursor.execute(sql, parameters)

        try:
            self._with_room(keep)
        except duckdb.Error as error:
            raise StoreUnusable(
                f"{self.data_dir.database_file} cannot be written: {printable(error)}"
            ) from error

    def stored_results(
        self, name: str, version: str, experiment_id: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Experiment, newest write, number of runs and content of each result of a name that this
        version of the code computed, of one experiment or of all."""
        query = """SELECT experiment_id, revision, num_runs, content FROM results
            WHERE name = ? AND version = ? AND coalesce(experiment_id = ?, true)"""
        found = self.rows(query, [name, version, experiment_id])
        return [*found, *self._unwritten_results(name)]

    def _unwritten_results(self, name: str) -> list[tuple[Any, ...]]:
        rows = (row for row in self._unwritten.values() if row[1] == name)
        return [(row[0], row[2], row[3], row[5]) for row in rows]

    def store_result(
        self, experiment_id: str, name: str, revision: tuple[int, int], version: str, content: str
    ) -> None:
        """Keeps a result in the place of an earlier one of the same name; on a full disk as long
        as this process lives."""
        row = [experiment_id, name, *revision, version, content]
        try:
            self._write_result(row)
        except StoreUnusable:
            self._unwritten[experiment_id, name] = row

    def _write_result(self, row: list[Any]) -> None:
        self.write(
            """DELETE FROM results WHERE (experiment_id = ? AND name = ?)
            OR experiment_id NOT IN (SELECT experiment_id FROM runs)""",
            row[:2],
        )
        self.write("INSERT INTO results VALUES (?, ?, ?, ?, ?, ?)", row)

    def close(self) -> None:
        """Closes the database and then gives up its ownership."""
        with self._ingesting:
            self._connection.close()
            if self._lock is not None:
                self._lock.release()

    def _busy(self) -> AbstractContextManager[None]:
        """Others see since when a thread of this store reads or writes, while one does."""
        return nullcontext() if self._lock is None else busy(self._lock.path)

    def _tick(self) -> tuple[int, bool]:
        begun = time.monotonic()
        try:
            num_rows, is_full = self._with_room(self._look)
        except (OSError, duckdb.Error) as error:
            raise StoreUnusable(
                f"{self.data_dir.database_file} cannot take in what the run folders gained, so "
                f"what is shown may be old: {printable(error)}. If the disk is full, free some "
                "space"
            ) from error
        if not is_full:
            self._caught_up = begun
        return num_rows, is_full

    def _with_room(self, work: Callable[[], T]) -> T:
        """Does again, with more memory, what needed more than the database may hold: what does not
        fit now never would."""
        with suppress(duckdb.OutOfMemoryException):
            return work()
        self._allow(LARGEST_MEMORY)
        try:
            return work()
        finally:
            self._allow(self._settled)

    def _look(self) -> tuple[int, bool]:
        with self._ingesting, self._busy(), self._connection.cursor() as cursor:
            if self._watch is None:
                self._watch = start_watch(cursor, self.data_dir.runs, self._examples)
            return run_tick(cursor, self._watch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _require_unicode(data_dir: DataDir) -> None:
    """DuckDB holds no other text, and every run is kept with its path."""
    try:
        str(data_dir.path).encode()
    except UnicodeEncodeError:
        raise StoreUnusable(
            f"the name of the data folder {printable(data_dir.path)} is not UTF-8; rename it"
        ) from None


def _connect(file: Path) -> duckdb.DuckDBPyConnection:
    """Opens the database, or a new one in its place if it is not one that this schema made."""
    connection = _connect_if_usable(file)
    if connection is not None:
        return connection
    # It is only an index: everything in it is in the run folders.
    try:
        for part in (file, file.with_name(file.name + ".wal")):
            part.unlink(missing_ok=True)
        connection = duckdb.connect(str(file), config=CONFIG)
        _create_schema(connection)
        settle(connection)
    except (OSError, duckdb.Error) as error:
        raise StoreUnusable(f"{file} cannot be created: {error}") from None
    return connection


def _connect_if_usable(file: Path) -> duckdb.DuckDBPyConnection | None:
    if not file.exists():
        return None
    try:
        connection = duckdb.connect(str(file), config=CONFIG)
    except duckdb.Error as error:
        if "Could not set lock" in str(error):
            raise StoreLocked(f"another program has the database open: {error}") from None
        return None
    try:
        made_by = connection.execute("SELECT schema FROM meta").fetchall()
    except duckdb.Error:
        made_by = []
    if made_by == [(SCHEMA_MARK,)]:
        with suppress(duckdb.Error):  # On a full disk it is as good as it was.
            settle(connection)
        return connection
    connection.close()
    return None


def settle(connection: duckdb.DuckDBPyConnection) -> None:
    """Writes the log and the rows in memory into the file. Until then the database holds a block of
    each column of each table in memory, and a killed process leaves a log, which the next process
    reads into memory again. Setting the memory limit then returns free memory to the system."""
    connection.execute("CHECKPOINT")
    connection.execute(f"SET memory_limit = '{SETTLED_MEMORY}'")


def _create_schema(connection: duckdb.DuckDBPyConnection) -> None:
    connection.begin()
    connection.execute(SCHEMA)
    connection.execute(f"CREATE SEQUENCE {REVISIONS}")
    connection.execute("INSERT INTO meta VALUES (?)", [SCHEMA_MARK])
    connection.commit()
