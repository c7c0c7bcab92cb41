"""Specifications of experiments and runs: frozen, checked on construction, stored as JSON.

An `ExperimentSpec` expands into one `RunSpec` per arm. Each run folder has its complete
`RunSpec`, so a copied folder needs no other file. Functions called `check_...` raise `InvalidSpec`
for the first field whose value breaks a rule that concerns several parts of the experiment.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path, PurePath
from typing import Any

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.python310 import Self
from breakeven.runner.specs.arm_fields import ENVIRONMENT_NAME, Arm
from breakeven.runner.specs.arms import baseline_of, compared_arms, pythons
from breakeven.runner.specs.experiment_fields import ExperimentFields
from breakeven.runner.specs.fields import Spec, require
from breakeven.runner.specs.place import MAX_RANKS, check_cpus, devices_of_ranks
from breakeven.runner.specs.scenario_fields import (
    AccuracySpec,
    CacheSpec,
    InvestigationSpec,
    PlanSpec,
    SpeedSpec,
    TuneSpec,
)
from breakeven.runner.specs.training import (
    CheckpointSpec,
    EvaluationSpec,
    StoppingSpec,
    TrainingSpec,
)
from breakeven.runner.specs.values import parse_margin
from breakeven.runner.specs.workload import (
    BUILTIN,
    BUILTIN_DATA,
    BUILTIN_MODELS,
    RANDOM_DATA,
    SCRIPT_DATA,
    SCRIPT_PREFIX,
    SCRIPT_TASK,
    SUITE_TASK,
    USER_CODE,
    DataSpec,
    ModelSpec,
    ScriptSpec,
    Task,
    check_task,
    experiment_name,
)

__all__ = [
    "AccuracySpec",
    "CacheSpec",
    "CheckpointSpec",
    "DataSpec",
    "EvaluationSpec",
    "ExperimentSpec",
    "InvestigationSpec",
    "ModelSpec",
    "PlanSpec",
    "RunSpec",
    "ScriptSpec",
    "SpeedSpec",
    "StoppingSpec",
    "TrainingSpec",
    "TuneSpec",
]


@dataclass(frozen=True, kw_only=True)
class ExperimentSpec(ExperimentFields):
    """One comparison: a workload under several backends, with a baseline and a control."""

    def check_rules(self) -> None:
        compiled = compared_arms(self)
        _check_names(self, compiled)
        _check_arms(self, compiled)
        _check_family(self)
        _check_sameness(self, compiled)
        _check_place(self)
        _check_workload(self, compiled)
        _check_training(self, compiled)
        _check_devices(self, compiled)
        self.kind.check_rules(self, compiled)
        _check_evaluation(self)
        if self.environments:
            _check_environments(self)

    @classmethod
    def from_dict(cls, content: Any, path: str = "") -> Self:
        """Also reads the field `control` of version 0.1: whether there is a control. The first
        device of a script on several ranks stands for one of each."""
        if isinstance(content, Mapping) and isinstance(content.get("control"), bool):
            content = {**content, "controls": int(content["control"])}
            del content["control"]
        content = _with_devices_of_ranks(content)
        spec = super().from_dict(content, path)
        name = experiment_name(spec.name, spec.model.source, spec.data.source)
        return spec if name == spec.name else replace(spec, name=name)


@dataclass(frozen=True, kw_only=True)
class RunSpec(Spec):
    """The complete description of one run: an experiment and one of its arms."""

    experiment_id: str
    experiment: ExperimentSpec
    arm: Arm

    @classmethod
    def from_dict(cls, content: Any, path: str = "") -> Self:
        """Reads the experiment's specification once for all of its runs, because this is most of
        the work and a data folder has thousands of runs."""
        if isinstance(content, Mapping) and isinstance(content.get("experiment"), Mapping):
            written = json.dumps(content["experiment"])
            content = {**content, "experiment": _experiment(written)}
        return super().from_dict(content, path)

    def check_rules(self) -> None:
        valid = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", self.experiment_id)
        self.require("experiment_id", bool(valid), "must be letters, digits and '-'")
        rule = "must be one of the experiment's own arms"
        require(self.arm in self.experiment.possible_arms, "arm", self.arm.label, rule)

    @cached_property
    def work(self) -> ExperimentSpec:
        """The experiment in the run's own batch size: its sizes and numbers of steps. Only a run
        with a larger batch differs from the experiment."""
        times = self.arm.batch_times
        return self.experiment if times == 1 else self.experiment.with_batch(times)

    @cached_property
    def script(self) -> ScriptSpec:
        """How the run's script runs: the experiment's command with the changes of the arm."""
        return self.experiment.script_of(self.arm)

    @property
    def run_id(self) -> str:
        """Name of the run folder."""
        return f"{self.experiment_id}.{self.arm.label}"

    @property
    def device(self) -> str:
        """The run's device; the first one if several share every batch."""
        return self.experiment.device


@lru_cache(maxsize=256)
def _experiment(written: str) -> ExperimentSpec:
    return ExperimentSpec.from_dict(json.loads(written), path="experiment.")


def _with_devices_of_ranks(content: Any) -> Any:
    """Names a device for each rank of a script, if `content` names one device."""
    script = content.get("script") if isinstance(content, Mapping) else None
    if not isinstance(script, Mapping) or content.get("task") != SCRIPT_TASK:
        return content
    match script.get("ranks"), content.get("devices", ("cpu",)):
        case int(ranks), [str(device)] if 1 < ranks <= MAX_RANKS:
            return {**content, "devices": devices_of_ranks(device, ranks)}
    return content


def _check_names(spec: ExperimentSpec, compiled: Sequence[Arm]) -> None:
    spec.require("name", bool(spec.name.strip()), "must not be empty")
    spec.require("name", len(spec.name) <= 120, "must be at most 120 characters")
    labels = {arm.label for arm in compiled}
    spec.require("backends", len(labels) == len(compiled), "must not name a backend twice")
    most = spec.kind.max_backends
    rule = f"must be at most {most}: {spec.kind.why_max_backends}"
    field = "backends" if spec.backends else "named_arms"
    spec.require(field, len(compiled) <= most, rule)


def _check_arms(spec: ExperimentSpec, compiled: Sequence[Arm]) -> None:
    rule = "must be left out here: only a whole training has arms with names. Compare them by "
    rule += "`breakeven run`, then `breakeven tune` the command of the best"
    for field in ("named_arms", "baseline"):
        spec.require(field, spec.kind.allows_arms or not getattr(spec, field), rule)
    rule = (
        "must not have arguments, a revision or a diff for a model that Breakeven trains: only a "
    )
    rule += "script has them"
    base = baseline_of(spec)
    for arm in (base, *compiled):
        fits = spec.workload.is_own_program or not (arm.arguments or arm.revision or arm.diff)
        require(fits, "baseline" if arm is base else "named_arms", arm.label, rule)


def _check_family(spec: ExperimentSpec) -> None:
    rule = "must be at most 64 letters, digits, '.', '_' and '-', the first a letter or digit"
    named = spec.family is None or re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", spec.family, re.ASCII)
    spec.require("family", bool(named), rule)
    rule = f"must be left out in the scenario {spec.scenario!r}, which compares no speeds"
    spec.require("family", spec.family is None or spec.kind.has_speedups, rule)


def _check_sameness(spec: ExperimentSpec, compiled: Sequence[Arm]) -> None:
    try:
        parse_margin(spec.margin)
    except ValueError as error:
        raise InvalidSpec("margin", spec.margin, str(error)) from None
    rule = "must be 'auto' or 'outcome' with batch_times: larger batches have other losses"
    has_larger = any(arm.batch_times > 1 for arm in compiled)
    spec.require("same", spec.same != "steps" or not has_larger, rule)


def _check_place(spec: ExperimentSpec) -> None:
    rule = "must name one or several devices: 'cpu', 'cuda:N', 'cuda' for any GPU, or 'mps'"
    named = all(re.fullmatch(r"cpu|mps|cuda(:\d+)?", device) for device in spec.devices)
    spec.require("devices", bool(spec.devices) and named, rule)
    rule = f"must be at most {MAX_RANKS}: every run has a process for each of them"
    spec.require("devices", len(spec.devices) <= MAX_RANKS, rule)
    kinds = {device.partition(":")[0] for device in spec.devices}
    rule = "must all be of one kind: the slowest would delay all others"
    spec.require("devices", len(kinds) == 1, rule)
    twice = {device for device, count in Counter(spec.devices).items() if count > 1}
    rule = "must not name a device twice; only 'cpu' can be shared by several processes"
    spec.require("devices", twice <= {"cpu", "cuda"}, rule)
    rule = "'dp' copies the model from one CUDA device to others; on CPUs choose 'ddp' or 'fsdp'"
    fits = spec.parallel != "dp" or len(spec.devices) == 1 or kinds == {"cuda"}
    spec.require("parallel", fits, rule)
    check_cpus(spec.cpus)


def _check_workload(spec: ExperimentSpec, compiled: Sequence[Arm]) -> None:
    check_task(spec.task)
    data, script = spec.data.source, spec.model.script
    is_suite, is_script = spec.task == SUITE_TASK, spec.task == SCRIPT_TASK
    rule = f"must be a model of a benchmark suite with the task {SUITE_TASK!r}, and only then"
    spec.require("model.source", (spec.model.from_suite is not None) == is_suite, rule)
    rule = f"must be {SCRIPT_PREFIX}path.py with the task {SCRIPT_TASK!r}, and only then"
    spec.require("model.source", (script is not None) == is_script, rule)
    rule = "must name the script by its full path, such as /home/me/train.py"
    spec.require("model.source", script is None or Path(script).is_absolute(), rule)
    rule = f"must be {SCRIPT_DATA!r} with the task {SCRIPT_TASK!r}, and only then"
    spec.require("data.source", (data == SCRIPT_DATA) == is_script, rule)
    rule = f"must be {RANDOM_DATA!r} with the task {SUITE_TASK!r}, and only then"
    spec.require("data.source", (data == RANDOM_DATA) == is_suite, rule)
    for callback in spec.callbacks:
        rule = "must read path.py:Class"
        require(bool(USER_CODE.fullmatch(callback)), "callbacks", callback, rule)
    rule = "must be 'train' or 'tune' for a script: Breakeven cannot run a single step of a script"
    fits = spec.workload.has_single_steps or spec.kind.allows_scripts
    spec.require("scenario", fits, rule)
    if spec.workload.decides_scope:
        for text, arm in zip(spec.arm_texts, compiled, strict=True):
            rule = "cannot have a scope for a script, which decides what is compiled. Leave scope "
            rule += "out"
            require(arm.scope in ("iteration", "blocks"), "backends", text, rule)


def _check_training(spec: ExperimentSpec, compiled: Sequence[Arm]) -> None:
    training, on_cuda = spec.training, spec.device.startswith("cuda")
    rule = "needs a CUDA device; on the CPU and on MPS choose float32 or bf16"
    spec.require("training.precision", on_cuda or training.precision not in ("tf32", "fp16"), rule)
    samples = spec.data.num_train_samples
    rule = f"must not exceed data.num_train_samples ({samples}): no batch would be full"
    spec.require("training.batch_size", training.batch_size <= samples, rule)
    has_one_shape = any(arm.backend == "cudagraphs" for arm in compiled)
    rule = "must be 'drop' or 'pad' with the backend cudagraphs: a captured graph has one shape"
    fits = not has_one_shape or training.last_batch != "dynamic"
    spec.require("training.last_batch", fits, rule)
    rule = "must not have loader_workers except for a script: other trainings keep all samples on "
    rule += "the device"
    has_workers = any(arm.loader_workers for arm in compiled)
    spec.require("backends", spec.workload.loads_samples or not has_workers, rule)
    if any(arm.batch_times > 1 for arm in compiled):
        _check_batch_times(spec, max(arm.batch_times for arm in compiled))


def _check_batch_times(spec: ExperimentSpec, times: int) -> None:
    rule = "must not have batch_times except for a training or a search on one device"
    fits = spec.kind.allows_larger_batches and len(spec.devices) == 1
    spec.require("backends", fits, rule)
    rule = "must not have batch_times for a script, which decides its batch size"
    spec.require("backends", spec.workload.is_specified, rule)
    most = spec.num_full_steps
    rule = f"must have batch_times of at most {most}: the training samples fill no larger batch"
    spec.require("backends", times <= most, rule)


def _check_devices(spec: ExperimentSpec, compiled: Sequence[Arm]) -> None:
    """Refuses what the devices do not support."""
    if spec.device == "mps":
        rule = "must not capture CUDA graphs, which MPS does not have"
        captures = any(arm.captures_cuda_graphs for arm in compiled)
        spec.require("backends", not captures, rule)
    has_ddp = spec.parallel == "ddp" and len(spec.devices) * spec.nodes > 1
    for text, arm in zip(spec.arm_texts, compiled, strict=True):
        rule = "sets how Dynamo compiles DistributedDataParallel: name several devices, with 'ddp'"
        require(has_ddp or arm.optimize_ddp is None, "backends", text, rule)
    if spec.workload.is_own_program:
        _check_ranks_of_script(spec)
        return
    if len(spec.devices) == spec.nodes == 1:
        return
    _check_nodes(spec)
    rule = "must name one device for inference: without gradients devices have nothing to share"
    spec.require("devices", not spec.is_inference, rule)
    _check_parts(spec)
    _check_torch(spec, compiled)


def _check_ranks_of_script(spec: ExperimentSpec) -> None:
    spec.require("nodes", spec.nodes == 1, "must be 1 for a script: its ranks are on one machine")
    ranks = spec.script.ranks
    rule = "must name one device for a script that is one process; name the number of its processes"
    rule += f", script.ranks={len(spec.devices)}"
    spec.require("devices", ranks > 1 or len(spec.devices) == 1, rule)
    rule = f"must name {ranks} devices, one for each process (script.ranks)"
    spec.require("devices", len(spec.devices) == ranks, rule)
    rule = "must be left out for a script, whose processes share the work as it says"
    spec.require("parallel", spec.parallel != "dp", rule)


def _check_nodes(spec: ExperimentSpec) -> None:
    rule = "must be 'ddp' or 'fsdp' on several machines: 'dp' stays on one machine"
    spec.require("parallel", spec.nodes == 1 or spec.parallel in ("ddp", "fsdp"), rule)
    rule = f"must be at most {MAX_RANKS} devices in all: every run has a process for each of them"
    spec.require("nodes", len(spec.devices) * spec.nodes <= MAX_RANKS, rule)
    rule = "must be 1 in a scenario that compares no runs: machines have nothing to share"
    spec.require("nodes", spec.nodes == 1 or spec.kind.has_speedups, rule)


def _check_parts(spec: ExperimentSpec) -> None:
    count, batch_size = len(spec.devices) * spec.nodes, spec.training.batch_size
    last_batch, left_over = spec.training.last_batch, spec.data.num_train_samples % batch_size
    rule = f"must be a multiple of {count}: each of {count} devices takes an equal part"
    spec.require("training.batch_size", batch_size % count == 0, rule)
    rule = f"must be 'drop' or 'pad': {count} devices cannot share a batch of {left_over} equally"
    shares = last_batch != "dynamic" or left_over % count == 0
    spec.require("training.last_batch", shares, rule)
    rule = f"must be 'drop': an epoch's last batch has {left_over} samples, not one for each "
    rule += "device, and a mean over no sample is undefined"
    fills = left_over == 0 or left_over > batch_size // count * (count - 1)
    spec.require("training.last_batch", last_batch != "pad" or fills, rule)


def _check_torch(spec: ExperimentSpec, compiled: Sequence[Arm]) -> None:
    """Refuses what torch does not support (`tests/runner/worker/ranks/test_support.py`)."""
    rule = "cannot be compiled with 'dp', which runs copies of the model in threads; name no "
    rule += "backend, to time it uncompiled, or choose 'ddp'"
    spec.require("backends", spec.parallel != "dp" or not compiled, rule)
    for text, arm in zip(spec.arm_texts, compiled, strict=True):
        rule = "cannot be one graph: Dynamo cannot trace the code that gathers weights and "
        rule += "averages gradients; choose scope=blocks, or with 'ddp' "
        rule += "optimize_ddp=python_reducer"
        traces = arm.scope == "blocks" or arm.optimize_ddp == "python_reducer"
        require(traces or not arm.fullgraph, "backends", text, rule)
    rule = "does not work with 'fsdp', where each device would see an overflow only in its own "
    rule += "gradients; choose bf16"
    fits = spec.parallel != "fsdp" or spec.training.precision != "fp16"
    spec.require("training.precision", fits, rule)


def _check_evaluation(spec: ExperimentSpec) -> None:
    evaluates = spec.evaluation.when != "never"
    rule = "must not be 'never' with the schedule 'plateau', which follows the held-out loss"
    spec.require("evaluation.when", evaluates or spec.training.scheduler != "plateau", rule)
    rule = "must not be 'never' if evaluations stop the training early"
    spec.require("evaluation.when", evaluates or not spec.stopping.follows_evaluation, rule)
    for name in ("splits", "predictions"):
        rule = "must not name 'test' while data.num_test_samples is 0"
        needs = "test" in getattr(spec.evaluation, name)
        spec.require(f"evaluation.{name}", spec.data.num_test_samples > 0 or not needs, rule)


def _check_environments(spec: ExperimentSpec) -> None:
    """Raises `InvalidSpec` for names, paths and combinations that cannot run."""
    for text in spec.environments:
        name, equals, python = text.partition("=")
        rule = "must read NAME=PATH, with a name of at most 40 letters, digits, '.', '_' and '-'"
        require(bool(equals and ENVIRONMENT_NAME.fullmatch(name)), "environments", text, rule)
        rule = "must name the Python by its full path, such as /home/me/torch211/bin/python"
        require(PurePath(python).is_absolute(), "environments", text, rule)
    names, count = pythons(spec.environments), len(spec.environments)
    spec.require("environments", len(names) == count, "must not use a name twice")
    rule = "can be compared in the scenarios 'train' and 'speed' alone; a search may have one"
    spec.require("environments", count <= spec.kind.max_environments, rule)
    most = spec.kind.max_backends
    rule = f"make more than {most} runs with these backends: each is a process, and all live at "
    rule += "the same time"
    spec.require("environments", count * len(spec.arm_texts) <= most, rule)


def check_task_fits(spec: ExperimentSpec, task: Task) -> None:
    """Raises `InvalidSpec` for a source or a metric that the task cannot use."""
    if task.samples == "functions":
        _check_functions(spec)
    elif task.samples != "random":  # benchmark suites: the specification's own rules
        check_sources(spec, task)
    metric, known = spec.evaluation.metric, ("loss", *task.metrics)
    if task.metrics and metric not in known:
        rule = f"is not measured by task = {spec.task!r}; choose {' or '.join(known)}"
        raise InvalidSpec("evaluation.metric", metric, rule)


def check_sources(spec: ExperimentSpec, task: Task) -> None:
    """Raises `InvalidSpec` for a source that the task cannot use.

    The task's own names, files and names of the hub are allowed; functions are for the task
    `custom`.
    """
    known = BUILTIN_MODELS | BUILTIN_DATA
    for field, part, usable in (
        ("model.source", spec.model, task.models),
        ("data.source", spec.data, task.data),
    ):
        is_foreign = part.source.startswith(BUILTIN) and part.source not in usable
        if is_foreign or part.is_user_code:
            meaning = known.get(part.source, "a function in a Python file, for the task 'custom'")
            rule = (
                f"({meaning}) does not fit task = {spec.task!r}, which takes {', '.join(usable)}, "
                "local files and names of the hub. Choose one of these, or another task"
            )
            raise InvalidSpec(field, part.source, rule)


def _check_functions(spec: ExperimentSpec) -> None:
    for field, part in (("model.source", spec.model), ("data.source", spec.data)):
        if not part.is_user_code:
            rule = (
                f"does not fit task = {spec.task!r}, which takes functions in Python files, "
                "path.py:function. Name one, or choose another task"
            )
            raise InvalidSpec(field, part.source, rule)
