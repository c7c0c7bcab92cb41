"""The queue of experiments: it is the set of run folders that nobody has claimed yet.

Submitting writes one `spec.json` per run; the supervisor finds them. Experiment ids begin with
the time of submission, so the order of names is the order of the queue.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from runner.errors import NotEnoughDisk, RunnerError, UnknownExperiment
from runner.locks import is_locked
from runner.process import start_in_own_session
from runner.run_dir import DataDir, RunDir, RunState
from runner.spec import ExperimentSpec, RunSpec

MIN_FREE_BYTES = 200_000_000
"""Journals of an experiment take a few MB; a cold compile cache takes up to about 100."""
PROJECT_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A submitted experiment and its run folders, baseline first."""

    experiment_id: str
    spec: ExperimentSpec
    runs: tuple[RunDir, ...]

    @property
    def is_queued(self) -> bool:
        """Whether a run waits to be started."""
        return any(run.state is RunState.QUEUED for run in self.runs)

    @property
    def is_over(self) -> bool:
        return all(run.state.is_final for run in self.runs)


def new_experiment_id() -> str:
    """Unique, and sortable by time of submission: `20261121-093015-123456-7f3a`."""
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return f"{stamp}-{int(now % 1 * 1e6):06d}-{secrets.token_hex(2)}"


def submit(data_dir: DataDir, spec: ExperimentSpec) -> str:
    """Queues an experiment and returns its id; raises `NotEnoughDisk`."""
    data_dir.runs.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(data_dir.runs).free
    if free < MIN_FREE_BYTES:
        raise NotEnoughDisk(
            f"{data_dir.runs} has {free / 1e6:.0f} MB free; an experiment needs "
            f"{MIN_FREE_BYTES / 1e6:.0f} MB. Free some space or choose another data folder."
        )
    experiment_id = new_experiment_id()
    for variant in spec.variants:
        run = RunSpec(experiment_id=experiment_id, experiment=spec, variant=variant)
        data_dir.run_dir(run.run_id).write_spec(run)
    return experiment_id


def experiments(data_dir: DataDir) -> Iterator[Experiment]:
    """All experiments whose run folders are complete, oldest first.

    An experiment is read from the first of its folders that can be read; one of which none can be
    is passed over here, and `storage` names it to the user.
    """
    folders: dict[str, dict[str, RunDir]] = {}
    for run_dir in data_dir.run_dirs():
        experiment_id, _, label = run_dir.run_id.partition(".")
        folders.setdefault(experiment_id, {})[label] = run_dir
    for experiment_id, by_label in folders.items():
        spec = _first_readable(by_label.values())
        if spec is None:
            continue
        labels = [variant.label for variant in spec.variants]
        if all(label in by_label for label in labels):
            runs = tuple(by_label[label] for label in labels)
            yield Experiment(experiment_id=experiment_id, spec=spec, runs=runs)


def _first_readable(run_dirs: Iterable[RunDir]) -> ExperimentSpec | None:
    for run_dir in run_dirs:
        with contextlib.suppress(RunnerError):
            return run_dir.read_spec().experiment
    return None


def find_experiment(data_dir: DataDir, experiment_id: str) -> Experiment:
    """Raises `UnknownExperiment` if the data folder does not hold it."""
    for experiment in experiments(data_dir):
        if experiment.experiment_id == experiment_id:
            return experiment
    raise UnknownExperiment(f"no experiment {experiment_id!r} in {data_dir.runs}; "
                            "`python -m runner status` lists those that are there")  # fmt: skip


def cancel(experiment: Experiment) -> None:
    """Asks every run of an experiment that is not over to stop."""
    for run in experiment.runs:
        if not run.state.is_final:
            run.request_cancel()


def resume(experiment: Experiment) -> list[str]:
    """Puts every run that ended early and has a checkpoint back into the queue; their labels.

    Raises `RunnerError` if there is none.
    """
    runs = [run for run in experiment.runs if can_resume(run)]
    if not runs:
        raise RunnerError(
            f"no run of experiment {experiment.experiment_id!r} can go on: none of those that "
            "ended early has a checkpoint. Ask for checkpoints when you launch (checkpoints.every)"
        )
    for run in runs:
        run.reopen()
    return [run.read_spec().variant.label for run in runs]


def can_resume(run: RunDir) -> bool:
    """Whether the run ended before its last step and left a checkpoint."""
    state = run.state
    return state.is_final and state is not RunState.FINISHED and run.has_checkpoint


def ensure_supervisor(data_dir: DataDir) -> subprocess.Popen[bytes] | None:
    """Starts a detached supervisor unless one is at work; it ends when the queue is empty."""
    if is_locked(data_dir.supervisor_lock):
        return None
    command = [sys.executable, "-m", "runner", "supervise", "--data-folder", str(data_dir.path)]
    data_dir.path.mkdir(parents=True, exist_ok=True)
    return start_in_own_session(
        command, output=data_dir.supervisor_log, cwd=PROJECT_ROOT, env=os.environ
    )
