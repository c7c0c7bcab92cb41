"""Deletes experiments: moves their folders to the trash, restores them, empties the trash."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from breakeven.runner.errors import RunnerError, UnknownExperiment
from breakeven.runner.experiments.labels import locked, refuse_examples
from breakeven.runner.experiments.queue import run_folders, writing
from breakeven.runner.logs import log_action
from breakeven.runner.protocol.data_dir import DataDir, run_dirs
from breakeven.runner.protocol.plain_files import remove_tree
from breakeven.runner.protocol.run_dir import RunDir

TRASH_DAYS = 30
"""A deletion permanently removes experiments that were deleted at least so many days before."""
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, kw_only=True)
class DeletedExperiment:
    """An experiment in the trash."""

    experiment_id: str
    folder: Path
    deleted_at: float
    """Seconds since the epoch."""

    @property
    def name(self) -> str:
        """The name of the experiment, or its id if no folder has a readable name."""
        for run in run_dirs(self.folder):
            with suppress(RunnerError):
                return run.read_labels().name or run.read_spec().experiment.name
        return self.experiment_id


def delete(data_dir: DataDir, experiment_id: str) -> None:
    """Moves all folders of an experiment to the trash.

    Raises `UnknownExperiment`, `NotWritable`, and `RunnerError` while a run waits or works.
    """
    refuse_examples(data_dir, experiment_id)
    with locked(data_dir):
        runs = ended_folders(data_dir, experiment_id)
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
        matching = [
            experiment
            for experiment in deleted_experiments(data_dir)
            if experiment.experiment_id == experiment_id
        ]
        if not matching:
            raise UnknownExperiment(f"no experiment {experiment_id!r} in {data_dir.trash}")
        folder = matching[0].folder
        with writing(data_dir.path):
            data_dir.runs.mkdir(parents=True, exist_ok=True)
            for run in run_dirs(folder):
                target = data_dir.runs / run.run_id
                if os.path.lexists(target):
                    raise RunnerError(f"{target} exists already and is not overwritten")
                os.rename(run.path, target)
            remove_tree(folder)
        log_action(data_dir.logs, "restore", experiment_id)


def deleted_experiments(data_dir: DataDir) -> list[DeletedExperiment]:
    """The deleted experiments in the trash, the latest first."""
    experiments = []
    with suppress(OSError), os.scandir(data_dir.trash) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                experiment_id = entry.name.partition(".")[0]
                deleted_at = entry.stat(follow_symlinks=False).st_mtime
                experiments.append(
                    DeletedExperiment(
                        experiment_id=experiment_id, folder=Path(entry.path), deleted_at=deleted_at
                    )
                )
    return sorted(experiments, key=lambda experiment: experiment.deleted_at, reverse=True)


def empty_trash(data_dir: DataDir) -> int:
    """Permanently removes all deleted experiments; returns their number. Raises `NotWritable`."""
    with locked(data_dir), writing(data_dir.path):
        removed = _remove_old(data_dir, days=0)
        log_action(data_dir.logs, "empty the trash", experiments=removed)
        return removed


def ended_folders(data_dir: DataDir, experiment_id: str) -> list[RunDir]:
    """The folders of an experiment that has ended; raises `UnknownExperiment`, or `RunnerError`
    while a run waits or works."""
    runs = run_folders(data_dir, experiment_id)
    if not runs:
        raise UnknownExperiment(f"no experiment {experiment_id!r} in {data_dir.runs}")
    active = [run.run_id.partition(".")[2] for run in runs if run.state.is_active]
    if active:
        raise RunnerError(
            f"experiment {experiment_id!r} has not ended: {', '.join(active)} waits or runs. Stop "
            f"it first (`breakeven queue cancel {experiment_id}`)"
        )
    return runs


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
    old = [
        experiment for experiment in deleted_experiments(data_dir) if experiment.deleted_at <= limit
    ]
    for experiment in old:
        remove_tree(experiment.folder)
    return len(old)
