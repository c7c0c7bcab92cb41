"""Looks at the run folders: which there are, how they stand, what their journals gained."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.errors import InvalidRunFolder, RunnerError
from runner.events import read_complete_lines
from runner.run_dir import RunDir, RunState

MAX_TICK_BYTES = 16_000_000
"""Journal bytes after which a look stops reading; well under a second of work for the database.
It is also the longest line that is read, and so stays below DuckDB's 16 MiB for one object."""

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
    """Runs whose journal got shorter than what was read of it, so all of it is read again."""
    num_bytes: int = 0
    is_full: bool = False
    """Whether bytes were left for the next look."""


def run_folders(runs: Path, examples: Path | None) -> dict[str, tuple[RunDir, str]]:
    """Every folder that may be a run, by its name, with its origin, `local` or `example`.

    Folders of the same name are copies of the same run; then the local one counts.
    """
    groups = _folders(examples) if examples else ()
    shipped = {run.name: (RunDir(run), "example") for group in groups for run in _folders(group)}
    return shipped | {run.name: (RunDir(run), "local") for run in _folders(runs)}


def _folders(parent: Path) -> Iterator[Path]:
    try:
        with os.scandir(parent) as entries:
            names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    except OSError:
        return
    for name in names:
        yield parent / name


def look(folders: Mapping[str, tuple[RunDir, str]], known: Mapping[str, Progress]) -> Look:
    """Reads what is new since `known`. A run that has ended costs a size check."""
    seen = Look()
    for run_id, (run_dir, origin) in folders.items():
        before = known.get(run_id)
        description = None
        try:
            if before is None or before.folder != str(run_dir.path):
                description = _describe(run_dir, origin)
                before = Progress(run_id=run_id, folder=str(run_dir.path))
            # The state first: once it is final, the journal read after it is complete.
            now = _refresh(before, run_dir)
            seen.progress[run_id] = _read_journal(seen, now, run_dir)
        # A foreign folder may hold anything, and must not keep the others from being read.
        except (RunnerError, OSError, TypeError, ValueError) as error:
            seen.unreadable[str(run_dir.path)] = str(error)
            continue
        if description is not None:
            seen.new_runs.append(description)
    return seen


def _describe(run_dir: RunDir, origin: str) -> dict[str, Any]:
    if not run_dir.spec_file.exists():
        raise InvalidRunFolder(f"{run_dir.path} holds no spec.json, so it is not a run folder")
    spec = run_dir.read_spec()
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
    ended = run_dir.read_exit()
    claim = run_dir.read_claim()
    state = run_dir.state if ended is None else ended.state
    return replace(
        before,
        state=str(state),
        reason=REASONS.get(state) if ended is None else str(ended.reason),
        claimed=None if claim is None else float(claim.time),
        ended=None if ended is None else float(ended.time),
        exit_stamp=stamp,
    )


def _written(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _read_journal(seen: Look, run: Progress, run_dir: RunDir) -> Progress:
    """Takes the journal's new whole lines, unless the look is full; returns the new offset."""
    try:
        size = run_dir.events_file.stat().st_size
    except FileNotFoundError:
        size = 0
    if size < run.journal_offset:
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
    return replace(run, journal_offset=end)
