"""A team's store with the interface of the embedded store, for pages and commands."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from breakeven.runner.files import FileLock
from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.errors import TeamStoreUnusable
from breakeven.storage.index.store import Store
from breakeven.storage.team.address import Address
from breakeven.storage.team.feed import Feed
from breakeven.storage.team.lake import RESULTS, Lake, Overtaken
from breakeven.storage.team.replica import LocalReplica

LOCK_FILE = "team-store.lock"


class TeamStore(Store):
    """An index over the run folders of a team. Safe to use from several threads.

    It ingests the data folder of this machine, unless another process does so, and reads the runs
    of all machines.
    """

    def __init__(self, lake: Lake, data_dir: DataDir, examples: Path | None) -> None:
        super().__init__(lake.connection, data_dir, examples, FileLock(data_dir.path / LOCK_FILE))
        self._lake = lake
        self._replica = LocalReplica(lake)
        self._feed: Feed | None = None

    @classmethod
    def at(cls, address: Address, data_dir: DataDir, examples: Path | None = None) -> Self:
        """Opens the team's store; raises `TeamStoreUnusable`."""
        lake = Lake(address)
        try:
            store = cls(lake, data_dir, examples)
            store._replica.refresh()
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
        return self._replica.snapshot

    def number_of(self, experiment_id: str) -> int:
        """Also copies the experiment's events to the replica; raises `TeamStoreUnusable`."""
        number = super().number_of(experiment_id)
        if number:
            self._replica.bring(number)
        return number

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
        found = []
        with suppress(TeamStoreUnusable), self._lake.telling():
            found = self.rows(query, parameters)
        return [*found, *self._unwritten_results(name)]

    def _write_result(self, row: list[Any]) -> None:
        with suppress(Overtaken), self._lake.telling(), self._connection.cursor() as cursor:
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
            num_rows, is_behind = self._take_in()
            self._replica.refresh()
            if self._feed is not None:
                self._watch = self._feed.watch
                self._feed.compare(self._replica.num_runs(self._feed.name))
        if not is_behind:
            self._caught_up = begun
        return num_rows, is_behind

    def _take_in(self) -> tuple[int, bool]:
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
