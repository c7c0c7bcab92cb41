"""The store: one DuckDB database per data folder, owned by one process.

DuckDB allows one writing process *or* many readers, and loses its file lock when the owner opens
the file a second time. The owner therefore holds a separate lock file from before connecting until
after closing, and no other code opens the database file. All other processes read the run folders
into a database in memory.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Any, Self, TypeVar

import duckdb
import numpy as np
import pandas as pd

from breakeven.runner.files import FileLock
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.heartbeat import busy
from breakeven.runner.texts import printable
from breakeven.storage.errors import StoreLocked, StoreUnusable
from breakeven.storage.index.folders import IndexedRun
from breakeven.storage.index.ingest import REVISIONS, SCHEMA, run_tick, start_watch
from breakeven.storage.index.watch import Watch

SCHEMA_MARK = hashlib.sha256(SCHEMA.encode()).hexdigest()
"""Identifies databases with this schema; other versions of the project have another hash."""
MANY_ROWS = 100_000
"""Number of ingested rows after which the store returns free memory to the system."""
MANY_ANSWERED = 20_000
"""The same for rows of a result: sorting and joining took several times their memory."""
CONFIG: dict[str, Any] = {
    # The other cores belong to the measured training, and an experiment has so few rows that a
    # second thread costs more time than it saves.
    "threads": 1,
    "memory_limit": "150MB",  # with less, large ingests write temporary files
    # Memory holds one block for each column of each growing table: a quarter of DuckDB's default.
    "default_block_size": 65_536,
    "autoinstall_known_extensions": False,  # all needed extensions are built in: no network
}
SETTLED_MEMORY = "80MB"
"""Limit after all rows are ingested: queries remain fast, because the system caches the file. Some
32 MB are for reading journals of any length, some 30 MB for rows that are not in the file yet."""
SETTLED_WITHOUT_FILE = "100MB"
"""The same for a database in memory, which moves rows above the limit to temporary files."""
LARGEST_MEMORY = "1GB"
"""Limit for work that needs more memory: a look with many new rows, a query over very many."""

T = TypeVar("T")
_ids = count()


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
        self.id = next(_ids)
        """Distinguishes the stores of a process, closed ones included."""
        self._connection = connection
        self._examples = examples
        self._lock = lock
        self._ingesting = threading.Lock()
        self._watch: Watch | None = None
        self._numbers: dict[str, int] = {}
        self.results_version = 0
        """Rises with each summary or size that this process computes or forgets."""
        self.sizes: dict[str, tuple[float, dict[str, int]]] = {}
        """When experiments were measured, and their bytes on disk."""
        self._unwritten: dict[tuple[str, str], list[Any]] = {}
        """Results that could not be written to the database, by experiment and name."""
        self._caught_up: float | None = None
        self._memory_limit = str(CONFIG["memory_limit"])
        self._limiting_memory = threading.Lock()

    @classmethod
    def open(cls, data_dir: DataDir, examples: Path | None = None) -> Self:
        """Becomes the owner of the data folder's database, until `close`.

        If the file is no database or has another schema, an empty database replaces it, and
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
                f"another process owns {data_dir.database_file}, probably another dashboard"
            )
        try:
            connection = _connect(data_dir.database_file)
        except BaseException:
            lock.release()
            raise
        return cls(connection, data_dir, examples, lock)

    @classmethod
    def in_memory(cls, data_dir: DataDir, examples: Path | None = None) -> Self:
        """Reads all run folders into memory, for use while another process owns the database."""
        _require_unicode(data_dir)
        connection = duckdb.connect(":memory:", config=CONFIG)
        _create_schema(connection)
        store = cls(connection, data_dir, examples)
        store.ingest_all()
        return store

    def ingest(self) -> int:
        """Ingests new data of the run folders; returns the number of new event rows.

        Reads at most about 32 MB of journals, so that a call takes a fraction of a second; the
        next call continues there. Raises `StoreUnusable`, for instance while the disk is full;
        rows from before can still be queried.
        """
        return self._tick()[0]

    def ingest_all(self) -> int:
        """Ingests until nothing is left; returns the number of new event rows."""
        is_first = self._caught_up is None  # The amount is unknown yet.
        if is_first:
            self._limit_memory(CONFIG["memory_limit"])
        num_rows, is_full = self._tick()
        if is_bulk := is_full:
            self._limit_memory(CONFIG["memory_limit"])
        while is_full:
            new_rows, is_full = self._tick()
            num_rows += new_rows
        if (is_bulk or num_rows >= MANY_ROWS) and self._lock is not None:
            with self._ingesting, self._connection.cursor() as cursor, suppress(duckdb.Error):
                settle(cursor)
            self._limit_memory(self._settled_memory)
        elif is_first:
            self._limit_memory(self._settled_memory)
        return num_rows

    @property
    def _settled_memory(self) -> str:
        return SETTLED_MEMORY if self.is_own_file else SETTLED_WITHOUT_FILE

    def release_memory(self) -> None:
        """Returns the database's free memory to the system: DuckDB keeps the memory of a query,
        about 30 MB, until the memory limit is set again."""
        self._limit_memory()

    def _limit_memory(self, memory: str | None = None) -> None:
        """Sets the memory limit, or sets the present one again."""
        with self._limiting_memory, suppress(duckdb.Error), self._connection.cursor() as cursor:
            self._memory_limit = memory or self._memory_limit
            cursor.execute(f"SET memory_limit = '{self._memory_limit}'")

    @property
    def is_own_file(self) -> bool:
        """Whether the rows are in a file that only this machine uses, and not in memory."""
        return self._lock is not None

    @property
    def generation(self) -> int:
        """A number that grows with each ingest of new data."""
        return 0 if self._watch is None else self._watch.generation

    @property
    def age(self) -> float | None:
        """Seconds since the store last matched the run folders; None if it never did."""
        return None if self._caught_up is None else time.monotonic() - self._caught_up

    @property
    def run_counts(self) -> dict[str, int]:
        """Number of runs of the data folder in each state."""
        return {} if self._watch is None else self._watch.counts

    @property
    def open_runs(self) -> list[IndexedRun]:
        """The data folder's runs without a recorded end."""
        return [] if self._watch is None else self._watch.open_runs

    def number_of(self, experiment_id: str) -> int:
        """The number by which queries pick the rows of an experiment; 0 if there is none."""
        if experiment_id not in self._numbers:
            query = "SELECT experiment FROM experiments WHERE experiment_id = ?"
            numbers = self.rows(query, [experiment_id])
            if not numbers:
                return 0
            self._numbers[experiment_id] = int(numbers[0][0])
        return self._numbers[experiment_id]

    def rows(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[tuple[Any, ...]]:
        """Like `query`, but faster for few rows, because it makes no data frame."""

        def ask() -> list[tuple[Any, ...]]:
            with self._connection.cursor() as cursor:
                return cursor.execute(sql, parameters).fetchall()

        return self._with_enough_memory(ask)

    def query(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> pd.DataFrame:
        """Runs one query on its own cursor, because a shared connection returns wrong rows."""
        return pd.DataFrame(self.columns(sql, parameters))

    def columns(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
    ) -> dict[str, Any]:
        """The columns of `query` by name."""

        def ask() -> dict[str, Any]:
            with self._connection.cursor() as cursor:
                answer = cursor.execute(sql, parameters)
                kinds = {name: str(kind) for name, kind, *_ in answer.description}
                arrays = answer.fetchnumpy()
            return {name: _array(values, kinds[name]) for name, values in arrays.items()}

        by_name = self._with_enough_memory(ask)
        if max(map(len, by_name.values()), default=0) >= MANY_ANSWERED:
            self.release_memory()
        return by_name

    def write(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Writes a computed result; raises `StoreUnusable`."""

        def keep() -> None:
            with self._ingesting, self._busy(), self._connection.cursor() as cursor:
                cursor.execute(sql, parameters)

        try:
            self._with_enough_memory(keep)
        except duckdb.Error as error:
            raise StoreUnusable(
                f"{self.data_dir.database_file} cannot be written: {printable(error)}"
            ) from error

    def stored_results(
        self, name: str, version: str, experiment_id: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Experiment, newest revision, number of runs and content of each result with this name and
        code version, for one experiment or for all."""
        query = """SELECT experiment_id, revision, num_runs, content FROM results
            WHERE name = ? AND version = ? AND coalesce(experiment_id = ?, true)"""
        results = self.rows(query, [name, version, experiment_id])
        return [*results, *self._unwritten_results(name)]

    def _unwritten_results(self, name: str) -> list[tuple[Any, ...]]:
        rows = (row for row in self._unwritten.values() if row[1] == name)
        return [(row[0], row[2], row[3], row[5]) for row in rows]

    def store_result(
        self, experiment_id: str, name: str, revision: tuple[int, int], version: str, content: str
    ) -> None:
        """Stores a result and replaces an earlier one of the same name; on a full disk it remains
        in this process only."""
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
        """Closes the database, then releases its lock."""
        with self._ingesting:
            self._connection.close()
            if self._lock is not None:
                self._lock.release()

    def _busy(self) -> AbstractContextManager[None]:
        """Shows other processes since when a thread of this store is reading or writing."""
        return nullcontext() if self._lock is None else busy(self._lock.path)

    def _tick(self) -> tuple[int, bool]:
        begun = time.monotonic()
        try:
            num_rows, is_full = self._with_enough_memory(self._look)
        except (OSError, duckdb.Error) as error:
            raise StoreUnusable(
                f"{self.data_dir.database_file} cannot take in what the run folders gained, so "
                f"what is shown may be old: {printable(error)}. If the disk is full, free some "
                "space"
            ) from error
        if not is_full:
            self._caught_up = begun
        return num_rows, is_full

    def _with_enough_memory(self, work: Callable[[], T]) -> T:
        """Runs the work; repeats it with a larger memory limit if the memory did not suffice,
        because it would never suffice."""
        with suppress(duckdb.OutOfMemoryException):
            return work()
        self._limit_memory(LARGEST_MEMORY)
        try:
            return work()
        finally:
            self._limit_memory(self._settled_memory)

    def _look(self) -> tuple[int, bool]:
        with self._ingesting, self._busy(), self._connection.cursor() as cursor:
            if self._watch is None:
                self._watch = start_watch(cursor, self.data_dir.runs, self._examples)
            return run_tick(cursor, self._watch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


TEXTS = ("VARCHAR", "JSON")


def _array(values: Any, kind: str) -> Any:
    """A column as in DuckDB's `df()`, which takes ten times as long if a value is missing; `kind`:
    its type in SQL."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    match values.dtype.kind:
        case "i" | "u":
            return pd.arrays.IntegerArray(values.data, values.mask)
        case "b":
            return pd.arrays.BooleanArray(values.data, values.mask)
        case "f":
            return values.filled(np.nan)
    return values.data if kind in TEXTS else values.filled(pd.NA)


def _require_unicode(data_dir: DataDir) -> None:
    """Raises `StoreUnusable` if the path is not Unicode, because DuckDB cannot store it."""
    try:
        str(data_dir.path).encode()
    except UnicodeEncodeError:
        raise StoreUnusable(
            f"the name of the data folder {printable(data_dir.path)} is not UTF-8; rename it"
        ) from None


def _connect(file: Path) -> duckdb.DuckDBPyConnection:
    """Opens the database; replaces it by a new one if it does not have this schema."""
    connection = _connect_if_usable(file)
    if connection is not None:
        return connection
    # The file is only an index: the run folders have all of its data.
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
        with suppress(duckdb.Error):  # On a full disk the database remains usable.
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
