"""Which run folders there are, and which of them a tick looks at: those that may have changed.

Every tick looks at the list of folders (again only if the time stamp of their parent changed), at
runs that are not over, and at journals that were not read to their end. All others, which hardly
ever change, have their turn at least every `ROUND_SECONDS`; in a small store that is every tick.
Looking at one costs four file stamps: its folder's and those of `WATCHED`. Only if one of them is
another than before is anything read.

A process that changes the folder of a finished run touches the folder of all runs. Its new time
stamp makes the next tick look at every run.
"""

import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import nlargest
from pathlib import Path

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import RunState
from breakeven.runner.texts import printable
from breakeven.storage.index.folders import (
    MAX_MESSAGE,
    FolderScan,
    IndexedRun,
    describe,
    look_at_labels,
    lstat,
    read_journal,
    standing,
)
from breakeven.storage.index.listing import GRANULARITY_NS, Agreed, Listing

ROUND_SECONDS = 30.0
"""How long a change in the folder of a run that was over may go unnoticed while ticks go on."""
MIN_SETTLED = 100
"""Folders of runs that are over that every tick looks at, if there are as many; and the most of
those without an exit record that are looked at out of turn, though nothing runs there."""
MAX_DAMAGED = 25
"""Folders that could not be read that a tick tries again: one takes as long as many others."""

WATCHED = ("exit.json", "labels.json", "events.jsonl")
"""What changes in a folder without anything coming or going there."""
Stamp = tuple[int, ...]


class Watch:
    """What is known of all run folders, and what of it may be old. One thread at a time."""

    def __init__(
        self,
        runs: Path,
        examples: Path | None,
        known: Mapping[str, IndexedRun],
        unreadable: Mapping[str, tuple[str, str]],
        labels: Mapping[str, int],
    ) -> None:
        self.known = dict(known)
        """How every run stood when it was last taken in."""
        self.unreadable = dict(unreadable)
        """As `FolderScan` has it."""
        self._labels = dict(labels)
        """When the labels were written that were taken in."""
        self.elsewhere: set[str] = set()
        """Runs that another data folder answers for, so that their copies here are left alone."""
        self.generation = 0
        """How often something was taken in."""
        self._listing = Listing(runs, examples)
        self._own = f"{runs}/"
        self._counts = Counter(row.state for row in known.values() if self._is_own(row))
        self._stamps: dict[str, Stamp] = {}
        """Of folders in which nothing changes without changing it."""
        self._open = {name for name, row in known.items() if row.exit_stamp is None}
        self._due: set[str] = set()
        """To be looked at out of turn, until what was found is taken in."""
        self._gone: set[str] = set()
        self._order: list[str] = []
        self._place = 0
        self._last_look = -math.inf

    def look(self) -> FolderScan:
        """Reads what is new since the last look that was taken in, as far as it fits."""
        if self._listing.update():
            self._compare_lists()
        if self._listing.was_touched:
            self._last_look = -math.inf
        seen = FolderScan(unreadable=dict(self.unreadable), gone=sorted(self._gone))
        for name in self._gone:
            seen.unreadable.pop(name, None)
        agreed = Agreed(self._listing)
        experiment = ""
        for name in self._names_due():
            if name not in self._listing.folders or name in self.elsewhere:
                continue
            # What does not fit has its turn in the next look, an experiment with all its runs.
            if seen.is_full and not name.startswith(experiment):
                seen.behind.append(name)
                continue
            experiment = f"{name.partition('.')[0]}."
            self._look_at(name, seen, agreed)
        return seen

    def changed(self, seen: FolderScan) -> list[IndexedRun]:
        """How runs stand that stood otherwise."""
        return [row for run_id, row in seen.progress.items() if row != self.known.get(run_id)]

    def is_news(self, seen: FolderScan) -> bool:
        """Whether a look found what was not known."""
        return bool(
            seen.gone or self.changed(seen) or seen.labels or seen.unreadable != self.unreadable
        )

    def taken_in(self, seen: FolderScan, *, is_new: bool) -> None:
        """What a look found is in the database, and need not be found again."""
        self.generation += is_new
        for name in (*seen.gone, *seen.progress):
            self._count(self.known.get(name), -1)
        for name in seen.gone:
            self.known.pop(name, None)
            self._stamps.pop(name, None)
            self._labels.pop(name, None)
        self.known |= seen.progress
        for row in seen.progress.values():
            self._count(row, 1)
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
        """How many runs of the data folder are in each state. Kept, not counted: it costs the same
        with many."""
        return {state: count for state, count in self._counts.items() if count}

    @property
    def open_runs(self) -> list[IndexedRun]:
        """The data folder's runs without a recorded end."""
        return [self.known[name] for name in self._open if self._is_own(self.known[name])]

    def _is_own(self, row: IndexedRun) -> bool:
        return row.folder.startswith(self._own)

    def _count(self, row: IndexedRun | None, by: int) -> None:
        if row is not None and self._is_own(row):
            self._counts[row.state] += by

    def _compare_lists(self) -> None:
        """Finds folders that came, vanished, or took the place of others of their name."""
        folders = self._listing.folders
        self._gone |= (self.known.keys() | self.unreadable.keys()) - folders.keys()
        moved = {name for name, row in self.known.items()
                 if name in folders and row.folder != folders[name].path}  # fmt: skip
        self._gone = (self._gone - folders.keys()) | moved
        self._due |= moved | (folders.keys() - self.known.keys() - self.unreadable.keys())
        self._order = list(folders)

    def _names_due(self) -> Iterable[str]:
        """Names to look at, each once: those that go on first, then the newest."""
        running = [name for name in self._open if self.known[name].state == RunState.RUNNING]
        others = nlargest(MIN_SETTLED, self._open)  # Names begin with their time.
        due = sorted(self._due, reverse=True)
        return dict.fromkeys([*running, *others, *due, *self._next_settled()])

    def _next_settled(self) -> list[str]:
        """Those whose turn it is: so many that all have had theirs within a round."""
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
            # The state first: once it is final, the journal read after it is complete.
            now = standing(before, run_dir)
            seen.progress[name] = read_journal(seen, now, run_dir)
        # A foreign folder may hold anything, and must not keep the others from being read.
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
    """Differs once anything changed that a look would find; None if it might not."""
    try:
        found = os.stat(folder)  # It may be a link; what is in it may not.
    except OSError:
        return None
    ended, labels, journal = (_found(f"{folder}/{name}") for name in WATCHED)
    if max(found.st_ctime_ns, ended[0], labels[0]) > time.time_ns() - GRANULARITY_NS:
        return None
    return found.st_ino, found.st_ctime_ns, ended[0], labels[0], journal[1]


def _found(file: str) -> tuple[int, int]:
    """When it was changed, in nanoseconds, and its size; zeros if there is none."""
    found = lstat(file)
    return (0, 0) if found is None else (found.st_ctime_ns, found.st_size)
