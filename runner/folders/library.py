"""Labels, archives, deletes and restores experiments. Frees disk space: of one experiment, or until
the data folder is within a budget.

A budget removes deleted experiments first, then checkpoints, then all other artifacts (predictions,
graphs, traces), each from the oldest experiment on. Journals, specifications and labels stay, and
so do all results, checkpoints of runs that can resume, and experiments that have not ended.

Every change holds the library lock of the data folder. Deleted experiments go to the trash first.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from breakeven.runner.errors import RunnerError, UnknownExperiment
from breakeven.runner.files import FileLock
from breakeven.runner.folders.queue import can_resume, find_experiment, folders_of, writing
from breakeven.runner.logs import log_action
from breakeven.runner.project import PACKAGE
from breakeven.runner.protocol.data_dir import DataDir, run_dirs, run_names
from breakeven.runner.protocol.plain_files import remove_tree, walk
from breakeven.runner.protocol.records import Change, Labels
from breakeven.runner.protocol.run_dir import RunDir

LOCK_PATIENCE_SECONDS = 10.0
TRASH_DAYS = 30
"""A deletion permanently removes experiments that were deleted at least so many days before."""
DAY_SECONDS = 86_400.0
BLOCK_BYTES = 512
"""Unit of `st_blocks`."""
EXAMPLES = PACKAGE / "examples"


@dataclass(frozen=True, kw_only=True)
class Deleted:
    """An experiment in the trash."""

    experiment_id: str
    folder: Path
    deleted: float
    """Seconds since the epoch."""

    @property
    def name(self) -> str:
        """The name of the experiment, or its id if no folder has a readable name."""
        for run in run_dirs(self.folder):
            with suppress(RunnerError):
                return run.read_labels().name or run.read_spec().experiment.name
        return self.experiment_id


def change_labels(data_dir: DataDir, experiment_id: str, change: Change) -> Labels:
    """Changes the labels of an experiment and returns the new ones.

    Raises `UnknownExperiment`, `InvalidSpec` for invalid labels, and `NotWritable`. An unreadable
    file of labels raises an error and is not overwritten.
    """
    _refuse_examples(data_dir, experiment_id)
    with locked(data_dir):
        first = find_experiment(data_dir, experiment_id).runs[0]
        before = first.read_labels()
        after = change(before)
        if after != before:
            with writing(first.path):
                first.write_labels(after)
            changed = {
                name: value for name, value in vars(after).items() if value != getattr(before, name)
            }
            log_action(data_dir.logs, "label", experiment_id, **changed)
    return after


def delete(data_dir: DataDir, experiment_id: str) -> None:
    """Moves all folders of an experiment to the trash.

    Raises `UnknownExperiment`, `NotWritable`, and `RunnerError` while a run waits or works.
    """
    _refuse_examples(data_dir, experiment_id)
    with locked(data_dir):
        runs = _ended_folders(data_dir, experiment_id)
        with writing(data_dir.path):
            _remove_old(data_dir)
            folder = _new_folder(data_dir, experiment_id, runs)
            for run in runs:
                os.rename(run.path, folder / run.run_id)
        log_action(data_dir.logs, "delete", experiment_id)


def restore(data_dir: DataDir, experiment_id: str) -> None:
    """Moves the last deleted experiment with this id back. Raises `UnknownExperiment` if the trash
    has none, `RunnerError` if a run folder exists already, and `NotWritable`."""
    with locked(data_dir):
        found = [one for one in trash(data_dir) if one.experiment_id == experiment_id]
        if not found:
            raise UnknownExperiment(f"no experiment {experiment_id!r} in {data_dir.trash}")
        folder = found[0].folder
        with writing(data_dir.path):
            data_dir.runs.mkdir(parents=True, exist_ok=True)
            for run in run_dirs(folder):
                target = data_dir.runs / run.run_id
                if os.path.lexists(target):
                    raise RunnerError(f"{target} exists already and is not overwritten")
                os.rename(run.path, target)
            remove_tree(folder)
        log_action(data_dir.logs, "restore", experiment_id)


def trash(data_dir: DataDir) -> list[Deleted]:
    """The deleted experiments in the trash, the latest first."""
    found = []
    with suppress(OSError), os.scandir(data_dir.trash) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                experiment_id = entry.name.partition(".")[0]
                deleted = entry.stat(follow_symlinks=False).st_mtime
                found.append(
                    Deleted(experiment_id=experiment_id, folder=Path(entry.path), deleted=deleted)
                )
    return sorted(found, key=lambda one: one.deleted, reverse=True)


def empty_trash(data_dir: DataDir) -> int:
    """Permanently removes all deleted experiments; returns their number. Raises `NotWritable`."""
    with locked(data_dir), writing(data_dir.path):
        removed = _remove_old(data_dir, days=0)
        log_action(data_dir.logs, "empty the trash", experiments=removed)
        return removed


def free(data_dir: DataDir, experiment_id: str, *, artifacts: bool = False) -> int:
    """Removes the checkpoints of an experiment, or all artifacts and the working folders of
    scripts; returns the freed bytes.

    Results stay; runs that ended early can no longer resume. Raises the errors of `delete`.
    """
    _refuse_examples(data_dir, experiment_id)
    with locked(data_dir):
        runs = _ended_folders(data_dir, experiment_id)
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
                found = os.lstat(Path(parent, name))
                key = (found.st_dev, found.st_ino)
                total += 0 if key in seen else room_of(found)
                if found.st_nlink > 1:
                    seen.add(key)
    return total


def room_of(file: os.stat_result) -> int:
    """Bytes that a file takes on the disk."""
    if not stat.S_ISREG(file.st_mode):
        return file.st_size
    return min(file.st_size, file.st_blocks * BLOCK_BYTES)


def _ended_folders(data_dir: DataDir, experiment_id: str) -> list[RunDir]:
    """The folders of an experiment that has ended; raises `UnknownExperiment`, or `RunnerError`
    while a run waits or works."""
    runs = folders_of(data_dir, experiment_id)
    if not runs:
        raise UnknownExperiment(f"no experiment {experiment_id!r} in {data_dir.runs}")
    active = [run.run_id.partition(".")[2] for run in runs if run.state.is_active]
    if active:
        raise RunnerError(
            f"experiment {experiment_id!r} has not ended: {', '.join(active)} waits or runs. Stop "
            f"it first (`breakeven cancel {experiment_id}`)"
        )
    return runs


def example_folders(experiment_id: str) -> list[RunDir]:
    """The folders of an example that comes with Breakeven; none for other experiments."""
    return [
        run
        for group in run_dirs(EXAMPLES)
        for run in run_dirs(group.path)
        if run.run_id.partition(".")[0] == experiment_id
    ]


def _refuse_examples(data_dir: DataDir, experiment_id: str) -> None:
    if not folders_of(data_dir, experiment_id) and example_folders(experiment_id):
        raise UnknownExperiment(
            f"experiment {experiment_id!r} is an example that comes with Breakeven: it cannot be "
            f"labelled, archived or deleted. Copy its folders to {data_dir.runs} to have it as "
            "your own"
        )


def _new_folder(data_dir: DataDir, experiment_id: str, runs: list[RunDir]) -> Path:
    """The folder in the trash for these runs: the one that an interrupted deletion left, unless it
    already contains one of these runs; else a new one."""
    number = 1
    while True:
        name = experiment_id if number == 1 else f"{experiment_id}.{number}"
        folder = data_dir.trash / name
        if not any(os.path.lexists(folder / run.run_id) for run in runs):
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        number += 1


def _remove_old(data_dir: DataDir, days: float = TRASH_DAYS) -> int:
    limit = time.time() - days * DAY_SECONDS
    old = [one for one in trash(data_dir) if one.deleted <= limit]
    for one in old:
        remove_tree(one.folder)
    return len(old)


@contextmanager
def locked(data_dir: DataDir) -> Iterator[None]:
    """Holds the library lock, which serializes changes of labels, trash, queue and filters."""
    lock = FileLock(data_dir.library_lock)
    with writing(data_dir.path):
        acquired = lock.acquire(LOCK_PATIENCE_SECONDS)
    if not acquired:
        raise RunnerError(f"{data_dir.path} is being changed by somebody else; try again")
    with lock:
        yield


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
        found = sum(size_of(run.checkpoints) for run in runs)
        yield Removal(
            what=f"checkpoints of {experiment_id}",
            num_bytes=found,
            remove=partial(free, data_dir, experiment_id),
        )
    for experiment_id, runs in ended.items():
        found = sum(size_of(folder) for run in runs for folder in (run.artifacts, run.workplace))
        found -= sum(size_of(run.checkpoints) for run in runs)
        yield Removal(
            what=f"artifacts of {experiment_id}",
            num_bytes=found,
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
