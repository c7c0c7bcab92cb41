"""Refuses experiments that are known to fail on this machine, before they start.

`python -m breakeven.runner.checks.refused_experiments RUN_FOLDER` checks a queued experiment.
"""

import os
import sys
from dataclasses import fields, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from breakeven.runner.checks.allowed_code import (
    allowed,
    check_arms,
    check_script,
    locate,
    module_files,
)
from breakeven.runner.checks.data_file import check_data
from breakeven.runner.checks.environments import packages_needed
from breakeven.runner.errors import InvalidSpec, RunnerError
from breakeven.runner.extras import missing_words
from breakeven.runner.machine.capabilities import (
    Capabilities,
    ask_torch,
    check_mistyped,
    probe,
    read_capabilities,
)
from breakeven.runner.machine.cpus import cpu_allowance, memory_bytes
from breakeven.runner.machine.placement import placed
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunDir, spec_in_use
from breakeven.runner.specs.arm_fields import NEED_NO_COMPILER, Arm
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.specs.candidates import candidates
from breakeven.runner.specs.experiment import ExperimentSpec, TrainingSpec, check_task_fits
from breakeven.runner.specs.place import parse_cpus, write_cpus
from breakeven.runner.specs.workload import USER_CODE, Task
from breakeven.runner.suites import SUITES

PATH_BEGINS = ("/", "./", "../", "~")
FILE_TASKS = {
    "text_classification": Task(learns="", samples="texts", labels="sample"),
    "image_classification": Task(learns="", samples="images", labels="sample"),
    "causal_lm": Task(learns="", samples="texts", labels="token"),
    "masked_lm": Task(learns="", samples="texts", labels="token"),
}
"""What tasks take from files. Their own modules say so, too, but import torch."""
BYTES_PER_TOKEN = 16
"""Token id and entry of the attention mask, 8 bytes each."""


def check(spec: ExperimentSpec, machine: Capabilities) -> None:
    """Raises `InvalidSpec` for an experiment without a result, for devices and packages that this
    machine lacks, and for unusable data and settings. The launch form calls this, so it executes no
    code of a backend: a link to the form may name one.
    """
    check_at_once(spec, machine)
    check_settings(spec)


def check_at_once(spec: ExperimentSpec, machine: Capabilities | None) -> bool:
    """Raises `InvalidSpec` for errors that are visible without torch. Returns whether no check is
    left; otherwise `check_with_torch` follows while the runs load. Every command that queues
    experiments calls this.

    `machine`: cached answer of torch; None without one.
    """
    _check_says_something(spec)
    if machine is None:
        check_mistyped(spec)
    else:
        machine.check(spec)
    _check_packages(spec)
    _check_threads(spec)
    for path in () if spec.environments else spec.paths_of_backends:
        if not USER_CODE.fullmatch(path):
            module_files(path)
    if spec.workload.is_own_program:
        check_script(spec)
    elif machine is not None:
        _check_workload(spec, machine)
    else:
        _check_files(spec)
    return machine is not None and settings_to_check(spec, execute=True) is None


def check_with_torch(spec: ExperimentSpec, data_dir: DataDir) -> None:
    """Makes the remaining checks (seconds); raises `InvalidSpec` or `ProbeFailed`."""
    machine = read_capabilities(data_dir) or probe(data_dir)
    machine.check(spec)
    if not spec.workload.is_own_program:
        _check_workload(spec, machine)
    check_settings(spec, execute=True)


def _check_files(spec: ExperimentSpec) -> None:
    """Raises `InvalidSpec` for a model folder that is missing, and for data that cannot be used:
    what files show before torch has described the tasks."""
    model = spec.model.source
    if model.startswith(PATH_BEGINS) and not USER_CODE.fullmatch(model):
        there = (PROJECT_ROOT / Path(model).expanduser()).exists()
        spec.model.require("source", there, "no such file or folder; give its full path")
    if spec.task in FILE_TASKS:
        check_data(spec, FILE_TASKS[spec.task])


def _check_workload(spec: ExperimentSpec, machine: Capabilities) -> None:
    task = machine.tasks[spec.task]
    check_task_fits(spec, task)
    _check_memory(spec, task)
    check_data(spec, task)


def _check_says_something(spec: ExperimentSpec) -> None:
    """Raises `InvalidSpec` for an experiment that cannot have a result. The rule is only for new
    experiments: recorded ones are still read and shown.
    """
    # The first turn also ends with an epoch or at a checkpoint.
    often = spec.checkpoints.every if spec.checkpoints.unit == "steps" else None
    compiling = min(spec.block_steps, spec.steps_per_epoch, often or spec.block_steps)
    spec.kind.check_result(spec, compiling)


def _check_threads(spec: ExperimentSpec) -> None:
    allowed = cpu_allowance().cpus
    named = allowed if spec.cpus is None else parse_cpus(spec.cpus)
    rule = f"must be CPUs of this machine: {write_cpus(allowed)}"
    spec.require("cpus", named <= allowed, rule)
    threads, cpus = spec.cpu_threads, len(named)
    rule = f"must be at most {cpus}: a run may use {cpus} CPUs on this machine, and further "
    rule += "threads would only wait for each other"
    spec.require("cpu_threads", threads is None or threads <= cpus, rule)


def _check_memory(spec: ExperimentSpec, task: Task) -> None:
    """Raises `InvalidSpec` if the encoded texts, which each run keeps, exceed the memory."""
    data, available = spec.data, memory_bytes()
    if task.samples != "texts" or available is None:
        return
    needed = data.num_samples * data.sequence_length * BYTES_PER_TOKEN
    rule = (
        f"{data.num_samples:,} texts of {data.sequence_length} tokens take {needed / 1e9:,.0f} GB "
        f"in every run, and this machine has {available / 1e9:,.0f} GB; take fewer, or a shorter "
        "data.sequence_length"
    )
    data.require("num_train_samples", needed <= available, rule)


def _check_packages(spec: ExperimentSpec) -> None:
    """Raises `InvalidSpec` without a package that the runs need. Runs have this process's
    interpreter, or else `check_environments` asks theirs."""
    model = spec.model.from_suite
    suite = None if model is None else SUITES[model.suite]
    for package in () if spec.environments else packages_needed(spec):
        if suite is not None and package == suite.package and find_spec(package) is None:
            rule = f"needs the package {package}, which is not installed here: {suite.install}"
            raise InvalidSpec("model.source", spec.model.source, rule)
        if missing := missing_words(package):
            raise InvalidSpec("model.source", spec.model.source, missing)


def check_user_code(spec: ExperimentSpec) -> None:
    """Raises `CodeNotAllowed` or `InvalidSpec` for a Python file that a supervisor, started by this
    process, could not run. Packages of other environments are checked there, when they are loaded.
    """
    backends = spec.user_code if spec.environments else spec.paths_of_backends
    model = spec.model.script or (spec.model.source if spec.model.is_user_code else None)
    named = {
        "model.source": () if model is None else (model,),
        "data.source": (spec.data.source,) if spec.data.is_user_code else (),
        "callbacks": spec.callbacks,
        "backends": [path for path in spec.paths_of_backends if path in backends],
    }
    for field, sources in named.items():
        for source in sources:
            file, _name = locate(source)
            if not file.is_file():
                raise InvalidSpec(field, source, f"there is no file {file}")
    if spec.script.folder:
        allowed(spec.script.folder, Path(spec.script.folder))
    check_arms(spec)


COMMAND = (sys.executable, "-m", "breakeven.runner.worker.settings_check")
KEPT_ANSWERS = 256
TASKS_OF_ANY_LABELS = ("custom", "suite")
"""Tasks whose labels may be classes or numbers, depending on the samples."""


def check_settings(spec: ExperimentSpec, *, execute: bool = False) -> None:
    """Raises `InvalidSpec` for a setting that torch refuses, `ProbeFailed` if the check fails.

    Optimizer, devices and backends must be known to this machine already (`Capabilities.check`).
    `execute`: whether to load backends that are named by path, which executes their code.
    """
    settings = settings_to_check(spec, execute=execute)
    if settings is None:
        return
    refused = _first_refused(settings.to_json())
    if refused:
        field, value = refused["field"], refused["value"]
        if field == "backends":
            value = next(text for text in spec.backends if _of_torch(text) == value)
        raise InvalidSpec(field, value, refused["rule"])


def settings_to_check(spec: ExperimentSpec, *, execute: bool = False) -> ExperimentSpec | None:
    """An experiment with only the settings to check; None if all are defaults. Candidates of a
    search are not checked: if this torch does not know one, only that candidate fails."""
    training = spec.training
    is_scheduled = not training.has_constant_rate
    searched = set(candidates(spec)) if spec.kind.has_candidates else set()
    # The torch of another environment may have other options.
    backends = () if spec.environments else spec.backends
    arms = {text: parse_backend(text) for text in backends if text not in searched}
    to_try = tuple(
        dict.fromkeys(
            _of_torch(text)
            for text, arm in arms.items()
            if arm.options or (execute and arm.path_of_backend)
        )
    )
    usual = TrainingSpec()
    reduced = replace(
        usual,
        optimizer=training.optimizer,
        optimizer_options=training.optimizer_options,
        parameter_groups=training.parameter_groups,
        scheduler=training.scheduler,
        scheduler_options=training.scheduler_options,
        warmup_steps=training.warmup_steps,
        scaler_options=training.scaler_options,
        precision=training.precision if training.scaler_options else usual.precision,
        losses=training.losses,
        max_steps=spec.num_steps if is_scheduled else None,
    )
    is_usual = replace(reduced, optimizer=usual.optimizer) == usual
    if is_usual and not to_try:
        return None
    labels_are_classes = spec.task not in TASKS_OF_ANY_LABELS
    return ExperimentSpec(
        name="settings",
        task=ExperimentSpec.task if labels_are_classes else "custom",
        training=reduced,
        backends=to_try,
        devices=spec.devices,
    )


def _of_torch(backend: str) -> str:
    """The backend without the settings that may not fit the reduced experiment, because they need
    a task, data or several devices; torch has nothing to check in them."""
    arm = parse_backend(backend)
    usual: dict[str, Any] = {
        setting.name: setting.default
        for setting in fields(Arm)
        if setting.name in (*NEED_NO_COMPILER, "optimize_ddp")
    }
    return replace(arm, **usual).text


@lru_cache(KEPT_ANSWERS)
def _first_refused(settings: str) -> dict[str, Any]:
    return ask_torch(COMMAND, "torch failed to check these settings", settings)


def main() -> None:
    """Checks a queued experiment with torch while its runs load; prints the reason for a refusal,
    or nothing. The process of the baseline starts this before it changes its own environment."""
    run = RunDir(Path(sys.argv[1]))
    try:
        spec = placed(spec_in_use(run), os.environ)
        check_with_torch(spec.experiment, DataDir(run.path.parent.parent))
    except RunnerError as error:
        sys.stdout.write(str(error))


if __name__ == "__main__":
    main()
