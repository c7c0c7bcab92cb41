"""Looks at the run folders: which there are, how they stand, what their journals gained."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.errors import RunnerError
from runner.folders.events import read_complete_lines
from runner.folders.inside import stat_inside
from runner.folders.queue import agreed_spec, check_membership
from runner.folders.run_dir import RunDir, run_dirs
from runner.folders.states import RunState
from runner.specs.experiment import ExperimentSpec
from runner.texts import printable

MAX_TICK_BYTES = 16_000_000
"""Journal bytes after which a look stops reading; well under a second of work for the database.
It is also the longest line that is read, and so stays below DuckDB's 16 MiB for one object."""

MAX_MESSAGE = 1_000
"""Characters that are kept of what is wrong with a folder."""
REASONS = {
    RunState.LOST: "its process vanished without a word",
    RunState.ELSEWHERE: "claimed on another machine; how it goes on cannot be seen from here",
}
"""Reasons for states that are derived, because no exit.json says one."""


@dataclass(frozen=True, kw_only=True)
class Progress:
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


@dataclass
class Look:
    """What a look at all folders found."""

    new_runs: list[dict[str, Any]] = field(default_factory=list)
    """Rows of table `runs`."""
    progress: dict[str, Progress] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    """Folder to what is wrong with it."""
    slices: dict[str, bytes] = field(default_factory=dict)
    """Run id to the whole lines that its journal gained."""
    restarted: list[str] = field(default_factory=list)
    """Runs whose journal is another one than was read, or got shorter, so all of it is read."""
    num_bytes: int = 0
    is_full: bool = False
    """Whether bytes were left for the next look."""


def run_folders(runs: Path, examples: Path | None) -> dict[str, tuple[RunDir, str]]:
    """Every folder that may be a run, by its name, with its origin, `local` or `example`.

    Folders of the same name are copies of the same run; then the local one counts.
    """
    groups = run_dirs(examples) if examples else ()
    shipped = {run.run_id: (run, "example") for group in groups for run in run_dirs(group.path)}
    return shipped | {run.run_id: (run, "local") for run in run_dirs(runs)}


def look(folders: Mapping[str, tuple[RunDir, str]], known: Mapping[str, Progress]) -> Look:
    """Reads what is new since `known`. A run that has ended costs a size check."""
    seen = Look()
    agreed = _Agreed(run_dir for run_dir, _origin in folders.values())
    for run_id, (run_dir, origin) in folders.items():
        before = known.get(run_id)
        description = None
        try:
            if before is None or before.folder != str(run_dir.path):
                description = _describe(run_dir, origin, agreed)
                before = Progress(run_id=run_id, folder=str(run_dir.path))
            # The state first: once it is final, the journal read after it is complete.
            now = _refresh(before, run_dir)
            seen.progress[run_id] = _read_journal(seen, now, run_dir)
        # A foreign folder may hold anything, and must not keep the others from being read.
        except (RunnerError, OSError) as error:
            seen.unreadable[printable(run_dir.path)] = printable(error, MAX_MESSAGE)
            continue
        if description is not None:
            seen.new_runs.append(description)
    return seen


class _Agreed:
    """What most folders of an experiment say that it is, read when it is first asked for."""

    def __init__(self, run_dirs: Iterable[RunDir]) -> None:
        self._run_dirs = run_dirs
        self._folders: dict[str, list[RunDir]] = {}
        self._specs: dict[str, ExperimentSpec | None] = {}

    def spec(self, experiment_id: str) -> ExperimentSpec | None:
        if not self._folders:
            for run in self._run_dirs:
                self._folders.setdefault(run.run_id.partition(".")[0], []).append(run)
        if experiment_id not in self._specs:
            self._specs[experiment_id] = agreed_spec(self._folders[experiment_id])
        return self._specs[experiment_id]


def _describe(run_dir: RunDir, origin: str, agreed: _Agreed) -> dict[str, Any]:
    spec = run_dir.read_spec()
    check_membership(spec, agreed.spec(spec.experiment_id))
    return {
        "run_id": spec.run_id,
        "experiment_id": spec.experiment_id,
        "position": spec.experiment.variants.index(spec.variant),
        "label": spec.variant.label,
        "role": spec.variant.role,
        "backend": spec.variant.backend,
        "origin": origin,
        "num_steps": spec.experiment.num_steps,
        "spec": spec.to_json(),
    }


def _refresh(before: Progress, run_dir: RunDir) -> Progress:
    """Derives a run's state from its files, unless it has ended and was not resumed since."""
    # Before the file is read: one that is replaced meanwhile is then read again the next time.
    stamp = _written(run_dir.exit_file)
    if stamp is not None and stamp == before.exit_stamp:
        return before
    stands = run_dir.standing
    return replace(
        before,
        state=str(stands.state),
        reason=stands.reason or REASONS.get(stands.state),
        claimed=stands.claimed,
        ended=stands.ended,
        # A record that could not be read is looked at again.
        exit_stamp=stamp if stands.ended is not None else None,
    )


def _written(file: Path) -> int | None:
    try:
        return os.lstat(file).st_mtime_ns
    except OSError:
        return None


def _read_journal(seen: Look, run: Progress, run_dir: RunDir) -> Progress:
    """Takes the journal's new whole lines, unless the look is full; returns the new offset."""
    found = stat_inside(run_dir.path, run_dir.events_file.name)
    size, inode = (found.st_size, found.st_ino) if found else (0, None)
    if size < run.journal_offset or (run.journal_offset and inode != run.journal_inode):
        seen.restarted.append(run.run_id)
        run = replace(run, journal_offset=0)
    if size == run.journal_offset:
        return run
    if seen.num_bytes >= MAX_TICK_BYTES:
        seen.is_full = True
        return run
    lines, end = read_complete_lines(run_dir.events_file, run.journal_offset, MAX_TICK_BYTES)
    if size - run.journal_offset > MAX_TICK_BYTES:
        seen.is_full = True
        if not lines:
            # No event is that long: this is garbage, and its rest is skipped like any bad line.
            end = run.journal_offset + MAX_TICK_BYTES
    if lines:
        seen.slices[run.run_id] = lines
        seen.num_bytes += len(lines)
    return replace(run, journal_offset=end, journal_inode=inode)
