"""Checks of the data folder: its settings, its disk, its run folders and their journals."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from breakeven.runner.disk_space import QUEUES_FROM_BYTES
from breakeven.runner.doctor.health_finding import Finding, doubtful, ok, wrong
from breakeven.runner.errors import RunnerError, SettingsUnusable
from breakeven.runner.experiments.queue import damages, listed
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import JournalPosition, each_event
from breakeven.runner.settings import FILE_NAME, read_settings
from breakeven.runner.texts import first_few, printable

COMFORTABLE_BYTES = 2_000_000_000
"""Room for a few cold compile caches and checkpoints."""
MIN_FREE_FILES = 1_000
"""Files that must still fit; an experiment creates some tens, Inductor some hundreds."""
SHOWN = 3


def check_disk(data_dir: DataDir) -> Iterator[Finding]:
    folder, temporary = _existing(data_dir.path), Path(tempfile.gettempdir())
    yield _room(
        "Disk",
        folder,
        "`breakeven data clean --budget 20GB` removes the trash, then "
        "old checkpoints, then artifacts; results stay",
    )
    if os.stat(temporary).st_dev != os.stat(folder).st_dev:
        yield _room(
            "Temporary files", temporary, "remove files there, or name another folder in TMPDIR"
        )
    yield check_writable(data_dir)
    yield check_settings(data_dir)


def _room(subject: str, folder: Path, remedy: str) -> Finding:
    status = os.statvfs(folder)
    free, size = (blocks * status.f_frsize for blocks in (status.f_bavail, status.f_blocks))
    evidence = f"{folder} has {free / 1e9:,.1f} GB free of {size / 1e9:,.1f}"
    # Some file systems do not count files and report 0 of 0.
    if status.f_files and status.f_favail < MIN_FREE_FILES:
        evidence += f", and room for {status.f_favail:,} more files"
        return wrong(subject, evidence, remedy)
    if free >= COMFORTABLE_BYTES:
        return ok(subject, evidence)
    return (wrong if free < QUEUES_FROM_BYTES else doubtful)(subject, evidence, remedy)


def check_writable(data_dir: DataDir) -> Finding:
    subject, folder = "Data folder", _existing(data_dir.path)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
            file.write(b"here")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        evidence = f"{folder} cannot be written: {error.strerror or error}"
        remedy = "make it writable for this user, or name another one in BREAKEVEN_DATA"
        return wrong(subject, evidence, remedy)
    remark = "" if folder == data_dir.path else f" ({data_dir.path} is created when it is needed)"
    return ok(subject, f"{folder} can be written{remark}")


def _existing(folder: Path) -> Path:
    """The folder, or its nearest existing parent."""
    return next(parent for parent in (folder, *folder.parents) if parent.is_dir())


def check_settings(data_dir: DataDir) -> Finding:
    try:
        read_settings(data_dir.path)
    except SettingsUnusable as error:
        return wrong("Settings", printable(error), "docs/operating.md lists them")
    is_there = (data_dir.path / FILE_NAME).exists()
    return ok("Settings", f"{FILE_NAME} can be used" if is_there else f"no {FILE_NAME}")


def check_run_folders(data_dir: DataDir) -> Iterator[Finding]:
    """Opens every specification, then every journal; the time grows with their number."""
    damaged = [f"{printable(name, 80)}: {printable(why, 160)}" for name, why in damages(data_dir)]
    missing = [
        f"{experiment.experiment_id}.{label}"
        for experiment in listed(data_dir)
        for label, run, _ in experiment.runs
        if run is None
    ]
    problems = [
        f"{len(names):,} {problem}: {first_few(names, SHOWN, '; ')}"
        for names, problem in ((damaged, "cannot be read"), (missing, "missing"))
        if names
    ]
    if problems:
        remedy = (
            "restore the files from their source, or move the folders out of "
            f"{data_dir.runs}; `breakeven list --runs --all` lists all"
        )
        yield doubtful("Run folders", "; ".join(problems), remedy)
    else:
        yield ok("Run folders", f"{sum(1 for _ in data_dir.run_dirs()):,} can be read")
    yield check_journals(data_dir)


def check_journals(data_dir: DataDir) -> Finding:
    """Reports journal lines that are skipped because they are out of order, and missing lines."""
    counts, missing = dict[str, int](), dict[str, int]()
    for run in data_dir.run_dirs():
        with suppress(RunnerError, OSError):  # The check of run folders reports it.
            position = JournalPosition()
            for _event in each_event(run.events_file, position):
                pass
            if position.num_left_out:
                counts[run.run_id] = position.num_left_out
            if position.num_missing:
                missing[run.run_id] = position.num_missing
    if not (counts or missing):
        return ok("Journals", "every line exists and counts once")
    by_state = {
        "are out of order and are left out, as after a journal was copied into itself": counts,
        "are missing between other lines, as after a disk or a copy lost a part": missing,
    }
    evidence = "; ".join(
        f"{sum(runs.values()):,} lines {state}: "
        + first_few(
            [f"{printable(run_id, 80)}: {count:,}" for run_id, count in runs.items()], SHOWN, "; "
        )
        for state, runs in by_state.items()
        if runs
    )
    remedy = "restore events.jsonl from its source; pages show the other lines"
    return doubtful("Journals", evidence, remedy)
