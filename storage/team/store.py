"""A team's store, as pages and commands use it: like the embedded one, beside many others."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from breakeven.runner.files import FileLock
from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.errors import TeamStoreUnusable
from breakeven.storage.index.results import Results
from breakeven.storage.index.store import Store
from breakeven.storage.team.address import Address
from breakeven.storage.team.desk import Desk
from breakeven.storage.team.feed import PATIENCE, Feed
from breakeven.storage.team.lake import Lake, Overtaken
from breakeven.storage.team.results import TeamResults

LOCK_FILE = "team-store.lock"


class TeamStore(Store):
    """An index over the run folders of a team. Safe to use from several threads.

    It takes in the data folder of this machine, unless another process does so, and reads
    everybody's.
    """

    def __init__(self, lake: Lake, data_dir: DataDir, examples: Path | None) -> None:
        super().__init__(lake.connection, data_dir, examples, FileLock(data_dir.path / LOCK_FILE))
        self._lake = lake
        self._desk = Desk(lake)
        self._feed: Feed | None = None

    @classmethod
    def at(cls, address: Address, data_dir: DataDir, examples: Path | None = None) -> Self:
        """Raises `TeamStoreUnusable`."""
        lake = Lake(address)
        try:
            store = cls(lake, data_dir, examples)
            store._desk.refresh()
        except BaseException:
            lake.close()
            raise
        return store

    @property
    def feeds(self) -> bool:
        """Whether this process takes in the data folder that is here, and no other does."""
        return self._feed is not None

    @property
    def is_own_file(self) -> bool:
        """No: what was asked for is in memory."""
        return False

    @property
    def results(self) -> Results | None:
        """Those of the team; none where no server keeps them."""
        return TeamResults(self._lake) if self._lake.address.catalog == "postgres" else None

    @property
    def own_data_folder(self) -> str | None:
        return None if self._feed is None else self._feed.name

    @property
    def generation(self) -> int:
        return self._desk.snapshot

    def number_of(self, experiment_id: str) -> int:
        """As of any store; also has the experiment's events at hand. Raises `TeamStoreUnusable`."""
        number = super().number_of(experiment_id)
        if number:
            self._desk.bring(number)
        return number

    def write(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Keeps something that was computed from the rows, here and for the others."""
        super().write(sql, parameters)
        for _ in range(PATIENCE):
            try:
                with self._ingesting, self._lake.writing() as (cursor, _):
                    cursor.execute(sql, parameters)
                return
            except Overtaken:
                continue
        raise self._lake.outrun()

    def close(self) -> None:
        with self._ingesting:
            self._lake.close()
            assert self._lock is not None
            self._lock.release()

    def _tick(self, ticks: int = 1) -> tuple[int, bool]:
        begun = time.monotonic()
        with self._ingesting, self._busy():
            num_rows, is_behind = self._take_in(ticks)
            self._desk.refresh()
            if self._feed is not None:
                self._watch = self._feed.watch
                self._feed.compare(self._desk.num_runs(self._feed.name))
        if not is_behind:
            self._caught_up = begun
        return num_rows, is_behind

    def _take_in(self, ticks: int) -> tuple[int, bool]:
        """A tick of the data folder that is here, if no other process sees to it."""
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
        return self._feed.tick(ticks)
