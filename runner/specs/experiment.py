"""Specifications of experiments and runs: frozen, checked on construction, stored as JSON.

An `ExperimentSpec` expands into one `RunSpec` per variant. Each run folder has its complete
`RunSpec`, so a copied folder needs no other file. Functions called `check_...` raise `InvalidSpec`
for the first field whose value breaks a rule that concerns several parts of the experiment.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path, PurePath
from typing import Any

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.python310 import Self
from breakeven.runner.specs.experiment_fields import ExperimentFields
from breakeven.runner.specs.fields import EVERY_STEP_IS_KEPT, MAX_STEPS, Spec, require
from breakeven.runner.specs.place import MAX_RANKS
from breakeven.runner.specs.scenarios import (
    AccuracySpec,
    CacheSpec,
    InvestigationSpec,
    SpeedSpec,
    TuneSpec,
)
from breakeven.runner.specs.training import (
    NO_OPTIMIZER,
    CheckpointSpec,
    EvaluationSpec,
    StoppingSpec,
    TrainingSpec,
)
from breakeven.runner.specs.variants import ENVIRONMENT_NAME, Variant, parse_backends, pythons
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
    known_as,
)

__all__ = [
    "AccuracySpec", "CacheSpec", "CheckpointSpec", "DataSpec", "EvaluationSpec", "ExperimentSpec",
    "InvestigationSpec", "ModelSpec", "RunSpec", "ScriptSpec", "SpeedSpec", "StoppingSpec",
    "TrainingSpec", "TuneSpec",
]  # fmt: skip

MAX_BACKENDS = 64
MAX_CANDIDATES = 1000


@dataclass(frozen=True, kw_only=True)
class ExperimentSpec(ExperimentFields):
    """One comparison: a workload under several backends, with a baseline and a control."""

    def check_rules(self) -> None:
        compiled = parse_backends(self.backends)
        _check_names(self, compiled)
        self.check_place()
        _check_precision(self)
        _check_optimizer(self)
        if self.device == "mps":
            _check_mps(self, compiled)
        _check_workload(self)
        if self.kind.compares_causes:
            _check_investigation(self, compiled)
        if self.is_script:
            _check_script(self, compiled)
        _check_batches(self, compiled)
        _check_batch_times(self, compiled)
        _check_ddp_modes(self, compiled)
        if len(self.devices) > 1 or self.nodes > 1:
            _check_parallel(self, compiled)
        if self.kind.searches:
            _check_search(self)
        _check_length(self)
        _check_evaluation(self)
        for callback in self.callbacks:
            rule = "must read path.py:Class"
            require(bool(USER_CODE.fullmatch(callback)), "callbacks", callback, rule)
        if self.environments:
            _check_environments(self)

    @classmethod
    def from_dict(cls, content: Any, path: str = "") -> Self:
        """Also reads the field `control` of version 0.1: whether there is a control."""
        if isinstance(content, Mapping) and isinstance(content.get("control"), bool):
            content = {**content, "controls": int(content["control"])}
            del content["control"]
        spec = super().from_dict(content, path)
        name = known_as(spec.name, spec.model.source, spec.data.source)
        return spec if name == spec.name else replace(spec, name=name)


@dataclass(frozen=True, kw_only=True)
class RunSpec(Spec):
    """The complete description of one run: an experiment and one of its variants."""

    experiment_id: str
    experiment: ExperimentSpec
    variant: Variant

    @classmethod
    def from_dict(cls, content: Any, path: str = "") -> Self:
        """Reads the experiment's specification once for all of its runs, because this is most of
        the work and a data folder has thousands of runs."""
        if isinstance(content, Mapping) and isinstance(content.get("experiment"), Mapping):
            written = json.dumps(content["experiment"])
            content = {**content, "experiment": _experiment(written)}
        return super().from_dict(content, path)

    def check_rules(self) -> None:
        rule = "must be letters, digits and '-'"
        valid = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", self.experiment_id)
        require(bool(valid), "experiment_id", self.experiment_id, rule)
        rule = "must be one of the experiment's own variants"
        require(
            self.variant in self.experiment.possible_variants, "variant", self.variant.label, rule
        )

    @cached_property
    def work(self) -> ExperimentSpec:
        """The experiment in the run's own batch size: its sizes and numbers of steps. Only a run
        with a larger batch differs from the experiment."""
        times = self.variant.batch_times
        return self.experiment if times == 1 else self.experiment.with_batch(times)

    @property
    def run_id(self) -> str:
        """Name of the run folder."""
        return f"{self.experiment_id}.{self.variant.label}"

    @property
    def device(self) -> str:
        """The run's device; the first one if several share every batch."""
        return self.experiment.devices[self.variant.place - 1]


@lru_cache(maxsize=256)
def _experiment(written: str) -> ExperimentSpec:
    return ExperimentSpec.from_dict(json.loads(written), path="experiment.")


def _check_names(spec: ExperimentSpec, compiled: Sequence[Variant]) -> None:
    require(bool(spec.name.strip()), "name", spec.name, "must not be empty")
    require(len(spec.name) <= 120, "name", spec.name, "must be at most 120 characters")
    rule = "must not name a backend twice"
    labels = {variant.label for variant in compiled}
    require(len(labels) == len(compiled), "backends", spec.backends, rule)
    most, why = MAX_BACKENDS, "each is a process, and all are alive at the same time"
    if spec.kind.searches:
        most, why = MAX_CANDIDATES, "a search tries a few of them"
    require(len(compiled) <= most, "backends", spec.backends, f"must be at most {most}: {why}")


def _check_precision(spec: ExperimentSpec) -> None:
    precision = spec.training.precision
    rule = "needs a CUDA device; on the CPU and on MPS choose float32 or bf16"
    fits = spec.device.startswith("cuda") or precision not in ("tf32", "fp16")
    require(fits, "training.precision", precision, rule)


def _check_optimizer(spec: ExperimentSpec) -> None:
    optimizer = spec.training.optimizer
    rule = (
        f"must not be {NO_OPTIMIZER!r} for a whole training, which would learn nothing; choose an "
        "optimizer, or the scenario speed or accuracy"
    )
    learns = optimizer != NO_OPTIMIZER or not spec.kind.trains_fully
    require(learns, "training.optimizer", optimizer, rule)


def _check_mps(spec: ExperimentSpec, compiled: Sequence[Variant]) -> None:
    """Refuses what Apple's devices do not support."""
    rule = "needs double precision, which MPS does not have; choose another device"
    require(not spec.kind.compares_tensors, "scenario", spec.scenario, rule)
    rule = "must not capture CUDA graphs, which MPS does not have"
    captures = any(variant.captures_cuda_graphs for variant in compiled)
    require(not captures, "backends", spec.backends, rule)


def _check_workload(spec: ExperimentSpec) -> None:
    check_task(spec.task)
    model, data, script = spec.model.source, spec.data.source, spec.model.script
    is_suite, is_script = spec.task == SUITE_TASK, spec.task == SCRIPT_TASK
    rule = f"must be a model of a benchmark suite with the task {SUITE_TASK!r}, and only then"
    require((spec.model.from_suite is not None) == is_suite, "model.source", model, rule)
    rule = f"must be {SCRIPT_PREFIX}path.py with the task {SCRIPT_TASK!r}, and only then"
    require((script is not None) == is_script, "model.source", model, rule)
    rule = "must name the script by its full path, such as /home/me/train.py"
    is_full = script is None or Path(script).is_absolute()
    require(is_full, "model.source", model, rule)
    rule = f"must be {SCRIPT_DATA!r} with the task {SCRIPT_TASK!r}, and only then"
    require((data == SCRIPT_DATA) == is_script, "data.source", data, rule)
    rule = f"must be {RANDOM_DATA!r} with the task {SUITE_TASK!r}, and only then"
    require((data == RANDOM_DATA) == is_suite, "data.source", data, rule)


def _check_investigation(spec: ExperimentSpec, compiled: Sequence[Variant]) -> None:
    rule = "must name the run to investigate; `breakeven investigate EXPERIMENT.LABEL` does so"
    require(spec.investigates is not None, "investigates", spec.investigates, rule)
    rule = "must name one device for an investigation, whose trials are single processes"
    require(len(spec.devices) == spec.nodes == 1, "devices", spec.devices, rule)
    rule = "must be exactly one backend for an investigation, and one with a compiler"
    is_one = len(compiled) == 1 and compiled[0].backend is not None
    require(is_one, "backends", spec.backends, rule)


def _check_script(spec: ExperimentSpec, compiled: Sequence[Variant]) -> None:
    """Refuses settings that do not work for scripts."""
    rule = "must be 'train' or 'tune' for a script: Breakeven cannot run a single step of a script"
    fits = spec.kind.trains_fully or spec.kind.compares_causes or spec.kind.searches
    require(fits, "scenario", spec.scenario, rule)
    for text, variant in zip(spec.backends, compiled, strict=True):
        rule = "cannot have a scope for a script, which decides what is compiled. Leave scope out"
        fits = variant.scope in ("iteration", "blocks")
        require(fits, "backends", text, rule)


def _check_batches(spec: ExperimentSpec, compiled: Sequence[Variant]) -> None:
    batch, samples = spec.training.batch_size, spec.data.num_train_samples
    rule = f"must not exceed data.num_train_samples ({samples}): no batch would be full"
    require(batch <= samples, "training.batch_size", batch, rule)
    last_batch = spec.training.last_batch
    fixed = any(variant.backend == "cudagraphs" for variant in compiled)
    rule = "must be 'drop' or 'pad' with the backend cudagraphs: a captured graph has one shape"
    require(not (fixed and last_batch == "dynamic"), "training.last_batch", last_batch, rule)


def _check_batch_times(spec: ExperimentSpec, compiled: Sequence[Variant]) -> None:
    times = max((variant.batch_times for variant in compiled), default=1)
    rule = "must not have batch_times except for a training or a search on one device"
    fits = (spec.kind.trains_fully or spec.kind.searches) and len(spec.devices) == 1
    require(times == 1 or fits, "backends", spec.backends, rule)
    rule = "must not have batch_times for a script, which decides its batch size"
    require(times == 1 or not spec.is_script, "backends", spec.backends, rule)
    most = spec.num_full_steps
    rule = f"must have batch_times of at most {most}: the training samples fill no larger batch"
    require(times == 1 or times <= most, "backends", spec.backends, rule)


def _check_ddp_modes(spec: ExperimentSpec, compiled: Sequence[Variant]) -> None:
    """Only a run with DDP can choose how DDP is compiled."""
    has_ddp = spec.parallel == "ddp" and len(spec.devices) * spec.nodes > 1
    for text, variant in zip(spec.backends, compiled, strict=True):
        rule = "sets how Dynamo compiles DistributedDataParallel: name several devices, with 'ddp'"
        require(has_ddp or variant.optimize_ddp is None, "backends", text, rule)


def _check_parallel(spec: ExperimentSpec, compiled: Sequence[Variant]) -> None:
    """Refuses settings that several devices do not support."""
    _check_nodes(spec)
    if spec.parallel == "spread":
        _check_spread(spec)
        return
    rule = "must name one device for a script, which starts its own processes"
    require(not spec.is_script, "devices", spec.devices, rule)
    rule = "must name one device in the scenario 'accuracy', which compares tensors of one batch"
    require(not spec.kind.compares_tensors, "devices", spec.devices, rule)
    rule = "must name one device for inference: without gradients devices have nothing to share"
    require(not spec.is_inference, "devices", spec.devices, rule)
    _check_parts(spec)
    _check_torch(spec, compiled)


def _check_nodes(spec: ExperimentSpec) -> None:
    rule = "must be 'ddp' or 'fsdp' on several machines: 'dp' and 'spread' stay on one machine"
    fits = spec.nodes == 1 or spec.parallel in ("ddp", "fsdp")
    require(fits, "parallel", spec.parallel, rule)
    rule = f"must be at most {MAX_RANKS} devices in all: every run has a process for each of them"
    require(len(spec.devices) * spec.nodes <= MAX_RANKS, "nodes", spec.nodes, rule)
    rule = "must be 1 in a scenario that compares no runs: machines have nothing to share"
    require(spec.nodes == 1 or spec.kind.compares_runs, "nodes", spec.nodes, rule)


def _check_spread(spec: ExperimentSpec) -> None:
    rule = "must not be 'spread' in the scenarios 'accuracy' and 'cache', which time no rounds"
    require(spec.kind.compares_runs, "parallel", spec.parallel, rule)
    rule = f"must be at least as many as the devices, {len(spec.devices)}: a device with only the "
    rule += "baseline shows nothing"
    require(len(spec.backends) >= len(spec.devices), "backends", spec.backends, rule)


def _check_parts(spec: ExperimentSpec) -> None:
    count, training = len(spec.devices) * spec.nodes, spec.training
    rule = f"must be a multiple of {count}: each of {count} devices takes an equal part"
    is_equal = training.batch_size % count == 0
    require(is_equal, "training.batch_size", training.batch_size, rule)
    left_over = spec.data.num_train_samples % training.batch_size
    rule = f"must be 'drop' or 'pad': {count} devices cannot share a batch of {left_over} equally"
    shares = training.last_batch != "dynamic" or left_over % count == 0
    require(shares, "training.last_batch", training.last_batch, rule)
    rule = f"must be 'drop': an epoch's last batch has {left_over} samples, not one for each "
    rule += "device, and a mean over no sample is undefined"
    fills = left_over == 0 or left_over > training.batch_size // count * (count - 1)
    require(training.last_batch != "pad" or fills, "training.last_batch", "pad", rule)


def _check_torch(spec: ExperimentSpec, compiled: Sequence[Variant]) -> None:
    """Refuses what torch does not support (`tests/runner/worker/ranks/test_support.py`)."""
    rule = "cannot be compiled with 'dp', which runs copies of the model in threads; name no "
    rule += "backend, to time it uncompiled, or choose 'ddp'"
    require(spec.parallel != "dp" or not compiled, "backends", spec.backends, rule)
    for text, variant in zip(spec.backends, compiled, strict=True):
        rule = "cannot be one graph: Dynamo cannot trace the code that gathers weights and "
        rule += "averages gradients; choose scope=blocks, or with 'ddp' "
        rule += "optimize_ddp=python_reducer"
        traces = variant.scope == "blocks" or variant.optimize_ddp == "python_reducer"
        in_one = variant.fullgraph and not traces
        require(not in_one, "backends", text, rule)
    precision = spec.training.precision
    rule = "does not work with 'fsdp', where each device would see an overflow only in its own "
    rule += "gradients; choose bf16"
    fits = spec.parallel != "fsdp" or precision != "fp16"
    require(fits, "training.precision", precision, rule)


def _check_search(spec: ExperimentSpec) -> None:
    rule = "must be 'turns' for a search: candidates take turns with the best so far"
    require(spec.schedule == "turns", "schedule", spec.schedule, rule)
    rule = "must be at least 1 for a search: the control shows which losses are correct"
    require(spec.controls > 0, "controls", spec.controls, rule)
    rule = "must not be 'spread' for a search: each candidate is compared with the best so far"
    require(spec.num_places == 1, "parallel", spec.parallel, rule)


def _check_length(spec: ExperimentSpec) -> None:
    field, value = "training.epochs", spec.training.epochs
    if spec.kind.cycles_batches:
        field, value = "speed.max_rounds", spec.speed.max_rounds
    rule = f"makes {spec.num_steps:,} steps and must make at most {MAX_STEPS:,}: "
    require(spec.num_steps <= MAX_STEPS or spec.kind.searches, field, value,
            rule + EVERY_STEP_IS_KEPT)  # fmt: skip
    batches, there = spec.speed.batches, spec.num_full_steps
    rule = f"must be at most {there}: data.num_train_samples make no more full batches"
    fits = batches <= there or not spec.kind.cycles_batches
    require(fits, "speed.batches", batches, rule)


def _check_evaluation(spec: ExperimentSpec) -> None:
    when, never = spec.evaluation.when, spec.evaluation.when == "never"
    rule = "must not be 'never' with the schedule 'plateau', which follows the held-out loss"
    follows = spec.training.scheduler == "plateau"
    require(not (never and follows), "evaluation.when", when, rule)
    rule = "must not be 'never' if evaluations stop the training early"
    stops = spec.stopping.follows_evaluation
    require(not (never and stops), "evaluation.when", when, rule)
    for name in ("splits", "predictions"):
        splits = getattr(spec.evaluation, name)
        rule = "must not name 'test' while data.num_test_samples is 0"
        missing = "test" in splits and spec.data.num_test_samples == 0
        require(not missing, f"evaluation.{name}", splits, rule)


def _check_environments(spec: ExperimentSpec) -> None:
    """Raises `InvalidSpec` for names, paths and combinations that cannot run."""
    for text in spec.environments:
        name, equals, python = text.partition("=")
        rule = "must read NAME=PATH, with a name of at most 40 letters, digits, '.', '_' and '-'"
        require(bool(equals and ENVIRONMENT_NAME.fullmatch(name)), "environments", text, rule)
        rule = "must name the Python by its full path, such as /home/me/torch211/bin/python"
        require(PurePath(python).is_absolute(), "environments", text, rule)
    rule = "must not use a name twice"
    different = len(pythons(spec.environments)) == len(spec.environments)
    require(different, "environments", spec.environments, rule)
    rule = "can be compared in the scenarios 'train' and 'speed' alone"
    fits = spec.kind.compares_runs and not spec.kind.searches
    require(fits, "environments", spec.environments, rule)
    rule = "cannot be compared by runs that are spread over devices"
    require(spec.num_places == 1, "environments", spec.environments, rule)
    rule = f"make more than {MAX_BACKENDS} runs with these backends: each is a process, and all "
    rule += "live at the same time"
    few = len(spec.environments) * len(spec.backends) <= MAX_BACKENDS
    require(few, "environments", spec.environments, rule)


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
            what = known.get(part.source, "a function in a Python file, for the task 'custom'")
            rule = (
                f"({what}) does not fit task = {spec.task!r}, which takes {', '.join(usable)}, "
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
