"""Lists run folders, and reads one: its specification, the run's state, new lines of its journal,
and labels that users added. Folders are listed again only if the time stamp of their parent
changed."""

import errno
import json
import os
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments.queue import agreed_spec, require_readable
from breakeven.runner.protocol.data_dir import run_names
from breakeven.runner.protocol.events import (
    MAX_LINE_BYTES,
    JournalPosition,
    read_complete_lines,
    require_known_format,
    stat_journal,
)
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.workload import experiment_name
from breakeven.runner.texts import printable
from breakeven.storage.index.lines import Lines, counting_lines

GRANULARITY_NS = 2_000_000_000
"""Coarsest resolution of file time stamps: a more recent stamp may hide a second change."""


class Folder(NamedTuple):
    """A folder that may be a run."""

    path: str
    origin: str
    """`local` or `example`."""


class Listing:
    """All folders that may be runs, by name.

    Folders of the same name are copies of the same run; the local one counts.
    """

    def __init__(self, runs: Path, examples: Path | None) -> None:
        self.folders: Mapping[str, Folder] = {}
        self._runs, self._examples = str(runs), str(examples) if examples else None
        self._parents: dict[str, tuple[tuple[int, int] | None, bool, list[str]]] = {}
        """For each listed folder: time stamp, whether the stamp is old enough to rely on, names."""
        self._listed: list[list[str]] = []
        self.was_touched = False
        """Whether the last update found a changed time stamp of a parent."""
        self._experiments: dict[str, list[Path]] | None = None

    def update(self) -> bool:
        """Lists folders again if necessary; returns whether any were added or removed."""
        self.was_touched = False
        groups = self._names(self._examples) if self._examples else []
        parents = [(f"{self._examples}/{group}", "example") for group in groups]
        parents.append((self._runs, "local"))
        parents_with_names = [(parent, origin, self._names(parent)) for parent, origin in parents]
        listed = [groups, *(names for _, _, names in parents_with_names)]
        if [*map(id, listed)] == [*map(id, self._listed)]:
            return False
        self._listed, self._experiments = listed, None
        self.folders = {
            name: Folder(f"{parent}/{name}", origin)
            for parent, origin, names in parents_with_names
            for name in names
        }
        return True

    def of_experiment(self, experiment_id: str) -> list[Path]:
        """Folders whose names belong to an experiment."""
        if self._experiments is None:
            self._experiments = {}
            for name, folder in self.folders.items():
                folders = self._experiments.setdefault(name.partition(".")[0], [])
                folders.append(Path(folder.path))
        return self._experiments.get(experiment_id, [])

    def _names(self, parent: str) -> list[str]:
        """Names of folders in `parent`; the same list object if nothing changed."""
        known, is_old, names = self._parents.get(parent, (None, False, []))
        try:
            stat = os.stat(parent)
            stamp = (stat.st_ino, stat.st_mtime_ns)
        except OSError:
            stamp = None
        if stamp is None or stamp != known or not is_old:
            self.was_touched |= stamp != known
            listed = run_names(Path(parent))
            names = names if parent in self._parents and listed == names else listed
            is_old = stamp is not None and stamp[1] < time.time_ns() - GRANULARITY_NS
            self._parents[parent] = (stamp, is_old, names)
        return names


Agreed = Callable[[str], tuple[ExperimentSpec | None, str]]
"""The specification that most folders of an experiment have, and its JSON, by the experiment."""


def agreed_specs(listing: Listing) -> Agreed:
    """Reads each specification on first use."""

    @cache
    def agreed(experiment_id: str) -> tuple[ExperimentSpec | None, str]:
        spec = agreed_spec(map(RunDir, listing.of_experiment(experiment_id)))
        return spec, json.dumps(None if spec is None else asdict(spec))

    return agreed


MAX_TICK_BYTES = 32_000_000
"""Journal bytes after which a look stops reading, about half a second of work. They have more steps
than DuckDB's 122,880 rows of a group, which it writes into the file at once; of fewer rows it first
writes a log."""

MAX_MESSAGE = 1_000
"""Stored characters of the error of a folder."""
REASONS = {
    RunState.LOST: "its process vanished without a word",
    RunState.ELSEWHERE: "claimed on another machine; how it goes on cannot be seen from here",
}
"""Reasons for derived states, for which no exit.json has a reason."""


@dataclass(frozen=True, kw_only=True)
class IndexedRun:
    """The state of a run and the position in its journal; a row of table `progress`."""

    run_id: str
    folder: str
    state: str = RunState.QUEUED
    reason: str | None = None
    claimed: float | None = None
    """Seconds since the epoch, like `ended`."""
    ended: float | None = None
    exit_stamp: int | None = None
    """Modification time of exit.json in nanoseconds; None without this file."""
    journal_offset: int = 0
    journal_inode: int | None = None
    """Inode of the file that was read: a run that began anew has another file of the same name."""
    last_seq: int = -1
    """`seq` of the last event read from the journal; -1 before the first one."""
    left_out: int = 0
    """Ignored events of the journal, because their `seq` does not ascend."""
    missing: int = 0
    """Events that are missing between those that count."""


@dataclass(kw_only=True)
class FolderScan:
    """The result of a look at run folders."""

    unreadable: dict[str, tuple[str, str]]
    """All unreadable folders by name: the displayed path, and the error."""
    new_runs: list[dict[str, Any]] = field(default_factory=list)
    """Rows of table `runs`."""
    progress: dict[str, IndexedRun] = field(default_factory=dict)
    """New progress of the runs examined."""
    gone: list[str] = field(default_factory=list)
    """Runs that leave the index, or that another copy replaces."""
    events: dict[str, Lines] = field(default_factory=dict)
    """Run id to the new lines of its journal that count."""
    restarted: list[str] = field(default_factory=list)
    """Runs whose journal was replaced or became shorter, so that it is read from the beginning."""
    behind: list[str] = field(default_factory=list)
    """Runs with journal bytes left for the next look."""
    labels: dict[str, tuple[int, str] | None] = field(default_factory=dict)
    """Run id to time stamp and content of new labels; None for removed labels."""
    stamps: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Time stamps of folders; a folder needs no further look while they are equal."""
    num_bytes: int = 0
    num_looked: int = 0
    num_damaged: int = 0
    """Folders that were unreadable before and were tried again."""

    @property
    def is_full(self) -> bool:
        return self.num_bytes >= MAX_TICK_BYTES

    def drop(self, names: Set[str]) -> None:
        """Removes the results for these runs."""
        self.new_runs = [row for row in self.new_runs if row["run_id"] not in names]
        for by_run in (self.progress, self.events, self.labels, self.unreadable, self.stamps):
            for name in names & by_run.keys():
                del by_run[name]
        self.behind = [name for name in self.behind if name not in names]


OF_EXPERIMENT = (
    "scenario",
    "task",
    "schedule",
    "suite_run",
    "fallback_of",
    "confirms",
    "investigates",
)
"""Fields of an experiment that are columns of table `runs` as they are."""


def describe(run_dir: RunDir, origin: str, agreed: Agreed) -> dict[str, Any]:
    """The run's row of table `runs`; raises `RunnerError` if the folder is no run folder."""
    agreed_experiment, text = agreed(run_dir.run_id.partition(".")[0])
    spec = require_readable(run_dir, agreed_experiment)
    experiment = spec.experiment
    return {
        "run_id": spec.run_id,
        "experiment_id": spec.experiment_id,
        "position": experiment.possible_arms.index(spec.arm),
        **{name: getattr(spec.arm, name) for name in ("label", "role", "backend")},
        "origin": origin,
        "num_steps": spec.work.num_steps,
        "name": experiment_name(experiment.name, experiment.model.source, experiment.data.source),
        "model": experiment.model.source,
        "data": experiment.data.source,
        "device": experiment.devices[0],
        "precision": experiment.training.precision,
        "batch": experiment.training.batch_size,
        "backends": [*experiment.backends, *experiment.names_of_arms],
        **{name: getattr(experiment, name) for name in OF_EXPERIMENT},
        # The same text as from `RunSpec.to_json`; all runs of the experiment share one part.
        "spec": f'{{"experiment_id": {json.dumps(spec.experiment_id)}, '
        f'"experiment": {text}, '
        f'"arm": {json.dumps(asdict(spec.arm))}}}',
    }


def with_present_state(before: IndexedRun, run_dir: RunDir) -> IndexedRun:
    """Derives a run's state from its files, unless it has ended and was not resumed since."""
    # Stamp before content: a file that is replaced in between is read again the next time.
    stamp = modified_ns(run_dir.exit_file)
    if stamp is not None and stamp == before.exit_stamp:
        return before
    status = run_dir.status
    return replace(
        before,
        state=str(status.state),
        # An active run reports its obstacle immediately; the index may be on the same full disk.
        reason=None if status.state.is_active else status.reason or REASONS.get(status.state),
        claimed=status.claimed,
        ended=status.ended,
        # An unreadable record is read again later.
        exit_stamp=stamp if status.ended is not None else None,
    )


def modified_ns(file: Path) -> int | None:
    """Modification time of a file in nanoseconds; None if it does not exist."""
    stat = lstat(file)
    return None if stat is None else stat.st_mtime_ns


def lstat(file: str | Path) -> os.stat_result | None:
    try:
        return os.lstat(file)
    except OSError:
        return None


def _after_hole(run_dir: RunDir, offset: int, size: int) -> int:
    """Offset of the first byte from `offset` on that exists on the disk: a sparse file may pretend
    to have terabytes."""
    with run_dir.open(run_dir.events_file.name) as file:
        try:
            return os.lseek(file.fileno(), offset, os.SEEK_DATA)
        except OSError as error:
            return size if error.errno == errno.ENXIO else offset


def count_left_out(run_dir: RunDir) -> int:
    """The number of ignored events of a run's journal, because their `seq` does not ascend. Reads
    the whole journal; raises `InvalidRunFolder`."""
    run = IndexedRun(run_id=run_dir.run_id, folder=str(run_dir.path))
    while True:
        seen = FolderScan(unreadable={})
        run = read_journal(seen, run, run_dir)
        if not seen.behind:
            return run.left_out


def read_journal(seen: FolderScan, run: IndexedRun, run_dir: RunDir) -> IndexedRun:
    """Reads new events of the journal, unless the look is full; returns the new progress."""
    status = stat_journal(run_dir.events_file)
    size, inode = (status.st_size, status.st_ino) if status else (0, None)
    if size < run.journal_offset or (run.journal_offset and inode != run.journal_inode):
        seen.restarted.append(run.run_id)
        run = replace(run, journal_offset=0, last_seq=-1, left_out=0, missing=0)
    if size == run.journal_offset:
        return run
    if seen.is_full:
        seen.behind.append(run.run_id)
        return run
    most = min(MAX_TICK_BYTES, MAX_LINE_BYTES)
    lines, end = read_complete_lines(run_dir.events_file, run.journal_offset, most)
    if size - run.journal_offset > most:
        seen.behind.append(run.run_id)
        if not lines:
            # No event is that long: the line is garbage, and its rest is skipped like a bad line.
            end = _after_hole(run_dir, run.journal_offset + most, size)
    if lines:
        require_known_format(run_dir.events_file, lines)
        seen.num_bytes += len(lines)
    position = JournalPosition(run.last_seq, run.left_out, run.missing)
    if new_lines := counting_lines(lines, position):
        seen.events[run.run_id] = new_lines
    return replace(
        run,
        journal_offset=end,
        journal_inode=inode,
        last_seq=position.last,
        left_out=position.num_left_out,
        missing=position.num_missing,
    )


def look_at_labels(seen: FolderScan, run: RunDir, known: int | None) -> None:
    """Notes changes of labels since those in the index, with the time stamp `known`. Unreadable
    labels appear among the unreadable folders, but their run counts.
    """
    # Stamp before content: a file that is replaced in between is read again the next time.
    stamp = modified_ns(run.labels_file)
    if stamp == known:
        return
    try:
        labels = None if stamp is None else (stamp, run.read_labels().to_json())
    except RunnerError as error:
        seen.unreadable[run.run_id] = (printable(run.path), printable(error, MAX_MESSAGE))
        labels = None
    if labels is not None or known is not None:
        seen.labels[run.run_id] = labels
