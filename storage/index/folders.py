"""Looks at a run folder: what it describes, how the run stands, what its journal gained, and what
people added to it."""

import errno
import json
import os
from collections.abc import Set
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.events import (
    Order,
    read_complete_lines,
    require_known_format,
    stat_journal,
)
from breakeven.runner.folders.queue import require_readable
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.workload import known_as
from breakeven.runner.texts import printable
from breakeven.storage.index.journal_lines import Lines, counting_lines
from breakeven.storage.index.listing import Agreed

MAX_TICK_BYTES = 16_000_000
"""Journal bytes after which a look stops reading; well under a second of work. It is also the
longest line that is read."""

MAX_MESSAGE = 1_000
"""Characters that are kept of what is wrong with a folder."""
REASONS = {
    RunState.LOST: "its process vanished without a word",
    RunState.ELSEWHERE: "claimed on another machine; how it goes on cannot be seen from here",
}
"""Reasons for states that are derived, because no exit.json says one."""


@dataclass(frozen=True, kw_only=True)
class IndexedRun:
    """How a run stands and how far its journal was read; a row of table `progress`."""

    run_id: str
    folder: str
    state: str = RunState.QUEUED
    reason: str | None = None
    claimed: float | None = None
    """Seconds since the epoch, like `ended`."""
    ended: float | None = None
    exit_stamp: int | None = None
    """When exit.json was written, in nanoseconds; None while there is none."""
    journal_offset: int = 0
    journal_inode: int | None = None
    """Which file was read: a run that began anew has another one of the same name."""
    last_seq: int = -1
    """Of the last event that was taken from the journal; -1 before the first one."""
    left_out: int = 0
    """Events of the journal that did not come after those before them, and so do not count."""
    missing: int = 0
    """Events that the journal should have had between those that count."""


@dataclass(kw_only=True)
class FolderScan:
    """What a look at run folders found."""

    unreadable: dict[str, tuple[str, str]]
    """All folders that cannot be read, by name: as they are shown, and what is wrong."""
    new_runs: list[dict[str, Any]] = field(default_factory=list)
    """Rows of table `runs`."""
    progress: dict[str, IndexedRun] = field(default_factory=dict)
    """Of the runs that were looked at."""
    gone: list[str] = field(default_factory=list)
    """Runs that leave the index, or whose place another copy takes."""
    events: dict[str, Lines] = field(default_factory=dict)
    """Run id to the lines that its journal gained and that count."""
    restarted: list[str] = field(default_factory=list)
    """Runs whose journal is another one than was read, or got shorter, so all of it is read."""
    behind: list[str] = field(default_factory=list)
    """Runs of whose journals bytes were left for the next look."""
    labels: dict[str, tuple[int, str] | None] = field(default_factory=dict)
    """Run id to stamp and content of labels that are new; None for those that are gone."""
    stamps: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Of folders that need no further look as long as they have these."""
    num_bytes: int = 0
    num_looked: int = 0
    num_damaged: int = 0
    """Folders tried again that could not be read before."""

    @property
    def is_full(self) -> bool:
        return self.num_bytes >= MAX_TICK_BYTES

    def drop(self, names: Set[str]) -> None:
        """Forgets what was found of these runs."""
        self.new_runs = [row for row in self.new_runs if row["run_id"] not in names]
        for found in (self.progress, self.events, self.labels, self.unreadable, self.stamps):
            for name in names & found.keys():
                del found[name]
        self.behind = [name for name in self.behind if name not in names]


def describe(run_dir: RunDir, origin: str, agreed: Agreed) -> dict[str, Any]:
    """The run's row of table `runs`; raises `RunnerError` for a folder that is none."""
    spec = require_readable(run_dir, agreed.spec(run_dir.run_id.partition(".")[0]))
    whole = spec.experiment
    return {
        "run_id": spec.run_id,
        "experiment_id": spec.experiment_id,
        "position": whole.possible_variants.index(spec.variant),
        "label": spec.variant.label,
        "role": spec.variant.role,
        "backend": spec.variant.backend,
        "origin": origin,
        "num_steps": whole.num_steps,
        "name": known_as(whole.name, whole.model.source, whole.data.source),
        "scenario": whole.scenario,
        "task": whole.task,
        "model": whole.model.source,
        "data": whole.data.source,
        "device": whole.devices[0],
        "precision": whole.training.precision,
        "batch": whole.training.batch_size,
        "backends": list(whole.backends),
        "schedule": whole.schedule,
        "suite_run": whole.suite_run,
        "fallback_of": whole.fallback_of,
        "replay_of": whole.replay_of,
        "confirms": whole.confirms,
        # As `RunSpec.to_json` writes it, for all runs of the experiment from one text.
        "spec": f'{{"experiment_id": {json.dumps(spec.experiment_id)}, '
        f'"experiment": {agreed.text(spec.experiment_id)}, '
        f'"variant": {json.dumps(asdict(spec.variant))}}}',
    }


def standing(before: IndexedRun, run_dir: RunDir) -> IndexedRun:
    """Derives a run's state from its files, unless it has ended and was not resumed since."""
    # Before the file is read: one that is replaced meanwhile is then read again the next time.
    stamp = written(run_dir.exit_file)
    if stamp is not None and stamp == before.exit_stamp:
        return before
    stands = run_dir.standing
    return replace(
        before,
        state=str(stands.state),
        # An active run reports its obstacle immediately, and the index may lie on the same disk.
        reason=None if stands.state.is_active else stands.reason or REASONS.get(stands.state),
        claimed=stands.claimed,
        ended=stands.ended,
        # A record that could not be read is looked at again.
        exit_stamp=stamp if stands.ended is not None else None,
    )


def written(file: Path) -> int | None:
    """When a file was written, in nanoseconds; None if there is none."""
    found = lstat(file)
    return None if found is None else found.st_mtime_ns


def lstat(file: str | Path) -> os.stat_result | None:
    try:
        return os.lstat(file)
    except OSError:
        return None


def _after_hole(run_dir: RunDir, offset: int, size: int) -> int:
    """The first byte from `offset` on that is on the disk: a sparse file may claim terabytes that
    were never written."""
    with run_dir.open(run_dir.events_file.name) as file:
        try:
            return os.lseek(file.fileno(), offset, os.SEEK_DATA)
        except OSError as error:
            return size if error.errno == errno.ENXIO else offset


def count_left_out(run_dir: RunDir) -> int:
    """How many events of a run's journal do not count, because they do not come after those before
    them. Reads all of it; raises `InvalidRunFolder`."""
    run = IndexedRun(run_id=run_dir.run_id, folder=str(run_dir.path))
    while True:
        seen = FolderScan(unreadable={})
        run = read_journal(seen, run, run_dir)
        if not seen.behind:
            return run.left_out


def read_journal(seen: FolderScan, run: IndexedRun, run_dir: RunDir) -> IndexedRun:
    """Takes the events that the journal gained, unless the look is full; returns the new offset."""
    stands = stat_journal(run_dir.events_file)
    size, inode = (stands.size, stands.inode) if stands else (0, None)
    if size < run.journal_offset or (run.journal_offset and inode != run.journal_inode):
        seen.restarted.append(run.run_id)
        run = replace(run, journal_offset=0, last_seq=-1, left_out=0, missing=0)
    if size == run.journal_offset:
        return run
    if seen.is_full:
        seen.behind.append(run.run_id)
        return run
    lines, end = read_complete_lines(run_dir.events_file, run.journal_offset, MAX_TICK_BYTES)
    if size - run.journal_offset > MAX_TICK_BYTES:
        seen.behind.append(run.run_id)
        if not lines:
            # No event is that long: this is garbage, and its rest is skipped like any bad line.
            end = _after_hole(run_dir, run.journal_offset + MAX_TICK_BYTES, size)
    if lines:
        require_known_format(run_dir.events_file, lines)
        seen.num_bytes += len(lines)
    order = Order(run.last_seq, run.left_out, run.missing)
    if found := counting_lines(lines, order):
        seen.events[run.run_id] = found
    return replace(run, journal_offset=end, journal_inode=inode, last_seq=order.last,
                   left_out=order.num_left_out, missing=order.num_missing)  # fmt: skip


def look_at_labels(seen: FolderScan, run: RunDir, known: int | None) -> None:
    """Notes differences from the labels that the index has, which were written at `known`.  Labels
    that cannot be read appear among the unreadable folders; their run counts all the same.
    """
    # Before the file is read: one that is replaced meanwhile is read again the next time.
    stamp = written(run.labels_file)
    if stamp == known:
        return
    try:
        labels = None if stamp is None else (stamp, run.read_labels().to_json())
    except RunnerError as error:
        seen.unreadable[run.run_id] = (printable(run.path), printable(error, MAX_MESSAGE))
        labels = None
    if labels is not None or known is not None:
        seen.labels[run.run_id] = labels
