"""Rules that concern several parts of an experiment's specification.

Each function raises `InvalidSpec` for the first field whose value breaks its rule.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.fields import EVERY_STEP_IS_KEPT, MAX_STEPS, require
from breakeven.runner.specs.scenarios import Scenario
from breakeven.runner.specs.training import (
    NO_OPTIMIZER,
    EvaluationSpec,
    StoppingSpec,
    TrainingSpec,
)
from breakeven.runner.specs.variants import Variant, parse_backend
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
    Task,
    check_task,
)

MAX_BACKENDS = 64
MAX_CANDIDATES = 1000


def check_names(
    name: str, scenario: Scenario, backends: Sequence[str], compiled: Sequence[Variant]
) -> None:
    require(bool(name.strip()), "name", name, "must not be empty")
    require(len(name) <= 120, "name", name, "must be at most 120 characters")
    rule = "must not name a backend twice"
    labels = {variant.label for variant in compiled}
    require(len(labels) == len(compiled), "backends", backends, rule)
    if scenario.searches:
        rule = f"must be at most {MAX_CANDIDATES}: a search tries a few of them"
        require(len(compiled) <= MAX_CANDIDATES, "backends", backends, rule)
        return
    rule = f"must be at most {MAX_BACKENDS}: each is a process, and all are alive at the same time"
    require(len(compiled) <= MAX_BACKENDS, "backends", backends, rule)


def check_precision(device: str, training: TrainingSpec) -> None:
    precision = training.precision
    rule = "needs a CUDA device; on the CPU and on MPS choose float32 or bf16"
    fits = device.startswith("cuda") or precision not in ("tf32", "fp16")
    require(fits, "training.precision", precision, rule)


def check_optimizer(scenario: Scenario, training: TrainingSpec) -> None:
    rule = (
        f"must not be {NO_OPTIMIZER!r} for a whole training, which would learn nothing; choose an "
        "optimizer, or the scenario speed or accuracy"
    )
    learns = training.optimizer != NO_OPTIMIZER or not scenario.trains_fully
    require(learns, "training.optimizer", training.optimizer, rule)


def check_mps(scenario: Scenario, backends: Sequence[str], compiled: Sequence[Variant]) -> None:
    """Refuses what Apple's devices do not support."""
    rule = "needs double precision, which MPS does not have; choose another device"
    require(not scenario.compares_tensors, "scenario", scenario.name, rule)
    rule = "must not capture CUDA graphs, which MPS does not have"
    captures = any(variant.captures_cuda_graphs for variant in compiled)
    require(not captures, "backends", backends, rule)


def check_workload(task: str, model: ModelSpec, data: DataSpec) -> None:
    check_task(task)
    is_suite_task = task == SUITE_TASK
    rule = f"must be a model of a benchmark suite with the task {SUITE_TASK!r}, and only then"
    is_suite_model = model.from_suite is not None
    require(is_suite_model == is_suite_task, "model.source", model.source, rule)
    is_script_task = task == SCRIPT_TASK
    rule = f"must be {SCRIPT_PREFIX}path.py with the task {SCRIPT_TASK!r}, and only then"
    require((model.script is not None) == is_script_task, "model.source", model.source, rule)
    rule = "must name the script by its full path, such as /home/me/train.py"
    is_full = model.script is None or Path(model.script).is_absolute()
    require(is_full, "model.source", model.source, rule)
    rule = f"must be {SCRIPT_DATA!r} with the task {SCRIPT_TASK!r}, and only then"
    is_of_script = data.source == SCRIPT_DATA
    require(is_of_script == is_script_task, "data.source", data.source, rule)
    rule = f"must be {RANDOM_DATA!r} with the task {SUITE_TASK!r}, and only then"
    is_random = data.source == RANDOM_DATA
    require(is_random == is_suite_task, "data.source", data.source, rule)


def check_batches(training: TrainingSpec, data: DataSpec, compiled: Sequence[Variant]) -> None:
    batch, samples = training.batch_size, data.num_train_samples
    rule = f"must not exceed data.num_train_samples ({samples}): no batch would be full"
    require(batch <= samples, "training.batch_size", batch, rule)
    last_batch = training.last_batch
    fixed = any(variant.backend == "cudagraphs" for variant in compiled)
    rule = "must be 'drop' or 'pad' with the backend cudagraphs: a captured graph has one shape"
    require(not (fixed and last_batch == "dynamic"), "training.last_batch", last_batch, rule)


class Sized(Protocol):
    """The fields of an experiment that decide whether its backends may have larger batches."""

    @property
    def kind(self) -> Scenario: ...
    @property
    def is_script(self) -> bool: ...
    @property
    def backends(self) -> tuple[str, ...]: ...
    @property
    def devices(self) -> tuple[str, ...]: ...
    @property
    def num_full_steps(self) -> int: ...


def check_batch_times(spec: Sized, compiled: Sequence[Variant]) -> None:
    times = max((variant.batch_times for variant in compiled), default=1)
    rule = "must not have batch_times except for a training or a search on one device"
    fits = (spec.kind.trains_fully or spec.kind.searches) and len(spec.devices) == 1
    require(times == 1 or fits, "backends", spec.backends, rule)
    rule = "must not have batch_times for a script, which decides its batch size"
    require(times == 1 or not spec.is_script, "backends", spec.backends, rule)
    most = spec.num_full_steps
    rule = f"must have batch_times of at most {most}: the training samples fill no larger batch"
    require(times == 1 or times <= most, "backends", spec.backends, rule)


def check_length(num_steps: int, field: str, value: int) -> None:
    """`field` with `value` determines the number of steps."""
    rule = f"makes {num_steps:,} steps and must make at most {MAX_STEPS:,}: {EVERY_STEP_IS_KEPT}"
    require(num_steps <= MAX_STEPS, field, value, rule)


def check_speed_batches(batches: int, there: int) -> None:
    """`there`: the number of full batches in the samples."""
    rule = f"must be at most {there}: data.num_train_samples make no more full batches"
    require(batches <= there, "speed.batches", batches, rule)


class Searched(Protocol):
    """The fields of an experiment that decide whether its candidates can take turns."""

    @property
    def num_places(self) -> int: ...
    @property
    def schedule(self) -> str: ...
    @property
    def controls(self) -> int: ...
    @property
    def parallel(self) -> str: ...


def check_search(spec: Searched) -> None:
    rule = "must be 'turns' for a search: candidates take turns with the best so far"
    require(spec.schedule == "turns", "schedule", spec.schedule, rule)
    rule = "must be at least 1 for a search: the control shows which losses are correct"
    require(spec.controls > 0, "controls", spec.controls, rule)
    rule = "must not be 'spread' for a search: each candidate is compared with the best so far"
    require(spec.num_places == 1, "parallel", spec.parallel, rule)


class Investigated(Protocol):
    """What of an experiment decides whether trials can find the cause of a fault."""

    @property
    def investigates(self) -> str | None: ...
    @property
    def is_script(self) -> bool: ...
    @property
    def devices(self) -> tuple[str, ...]: ...
    @property
    def nodes(self) -> int: ...
    @property
    def model(self) -> ModelSpec: ...
    @property
    def backends(self) -> tuple[str, ...]: ...


def check_investigation(spec: Investigated) -> None:
    rule = "must name the run to investigate; `breakeven investigate EXPERIMENT.LABEL` does so"
    require(spec.investigates is not None, "investigates", spec.investigates, rule)
    rule = "must name one device for an investigation, whose trials are single processes"
    require(len(spec.devices) == spec.nodes == 1, "devices", spec.devices, rule)
    compilers = [text for text in spec.backends if parse_backend(text).backend is not None]
    rule = "must be exactly one backend for an investigation, and one with a compiler"
    require(len(spec.backends) == len(compilers) == 1, "backends", spec.backends, rule)


def check_evaluation(
    evaluation: EvaluationSpec, training: TrainingSpec, stopping: StoppingSpec, data: DataSpec
) -> None:
    blind = evaluation.when == "never"
    plateau = training.scheduler == "plateau"
    rule = "must not be 'never' with the schedule 'plateau', which follows the held-out loss"
    require(not (blind and plateau), "evaluation.when", evaluation.when, rule)
    rule = "must not be 'never' if evaluations stop the training early"
    stops = stopping.follows_evaluation
    require(not (blind and stops), "evaluation.when", evaluation.when, rule)
    for name in ("splits", "predictions"):
        splits = getattr(evaluation, name)
        rule = "must not name 'test' while data.num_test_samples is 0"
        missing = "test" in splits and data.num_test_samples == 0
        require(not missing, f"evaluation.{name}", splits, rule)


def check_callbacks(callbacks: Sequence[str]) -> None:
    for callback in callbacks:
        rule = "must read path.py:Class"
        require(bool(USER_CODE.fullmatch(callback)), "callbacks", callback, rule)


def check_script(scenario: Scenario, backends: Sequence[str], compiled: Sequence[Variant]) -> None:
    """Refuses settings that do not work for scripts."""
    rule = "must be 'train' or 'tune' for a script: Breakeven cannot run a single step of a script"
    fits = scenario.trains_fully or scenario.compares_causes or scenario.searches
    require(fits, "scenario", scenario.name, rule)
    for text, variant in zip(backends, compiled, strict=True):
        rule = "cannot have a scope for a script, which decides what is compiled. Leave scope out"
        fits = variant.scope in ("iteration", "blocks")
        require(fits, "backends", text, rule)


class Tasked(Protocol):
    """The fields of an experiment that must fit its task."""

    @property
    def task(self) -> str: ...
    @property
    def model(self) -> ModelSpec: ...
    @property
    def data(self) -> DataSpec: ...
    @property
    def evaluation(self) -> EvaluationSpec: ...


def check_task_fits(spec: Tasked, task: Task) -> None:
    """Raises `InvalidSpec` for a source or a metric that the task cannot use."""
    if task.samples == "functions":
        _check_functions(spec)
    elif task.samples != "random":  # benchmark suites: the specification's own rules
        check_sources(spec, task)
    metric, known = spec.evaluation.metric, ("loss", *task.metrics)
    if task.metrics and metric not in known:
        rule = f"is not measured by task = {spec.task!r}; choose {' or '.join(known)}"
        raise InvalidSpec("evaluation.metric", metric, rule)


def check_sources(spec: Tasked, task: Task) -> None:
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


def _check_functions(spec: Tasked) -> None:
    for field, part in (("model.source", spec.model), ("data.source", spec.data)):
        if not part.is_user_code:
            rule = (
                f"does not fit task = {spec.task!r}, which takes functions in Python files, "
                "path.py:function. Name one, or choose another task"
            )
            raise InvalidSpec(field, part.source, rule)
