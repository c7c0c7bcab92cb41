"""A team's store with the interface of the embedded store, for pages and commands.

It holds a local replica: the state of all runs, and the events of the experiments that pages
requested. A page sends about a hundred queries, and each would need several requests to the
database server. The replica copies the events of an experiment on first use, and again after one of
its runs has changed.
"""

import threading
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from breakeven.runner.files import FileLock
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.errors import TeamStoreUnusable
from breakeven.storage.index.ingest import EVENT_TABLES, SCHEMA, Cursor, transaction
from breakeven.storage.index.store import Store
from breakeven.storage.team.feed import Feed
from breakeven.storage.team.lake import LAKE, RESULTS, Lake, Overtaken, snapshot
from breakeven.storage.team.store_address import Address

LISTED = "environments"
"""The only table of events that lists of experiments need; it is copied for all experiments."""
MAX_ROWS = 5_000_000
"""Limit of local events; above it, the least recently used experiments are removed."""


def _events() -> list[str]:
    return [table for table in EVENT_TABLES.values() if table != LISTED]


def _copy_events(cursor: Cursor, experiment: int) -> int:
    """Replaces the local events of an experiment by those of the store."""
    num_rows = 0
    with transaction(cursor):
        query = f"SELECT DISTINCT name FROM {LAKE}.present WHERE experiment = ?"
        present = {name for (name,) in cursor.execute(query, [experiment]).fetchall()}
        for table in _events():
            cursor.execute(f"DELETE FROM {table} WHERE experiment = ?", [experiment])
            if table in present:
                copy = f"INSERT INTO {table} BY NAME FROM {LAKE}.{table} WHERE experiment = ?"
                row = cursor.execute(copy, [experiment]).fetchone()
                num_rows += row[0] if row else 0
    return num_rows


def _copy_news(cursor: Cursor, since: int) -> set[int]:
    """Copies rows of runs written after a snapshot; returns the numbers of the experiments with new
    or removed runs."""
    cursor.execute(
        f"CREATE OR REPLACE TEMP TABLE news AS FROM {LAKE}.progress WHERE revision > ?", [since]
    )
    changed = {
        number
        for (number,) in cursor.execute(
            "SELECT DISTINCT experiment FROM runs JOIN news USING (run_id)"
        ).fetchall()
    }
    _replace(cursor, "progress", "FROM news")
    new = f"FROM {LAKE}.runs WHERE run_id IN (SELECT run_id FROM news)"
    _replace(cursor, "runs", new)
    changed |= _drop_gone(cursor)
    cursor.execute("""INSERT INTO experiments SELECT DISTINCT experiment_id, experiment FROM runs
        WHERE experiment NOT IN (SELECT experiment FROM experiments)""")
    listed = "experiment IN (SELECT experiment FROM runs JOIN news USING (run_id))"
    cursor.execute(f"DELETE FROM {LISTED} WHERE {listed}")
    cursor.execute(f"INSERT INTO {LISTED} BY NAME FROM {LAKE}.{LISTED} WHERE {listed}")
    for table in ("labels", "unreadable"):  # These have few rows.
        cursor.execute(f"DELETE FROM {table}")
        cursor.execute(f"INSERT INTO {table} BY NAME FROM {LAKE}.{table}")
    return changed


def _replace(cursor: Cursor, table: str, rows: str) -> None:
    cursor.execute(f"DELETE FROM {table} WHERE run_id IN (SELECT run_id FROM news)")
    cursor.execute(f"INSERT INTO {table} BY NAME {rows}")


def _drop_gone(cursor: Cursor) -> set[int]:
    """Removes runs that are no longer in the store; returns the numbers of their experiments."""
    counts = f"SELECT (SELECT count(*) FROM progress), (SELECT count(*) FROM {LAKE}.progress)"
    here, there = cursor.execute(counts).fetchall()[0]
    if here == there:
        return set()
    gone = f"run_id NOT IN (SELECT run_id FROM {LAKE}.progress)"
    experiments = cursor.execute(f"SELECT DISTINCT experiment FROM runs WHERE {gone}").fetchall()
    for table in ("progress", "runs", LISTED):
        cursor.execute(f"DELETE FROM {table} WHERE {gone}")
    return {number for (number,) in experiments}


LOCK_FILE = "team-store.lock"


class TeamStore(Store):
    """An index over the run folders of a team. Safe to use from several threads.

    It ingests the data folder of this machine, unless another process does so, and reads the runs
    of all machines.
    """

    def __init__(self, lake: Lake, data_dir: DataDir, examples: Path | None) -> None:
        super().__init__(lake.connection, data_dir, examples, FileLock(data_dir.path / LOCK_FILE))
        self._lake = lake
        self._feed: Feed | None = None
        self._copying = threading.Lock()
        self._snapshot = -1
        """Number of the store's snapshot that the local lists match."""
        self._loaded: OrderedDict[int, int] = OrderedDict()
        """Experiments with local events and their numbers of rows, the most recently used last."""
        self._stale: set[int] = set()
        with lake.connection.cursor() as cursor:
            cursor.execute(SCHEMA)

    @classmethod
    def at(cls, address: Address, data_dir: DataDir, examples: Path | None = None) -> Self:
        """Opens the team's store; raises `TeamStoreUnusable`."""
        lake = Lake(address)
        try:
            store = cls(lake, data_dir, examples)
            store._refresh()
        except BaseException:
            lake.close()
            raise
        return store

    @property
    def feeds(self) -> bool:
        """Whether this process ingests the local data folder, and not another one."""
        return self._feed is not None

    @property
    def is_own_file(self) -> bool:
        """False: requested rows are in memory."""
        return False

    @property
    def generation(self) -> int:
        return self._snapshot

    def number_of(self, experiment_id: str) -> int:
        """Also copies the experiment's events to the replica; raises `TeamStoreUnusable`."""
        number = super().number_of(experiment_id)
        if number:
            self._load(number)
        return number

    def _refresh(self) -> None:
        """Copies changes since the last call to the replica; raises `TeamStoreUnusable`."""
        with self._copying, self._lake.connected(), self._lake.connection.cursor() as cursor:
            now = snapshot(cursor)
            if now == self._snapshot:
                return
            with transaction(cursor):
                now = snapshot(cursor)
                changed = _copy_news(cursor, self._snapshot)
            self._stale |= changed & self._loaded.keys()
            self._snapshot = now

    def _load(self, experiment: int) -> None:
        """Copies the present events of an experiment, unless the replica has them.

        Raises `TeamStoreUnusable` if that fails; but older local events, if any, remain in use.
        """
        with self._copying:
            if experiment in self._loaded and experiment not in self._stale:
                self._loaded.move_to_end(experiment)
                return
            try:
                with self._lake.connected(), self._lake.connection.cursor() as cursor:
                    self._loaded[experiment] = _copy_events(cursor, experiment)
                    self._loaded.move_to_end(experiment)
                    self._stale.discard(experiment)
                    self._make_room(cursor)
            except TeamStoreUnusable:
                if experiment not in self._loaded:
                    raise

    def _make_room(self, cursor: Cursor) -> None:
        while sum(self._loaded.values()) > MAX_ROWS and len(self._loaded) > 1:
            oldest, _ = self._loaded.popitem(last=False)
            for table in _events():
                cursor.execute(f"DELETE FROM {table} WHERE experiment = ?", [oldest])

    def stored_results(
        self, name: str, version: str, experiment_id: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Stored results of the team; only unwritten ones while the database is unreachable."""
        query = f"""SELECT experiment_id, revision, num_runs, content FROM {RESULTS}
            WHERE name = ? AND version = ?"""
        if not self._lake.is_attached:
            return self._unwritten_results(name)
        parameters = [name, version]
        if experiment_id is not None:
            query, parameters = f"{query} AND experiment_id = ?", [*parameters, experiment_id]
        results = []
        with suppress(TeamStoreUnusable), self._lake.connected():
            results = self.rows(query, parameters)
        return [*results, *self._unwritten_results(name)]

    def _write_result(self, row: list[Any]) -> None:
        with suppress(Overtaken), self._lake.connected(), self._connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {RESULTS} WHERE experiment_id = ? AND name = ?", row[:2])
            cursor.execute(f"INSERT INTO {RESULTS} VALUES (?, ?, ?, ?, ?, ?)", row)

    def close(self) -> None:
        with self._ingesting:
            self._lake.close()
            assert self._lock is not None
            self._lock.release()

    def _tick(self) -> tuple[int, bool]:
        begun = time.monotonic()
        with self._ingesting, self._busy():
            num_rows, is_behind = self._ingest()
            self._refresh()
            if self._feed is not None:
                self._watch = self._feed.watch
                query = "SELECT count(*) FROM progress WHERE data_folder = ?"
                self._feed.compare(self.rows(query, [self._feed.name])[0][0])
        if not is_behind:
            self._caught_up = begun
        return num_rows, is_behind

    def _ingest(self) -> tuple[int, bool]:
        """Runs a tick of the local data folder, unless another process ingests it."""
        if self._feed is None:
            assert self._lock is not None
            try:
                if not self._lock.try_acquire():
                    return 0, False
            except OSError as error:
                raise TeamStoreUnusable(f"{self._lock.path} cannot be created: {error}") from None
            try:
                self._feed = Feed(self._lake, self.data_dir, self._examples)
            except BaseException:
                self._lock.release()
                raise
        return self._feed.tick()
