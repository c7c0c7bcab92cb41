"""The queue of experiments: all run folders without a claim.

A submission writes one `spec.json` per run; the supervisor finds these files. Experiment ids begin
with the time of submission, so the order of names is the order of the queue.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from breakeven.runner.disk_space import require_room
from breakeven.runner.errors import (
    InvalidRunFolder,
    InvalidSpec,
    NotWritable,
    RunnerError,
    UnknownExperiment,
)
from breakeven.runner.experiments.families import enter
from breakeven.runner.files import is_locked
from breakeven.runner.logs import log_action
from breakeven.runner.masking import has_secret, mask
from breakeven.runner.processes import start_in_own_session
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import open_journal, require_known_format
from breakeven.runner.protocol.run_dir import RunDir, write_devices
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec

BEGIN_BYTES = 200
"""Bytes at the start of a journal that contain its format version."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A submitted experiment and its run folders, baseline first."""

    experiment_id: str
    spec: ExperimentSpec
    runs: tuple[RunDir, ...]

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arm of each run."""
        known = {arm.label: arm for arm in self.spec.possible_arms}
        return tuple(known[run.run_id.partition(".")[2]] for run in self.runs)

    @property
    def data_dir(self) -> DataDir:
        return DataDir(self.runs[0].path.parent.parent)

    @property
    def is_over(self) -> bool:
        return all(run.state.is_final for run in self.runs)


def new_experiment_id() -> str:
    """Unique, and sortable by time of submission: `20261121-093015-123456-7f3a`."""
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return f"{stamp}-{int(now % 1 * 1e6):06d}-{secrets.token_hex(2)}"


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turns an `OSError` into `NotWritable`, which names the folder."""
    try:
        yield
    except OSError as error:
        raise NotWritable(folder, error) from error


def submit(data_dir: DataDir, spec: ExperimentSpec, *, is_checked: bool = True) -> str:
    """Queues an experiment and returns its id; raises `NotEnoughDisk` or `NotWritable`.

    `is_checked`: False if torch must check it while its runs load (`runner.checks`).
    """
    with writing(data_dir.path):
        data_dir.make()
        data_dir.runs.mkdir(parents=True, exist_ok=True)
    require_room(data_dir.runs)
    refuse_secrets(spec.to_json())
    experiment_id = new_experiment_id()
    with writing(data_dir.path):
        spec = enter(data_dir, spec, experiment_id)
    specs = [RunSpec(experiment_id=experiment_id, experiment=spec, arm=arm) for arm in spec.arms]
    runs = [data_dir.run_dir(run_spec.run_id) for run_spec in specs]
    with writing(data_dir.path), ExitStack() as undo:
        for run, run_spec in zip(runs, specs, strict=True):
            undo.callback(shutil.rmtree, run.path, ignore_errors=True)
            run.write_spec(run_spec, is_checked=is_checked or run != runs[0])
        undo.pop_all()
    log_action(data_dir.logs, "start", experiment_id, name=spec.name)
    return experiment_id


def add_run(data_dir: DataDir, experiment: Experiment, arm: Arm) -> Experiment:
    """Queues another possible run; returns the extended experiment. Raises `NotWritable`."""
    run_spec = RunSpec(experiment_id=experiment.experiment_id, experiment=experiment.spec, arm=arm)
    run = data_dir.run_dir(run_spec.run_id)
    with writing(data_dir.path):
        run.write_spec(run_spec)
    return replace(experiment, runs=(*experiment.runs, run))


def refuse_secrets(specification: str) -> None:
    """Raises `InvalidSpec` for a specification, as JSON, with a secret: every viewer of a run sees
    it."""
    for field, value in _texts("", json.loads(specification)):
        if has_secret(value):
            rule = (
                "holds a secret (a password in an address, a token, or the value of a variable "
                "whose name says so), and specifications are kept and shown; have the code read "
                "it from a file, or from a variable that BREAKEVEN_PASS names"
            )
            raise InvalidSpec(field, mask(value), rule)


def _texts(path: str, content: object) -> Iterator[tuple[str, str]]:
    """All texts in a JSON value, with their paths."""
    if isinstance(content, str):
        yield path, content
    elif isinstance(content, dict):
        for name, value in content.items():
            yield from _texts(f"{path}.{name}".lstrip("."), value)
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from _texts(f"{path}[{number}]", value)


def experiments(data_dir: DataDir, among: Container[str] | None = None) -> Iterator[Experiment]:
    """All experiments that have a folder for every run, oldest first; with `among`, only those with
    one of these ids, and no other folder is opened.

    Some folders may be damaged: `damages` reports them.
    """
    for experiment_id, runs in _by_experiment(data_dir.run_dirs()).items():
        if among is not None and experiment_id not in among:
            continue
        experiment = _experiment(experiment_id, runs)
        if experiment is not None:
            yield experiment


def _experiment(experiment_id: str, folders: Sequence[RunDir]) -> Experiment | None:
    """The experiment, or None unless every run has a folder."""
    spec = agreed_spec(folders)
    by_name = {run.run_id: run for run in folders}
    names = [] if spec is None else [f"{experiment_id}.{arm.label}" for arm in spec.arms]
    if spec is None or any(name not in by_name for name in names):
        return None
    further = (f"{experiment_id}.{arm.label}" for arm in spec.possible_arms if arm not in spec.arms)
    names += [name for name in further if name in by_name]
    runs = tuple(by_name[name] for name in names)
    return Experiment(experiment_id=experiment_id, spec=spec, runs=runs)


def damages(data_dir: DataDir) -> Iterator[tuple[str, str]]:
    """Names of unreadable run folders with the error; the index reports the same."""
    for runs in _by_experiment(data_dir.run_dirs()).values():
        spec = agreed_spec(runs)
        for run in runs:
            # A run with unreadable labels is reported, but still listed.
            why = _damage(run, spec) or _problem(run.read_labels)
            if why is not None:
                yield run.run_id, why


def _damage(run: RunDir, experiment: ExperimentSpec | None) -> str | None:
    return _problem(lambda: require_readable(run, experiment))


def _problem(read: Callable[[], object]) -> str | None:
    try:
        read()
    except (RunnerError, OSError) as error:
        return str(error)
    return None


def require_readable(run: RunDir, experiment: ExperimentSpec | None) -> RunSpec:
    """The specification of a run, if it can be listed. Raises `RunnerError` or `OSError` if the run
    does not belong to the experiment, or its journal cannot be read. All lists of runs use this
    rule."""
    spec = run.read_spec()
    check_membership(spec, experiment)
    with suppress(FileNotFoundError), open_journal(run.events_file) as journal:
        require_known_format(run.events_file, journal.read(BEGIN_BYTES))
    return spec


@dataclass(frozen=True, kw_only=True)
class Listed:
    """An experiment with at least one readable run."""

    experiment_id: str
    spec: ExperimentSpec
    runs: Sequence[tuple[str, RunDir | None, str | None]]
    """Label, folder (or None) and error of the folder (or None) of each run."""


def listed(data_dir: DataDir) -> Iterator[Listed]:
    """The experiments that every list shows, oldest first."""
    for experiment_id, folders in _by_experiment(data_dir.run_dirs()).items():
        spec = agreed_spec(folders)
        if spec is None:
            continue
        by_name = {run.run_id: run for run in folders}
        every = [(arm, by_name.get(f"{experiment_id}.{arm.label}")) for arm in spec.possible_arms]
        runs = [
            (arm.label, run, None if run is None else _damage(run, spec))
            for arm, run in every
            if run is not None or arm in spec.arms
        ]
        if any(run is not None and why is None for _, run, why in runs):
            yield Listed(experiment_id=experiment_id, spec=spec, runs=runs)


def agreed_spec(runs: Iterable[RunDir]) -> ExperimentSpec | None:
    """The specification in most folders of an experiment; None if no folder can be read.

    Each folder has the whole specification, so a damaged or changed folder cannot affect the
    others.
    """
    specs: list[ExperimentSpec] = []
    for run in runs:
        with suppress(RunnerError):
            specs.append(run.read_spec().experiment)
    while specs:
        others = [spec for spec in specs if spec != specs[0]]
        if 2 * len(others) <= len(specs):
            return specs[0]
        specs = others
    return None


def check_membership(run: RunSpec, experiment: ExperimentSpec | None) -> None:
    """Raises `InvalidRunFolder` if a run's folder describes another experiment than the other
    folders with the same experiment id."""
    if run.experiment != experiment:
        raise InvalidRunFolder(
            f"its spec.json describes another experiment than the other folders of "
            f"{run.experiment_id} do"
        )


def _by_experiment(run_dirs: Iterable[RunDir]) -> dict[str, list[RunDir]]:
    """Run folders, grouped by the experiment id in their names."""
    folders: dict[str, list[RunDir]] = {}
    for run_dir in run_dirs:
        folders.setdefault(run_dir.run_id.partition(".")[0], []).append(run_dir)
    return folders


def find_experiment(data_dir: DataDir, experiment_id: str) -> Experiment:
    """The experiment with this id; raises `UnknownExperiment` if there is none."""
    experiment = _experiment(experiment_id, run_folders(data_dir, experiment_id))
    if experiment is None:
        raise UnknownExperiment(
            f"no experiment {experiment_id!r} in {data_dir.runs}; "
            "`breakeven list` has those that are there"
        )
    return experiment


def run_folders(data_dir: DataDir, experiment_id: str) -> list[RunDir]:
    """The folders of an experiment, also damaged ones; no other folder is opened."""
    return [run for run in data_dir.run_dirs() if run.run_id.partition(".")[0] == experiment_id]


def cancel(experiment: Experiment) -> None:
    """Requests a stop of all runs of an experiment that have not ended; raises `NotWritable`.

    These include lost runs without an exit record: a supervisor could restart them.
    """
    for run in experiment.runs:
        if not run.is_recorded and not run.is_link:
            with writing(run.path):
                run.request_cancel()
    log_action(experiment.data_dir.logs, "stop", experiment.experiment_id)


def resume(experiment: Experiment, on: ExperimentSpec | None = None) -> list[str]:
    """Queues every run that ended early and has a checkpoint; returns their labels. They resume on
    their former devices, or on those of `on`.

    Raises `RunnerError` if there is no such run, and `NotWritable`.
    """
    runs = [run for run in experiment.runs if can_resume(run)]
    if not runs:
        raise RunnerError(
            f"no run of experiment {experiment.experiment_id!r} can go on: "
            f"{_why_none_can_resume(experiment)}"
        )
    for run in runs:
        with writing(run.path):
            if on is not None:
                write_devices(run, on)
            run.reopen()
    labels = [run.read_spec().arm.label for run in runs]
    where = {} if on is None else {"on": on.place}
    log_action(
        experiment.data_dir.logs,
        "resume",
        experiment.experiment_id,
        runs=", ".join(labels),
        **where,
    )
    return labels


def _why_none_can_resume(experiment: Experiment) -> str:
    states = [run.state for run in experiment.runs]
    if all(state is RunState.FINISHED for state in states):
        return "all of them have finished"
    if not any(state.ended_early for state in states):
        return "none of them has ended early; those that have not ended go on by themselves"
    if experiment.spec.workload.writes_checkpoints:
        return (
            "those that ended early left no checkpoint that they could go on from "
            "(docs/own-training.md). Start the experiment anew"
        )
    due = experiment.spec.first_checkpoint_step
    if due is None:
        return (
            "none of those that ended early has a checkpoint. Ask for checkpoints when you launch "
            "(checkpoints.every)"
        )
    return (
        "those that ended early did so before their first checkpoint was written, which was due "
        f"after {due:,} steps. Start the experiment anew, if need be with checkpoints more often "
        "(checkpoints.every)"
    )


def can_resume(run: RunDir) -> bool:
    """Whether the run ended before its last step and left a checkpoint."""
    return run.state.ended_early and run.has_checkpoint and not run.is_link


def ensure_supervisor(data_dir: DataDir) -> subprocess.Popen[bytes] | None:
    """Starts a detached supervisor unless one works; it ends when the queue is empty.

    Raises `NotWritable`.
    """
    with writing(data_dir.path):
        if is_locked(data_dir.supervisor_lock):
            return None
        data_dir.make()
        command = [sys.executable, "-m", "breakeven", "queue", "start", "--data-folder"]
        return start_in_own_session(
            [*command, str(data_dir.path)], data_dir.supervisor_log, os.environ
        )
