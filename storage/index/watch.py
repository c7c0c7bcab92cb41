"""Selects the run folders that a tick examines: those that may have changed.

Every tick examines the list of folders (again only if the time stamp of their parent changed), runs
that are not over, and journals with unread bytes. All others rarely change; a tick examines each of
them at least every `ROUND_SECONDS`, in a small store every time. One examination reads four file
stamps: the folder's and those of `WATCHED`. It reads files only if a stamp has changed.

A process that changes the folder of a finished run touches the folder of all runs. Its new time
stamp makes the next tick examine every run.
"""

import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import nlargest
from pathlib import Path

from breakeven.runner.errors import RunnerError
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.texts import printable
from breakeven.storage.index.folders import (
    GRANULARITY_NS,
    MAX_MESSAGE,
    Agreed,
    FolderScan,
    IndexedRun,
    Listing,
    agreed_specs,
    describe,
    look_at_labels,
    lstat,
    read_journal,
    with_present_state,
)

ROUND_SECONDS = 30.0
"""Longest time until ticks notice a change in the folder of a finished run."""
MIN_SETTLED = 100
"""Number of folders of finished runs that every tick examines, if there are as many; also the limit
for folders without an exit record that are examined each time though nothing runs."""
MAX_DAMAGED = 25
"""Unreadable folders that a tick tries again; one takes as long as many other folders."""

WATCHED = ("exit.json", "labels.json", "events.jsonl")
"""Files that change without a new time stamp of their folder."""
Stamp = tuple[int, ...]


class Watch:
    """The known state of all run folders and of possible changes. Not thread-safe."""

    def __init__(
        self,
        runs: Path,
        examples: Path | None,
        known: Mapping[str, IndexedRun],
        unreadable: Mapping[str, tuple[str, str]],
        labels: Mapping[str, int],
    ) -> None:
        self.known = dict(known)
        """The progress of every run in the database."""
        self.unreadable = dict(unreadable)
        """Like `FolderScan.unreadable`."""
        self._labels = dict(labels)
        """Modification times of the labels in the database."""
        self.elsewhere: set[str] = set()
        """Runs for which another data folder is responsible; their copies here are ignored."""
        self.generation = 0
        """Number of ingests with new data."""
        self._listing = Listing(runs, examples)
        self._own = f"{runs}/"
        self._stamps: dict[str, Stamp] = {}
        """Stamps of folders, if each change in the folder would change its stamp."""
        self._open = {name for name, row in known.items() if row.exit_stamp is None}
        self._due: set[str] = set()
        """Runs that the next look must examine, until their data is ingested."""
        self._gone: set[str] = set()
        self._order: list[str] = []
        self._place = 0
        self._last_look = -math.inf

    def look(self) -> FolderScan:
        """Reads new data since the last ingested look, up to the limit."""
        if self._listing.update():
            self._compare_lists()
        if self._listing.was_touched:
            self._last_look = -math.inf
        seen = FolderScan(unreadable=dict(self.unreadable), gone=sorted(self._gone))
        for name in self._gone:
            seen.unreadable.pop(name, None)
        agreed = agreed_specs(self._listing)
        experiment = ""
        for name in self._names_due():
            if name not in self._listing.folders or name in self.elsewhere:
                continue
            # The next look reads the rest; the runs of an experiment are read together.
            if seen.is_full and not name.startswith(experiment):
                seen.behind.append(name)
                continue
            experiment = f"{name.partition('.')[0]}."
            self._look_at(name, seen, agreed)
        return seen

    def changed(self, seen: FolderScan) -> list[IndexedRun]:
        """The new progress of runs that have changed."""
        return [row for run_id, row in seen.progress.items() if row != self.known.get(run_id)]

    def is_news(self, seen: FolderScan) -> bool:
        """Whether a look found new data."""
        return bool(
            seen.gone or self.changed(seen) or seen.labels or seen.unreadable != self.unreadable
        )

    def taken_in(self, seen: FolderScan, *, is_new: bool) -> None:
        """Updates the known state after the database has the results of a look."""
        self.generation += is_new
        for name in seen.gone:
            self.known.pop(name, None)
            self._stamps.pop(name, None)
            self._labels.pop(name, None)
        self.known |= seen.progress
        for name, stamped in seen.labels.items():
            self._labels.pop(name, None)
            if stamped is not None:
                self._labels[name] = stamped[0]
        self.unreadable = seen.unreadable
        self._open.difference_update(seen.gone, seen.progress)
        self._open.update(name for name, row in seen.progress.items() if row.exit_stamp is None)
        self._stamps |= seen.stamps
        self._due = set(seen.behind)
        self._gone = set()

    @property
    def counts(self) -> dict[str, int]:
        """Number of runs of the data folder in each state."""
        rows = list(self.known.values())  # A copy, because another thread may ingest meanwhile.
        return Counter(row.state for row in rows if self._is_own(row))

    @property
    def open_runs(self) -> list[IndexedRun]:
        """The data folder's runs without a recorded end."""
        return [self.known[name] for name in self._open if self._is_own(self.known[name])]

    def _is_own(self, row: IndexedRun) -> bool:
        return row.folder.startswith(self._own)

    def _compare_lists(self) -> None:
        """Finds folders that were added, removed, or replaced by others of the same name."""
        folders = self._listing.folders
        self._gone |= (self.known.keys() | self.unreadable.keys()) - folders.keys()
        moved = {
            name
            for name, row in self.known.items()
            if name in folders and row.folder != folders[name].path
        }
        self._gone = (self._gone - folders.keys()) | moved
        self._due |= moved | (folders.keys() - self.known.keys() - self.unreadable.keys())
        self._order = list(folders)

    def _names_due(self) -> Iterable[str]:
        """Names to examine, each once: running runs first, then the newest."""
        running = [name for name in self._open if self.known[name].state == RunState.RUNNING]
        others = nlargest(MIN_SETTLED, self._open)  # Names begin with their time.
        due = sorted(self._due, reverse=True)
        return dict.fromkeys([*running, *others, *due, *self._next_settled()])

    def _next_settled(self) -> list[str]:
        """The next names in turn, as many as needed to examine all within `ROUND_SECONDS`."""
        now = time.monotonic()
        share = min(1.0, (now - self._last_look) / ROUND_SECONDS)
        self._last_look = now
        count = min(len(self._order), max(MIN_SETTLED, math.ceil(len(self._order) * share)))
        end = self._place + count
        turn = self._order[self._place : end] + self._order[: max(0, end - len(self._order))]
        self._place = end % max(1, len(self._order))
        return turn

    def _look_at(self, name: str, seen: FolderScan, agreed: Agreed) -> None:
        path, origin = self._listing.folders[name]
        before, stamp = self.known.get(name), _stamp(path)
        seen.num_looked += 1
        if stamp is not None and stamp == self._stamps.get(name):
            return
        if name in self.unreadable and before is None:
            seen.num_damaged += 1
            if seen.num_damaged > MAX_DAMAGED:
                return
        run_dir, description = RunDir(Path(path)), None
        try:
            if before is None or before.folder != path:
                description = describe(run_dir, origin, agreed)
                before = IndexedRun(run_id=name, folder=path)
            # The state before the journal: if the state is final, the journal is complete.
            now = with_present_state(before, run_dir)
            seen.progress[name] = read_journal(seen, now, run_dir)
        # A folder from elsewhere may have any content and must not block the others.
        except (RunnerError, OSError) as error:
            seen.unreadable[name] = (printable(path), printable(error, MAX_MESSAGE))
            if name in self.known:
                seen.gone.append(name)
            return
        seen.unreadable.pop(name, None)
        look_at_labels(seen, run_dir, None if description else self._labels.get(name))
        if description is not None:
            seen.new_runs.append(description)
        if stamp is not None and now.state != RunState.RUNNING and name not in seen.behind:
            seen.stamps[name] = stamp


def _stamp(folder: str) -> Stamp | None:
    """A stamp that differs after each relevant change; None if a recent change makes it unsafe."""
    try:
        stat = os.stat(folder)  # The folder may be a link, but not the files in it.
    except OSError:
        return None
    ended, labels, journal = (_change_and_size(f"{folder}/{name}") for name in WATCHED)
    if max(stat.st_ctime_ns, ended[0], labels[0]) > time.time_ns() - GRANULARITY_NS:
        return None
    return stat.st_ino, stat.st_ctime_ns, ended[0], labels[0], journal[1]


def _change_and_size(file: str) -> tuple[int, int]:
    """Change time of a file in nanoseconds, and its size; zeros if it does not exist."""
    stat = lstat(file)
    return (0, 0) if stat is None else (stat.st_ctime_ns, stat.st_size)
