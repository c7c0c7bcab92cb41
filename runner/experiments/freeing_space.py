"""Frees disk space: of one experiment, or until the data folder is within a budget.

A budget removes deleted experiments first, then checkpoints, then all other artifacts (predictions,
graphs, traces), each from the oldest experiment on. Journals, specifications and labels stay, and
so do all results, checkpoints of runs that can resume, and experiments that have not ended.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments.labels import locked, refuse_examples
from breakeven.runner.experiments.queue import can_resume, writing
from breakeven.runner.experiments.trash import empty_trash, ended_folders
from breakeven.runner.logs import log_action
from breakeven.runner.protocol.data_dir import DataDir, run_names
from breakeven.runner.protocol.plain_files import remove_tree, walk
from breakeven.runner.protocol.run_dir import RunDir

BLOCK_BYTES = 512
"""Unit of `st_blocks`."""


def free(data_dir: DataDir, experiment_id: str, *, artifacts: bool = False) -> int:
    """Removes the checkpoints of an experiment, or all artifacts and the working folders of
    scripts; returns the freed bytes.

    Results stay; runs that ended early can no longer resume. Raises the errors of `delete`.
    """
    refuse_examples(data_dir, experiment_id)
    with locked(data_dir):
        runs = ended_folders(data_dir, experiment_id)
        freed = 0
        for run in runs:
            if run.is_link:  # The target belongs to another folder.
                continue
            for folder in (run.artifacts, run.workplace) if artifacts else (run.checkpoints,):
                if folder.is_dir() and not run.artifacts.is_symlink() and not folder.is_symlink():
                    freed += size_of(folder)
                    with writing(run.path):
                        remove_tree(folder)
        with writing(data_dir.path):
            os.utime(data_dir.runs)
        what = "artifacts" if artifacts else "checkpoints"
        log_action(data_dir.logs, f"remove {what}", experiment_id, bytes=freed)
    return freed


def size_of(folder: Path) -> int:
    """Bytes that the plain files below a folder take on the disk. Holes take none; links are not
    followed; a file with several names counts once."""
    total, seen = 0, set()
    for parent, _folders, files in () if folder.is_symlink() else walk(folder):
        for name in files:
            with suppress(OSError):
                status = os.lstat(Path(parent, name))
                key = (status.st_dev, status.st_ino)
                total += 0 if key in seen else file_bytes(status)
                if status.st_nlink > 1:
                    seen.add(key)
    return total


def file_bytes(file: os.stat_result) -> int:
    """Bytes that a file takes on the disk."""
    if not stat.S_ISREG(file.st_mode):
        return file.st_size
    return min(file.st_size, file.st_blocks * BLOCK_BYTES)


@dataclass(frozen=True, kw_only=True)
class Removal:
    """Data that can be removed."""

    what: str
    num_bytes: int
    remove: Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class RemovalPlan:
    """Removals in order, and the size of the data folder before and after them."""

    removals: tuple[Removal, ...]
    bytes_before: int
    budget: int

    @property
    def bytes_after(self) -> int:
        return self.bytes_before - sum(removal.num_bytes for removal in self.removals)

    @property
    def is_enough(self) -> bool:
        return self.bytes_after <= self.budget


def plan_removals(data_dir: DataDir, budget: int) -> RemovalPlan:
    """Chooses removals until the data folder takes at most `budget` bytes."""
    before = left = size_of(data_dir.path)
    chosen = []
    for removal in _candidates(data_dir):
        if left <= budget:
            break
        if removal.num_bytes:
            chosen.append(removal)
            left -= removal.num_bytes
    return RemovalPlan(removals=tuple(chosen), bytes_before=before, budget=budget)


def _candidates(data_dir: DataDir) -> Iterator[Removal]:
    trash_bytes = size_of(data_dir.trash)
    yield Removal(
        what="deleted experiments", num_bytes=trash_bytes, remove=partial(empty_trash, data_dir)
    )
    ended = dict(_ended(data_dir))
    for experiment_id, runs in ended.items():
        num_bytes = sum(size_of(run.checkpoints) for run in runs)
        yield Removal(
            what=f"checkpoints of {experiment_id}",
            num_bytes=num_bytes,
            remove=partial(free, data_dir, experiment_id),
        )
    for experiment_id, runs in ended.items():
        num_bytes = sum(
            size_of(folder) for run in runs for folder in (run.artifacts, run.workplace)
        )
        num_bytes -= sum(size_of(run.checkpoints) for run in runs)
        yield Removal(
            what=f"artifacts of {experiment_id}",
            num_bytes=num_bytes,
            remove=partial(free, data_dir, experiment_id, artifacts=True),
        )


def _ended(data_dir: DataDir) -> Iterator[tuple[str, list[RunDir]]]:
    """Ended experiments without a run that can resume, the oldest first."""
    groups: dict[str, list[RunDir]] = {}
    for name in run_names(data_dir.runs):
        run = data_dir.run_dir(name)
        if not run.is_link:
            groups.setdefault(name.partition(".")[0], []).append(run)
    for experiment_id, runs in groups.items():
        try:
            is_over = all(run.state.is_final for run in runs)
            if is_over and not any(can_resume(run) for run in runs):
                yield experiment_id, runs
        except (RunnerError, OSError):  # An unreadable experiment stays as it is.
            continue
