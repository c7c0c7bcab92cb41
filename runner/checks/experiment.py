"""Refuses experiments that are known to fail on this machine, before they start."""

from importlib.util import find_spec
from pathlib import Path

from breakeven.runner.checks.data import check_data
from breakeven.runner.checks.settings import check_settings, settings_of
from breakeven.runner.checks.user_code import allowed, check_script, locate, module_files
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.machine.capabilities import (
    Capabilities,
    check_mistyped,
    probe,
    read_capabilities,
)
from breakeven.runner.machine.cpus import cores, cpu_allowance, memory_bytes
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import require
from breakeven.runner.specs.place import parse_cpus, write_cpus
from breakeven.runner.specs.rules import check_task_fits
from breakeven.runner.specs.workload import USER_CODE, Task
from breakeven.runner.suites import SUITES

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
    _check_suite_package(spec)
    _check_threads(spec)
    for path in () if spec.environments else spec.paths_of_backends:
        if not USER_CODE.fullmatch(path):
            module_files(path)
    if spec.is_script:
        check_script(spec)
    elif machine is not None:
        _check_workload(spec, machine)
    return machine is not None and settings_of(spec, execute=True) is None


def check_with_torch(spec: ExperimentSpec, data_dir: DataDir) -> None:
    """Makes the remaining checks (seconds); raises `InvalidSpec` or `ProbeFailed`."""
    machine = read_capabilities(data_dir) or probe(data_dir)
    machine.check(spec)
    if not spec.is_script:
        _check_workload(spec, machine)
    check_settings(spec, execute=True)


def _check_workload(spec: ExperimentSpec, machine: Capabilities) -> None:
    task = machine.tasks[spec.task]
    check_task_fits(spec, task)
    _check_memory(spec, task)
    check_data(spec, task)


def _check_says_something(spec: ExperimentSpec) -> None:
    """Raises `InvalidSpec` for an experiment that cannot have a result. The rule is only for new
    experiments: recorded ones are still read and shown.
    """
    if not spec.kind.compares_caches:
        return
    steps, compiling = spec.cache.steps, _first_turn_steps(spec)
    rule = (
        f"must be at least {compiling + 1}: the first turn has {compiling} steps and compiles; "
        "only later steps show the time of a step without compiling. Choose "
        "more steps, or for a smaller block_steps"
    )
    require(steps > compiling, "cache.steps", steps, rule)


def _first_turn_steps(spec: ExperimentSpec) -> int:
    """Steps of a run's first turn; a turn also ends with an epoch or at a checkpoint."""
    often = spec.checkpoints.every if spec.checkpoints.unit == "steps" else None
    return min(spec.block_steps, spec.steps_per_epoch, often or spec.block_steps)


def _check_threads(spec: ExperimentSpec) -> None:
    there = cpu_allowance().cpus
    named = there if spec.cpus is None else parse_cpus(spec.cpus)
    rule = f"must be CPUs of this machine: {write_cpus(there)}"
    require(named <= there, "cpus", spec.cpus, rule)
    parts = len(cores(named)) if spec.device == "cpu" else spec.num_places
    rule = f"must be at most {parts} to spread runs: this machine has {parts} cores for them"
    require(spec.num_places <= parts, "devices", spec.devices, rule)
    threads, cpus = spec.cpu_threads, len(named) // spec.num_places
    rule = f"must be at most {cpus}: a run may use {cpus} CPUs on this machine, and further "
    rule += "threads would only wait for each other"
    require(threads is None or threads <= cpus, "cpu_threads", threads, rule)


def _check_memory(spec: ExperimentSpec, task: Task) -> None:
    """Raises `InvalidSpec` if the encoded texts, which each run keeps, exceed the memory."""
    data, there = spec.data, memory_bytes()
    if task.samples != "texts" or there is None:
        return
    samples = data.num_train_samples + data.num_eval_samples + data.num_test_samples
    needed = samples * data.sequence_length * BYTES_PER_TOKEN
    rule = (
        f"{samples:,} texts of {data.sequence_length} tokens take {needed / 1e9:,.0f} GB in every "
        f"run, and this machine has {there / 1e9:,.0f} GB; take fewer, or a shorter "
        "data.sequence_length"
    )
    require(needed <= there, "data.num_train_samples", data.num_train_samples, rule)


def _check_suite_package(spec: ExperimentSpec) -> None:
    """Raises `InvalidSpec` without the suite's package. Runs have this process's interpreter."""
    model = spec.model.from_suite
    suite = None if model is None else SUITES[model.suite]
    if suite is None or suite.package is None or spec.environments:
        return
    if find_spec(suite.package) is None:
        rule = f"needs the package {suite.package}, which is not installed here: {suite.install}"
        raise InvalidSpec("model.source", spec.model.source, rule)


def check_user_code(spec: ExperimentSpec) -> None:
    """Raises `CodeNotAllowed` or `InvalidSpec` for a Python file that a supervisor, started by this
    process, could not run. Packages of other environments are checked there, when they are loaded.
    """
    backends = spec.user_code if spec.environments else spec.paths_of_backends
    model = spec.model.script or (spec.model.source if spec.model.is_user_code else None)
    named = {"model.source": () if model is None else (model,),
             "data.source": (spec.data.source,) if spec.data.is_user_code else (),
             "callbacks": spec.callbacks,
             "backends": [one for one in spec.paths_of_backends if one in backends]}  # fmt: skip
    for field, sources in named.items():
        for source in sources:
            file, _name = locate(source)
            if not file.is_file():
                raise InvalidSpec(field, source, f"there is no file {file}")
    if spec.script.folder:
        allowed(spec.script.folder, Path(spec.script.folder))
