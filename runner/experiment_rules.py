"""Rules of an experiment that no part of its specification can check alone."""

import re
from typing import TYPE_CHECKING

from runner.bounds import EVERY_STEP_IS_KEPT, MAX_STEPS
from runner.tasks import check_task
from runner.validation import require
from runner.variants import Variant, parse_backend
from runner.workload_spec import RANDOM_DATA, SUITE_TASK, USER_CODE

if TYPE_CHECKING:  # the specification asks for its rules when it is made
    from runner.spec import ExperimentSpec

MAX_BACKENDS = 64


def check_experiment(spec: "ExperimentSpec") -> None:
    """Raises `InvalidSpec` for the first field whose value breaks its rule."""
    compiled = [parse_backend(text) for text in spec.backends]
    _check_names(spec, compiled)
    _check_machine(spec)
    _check_task(spec)
    _check_batches(spec, compiled)
    _check_evaluation(spec)
    for callback in spec.callbacks:
        rule = "must read path.py:Class"
        require(bool(USER_CODE.fullmatch(callback)), "callbacks", callback, rule)


def _check_names(spec: "ExperimentSpec", compiled: list[Variant]) -> None:
    require(bool(spec.name.strip()), "name", spec.name, "must not be empty")
    require(len(spec.name) <= 120, "name", spec.name, "must be at most 120 characters")
    rule = "must not name a backend twice"
    labels = {variant.label for variant in compiled}
    require(len(labels) == len(compiled), "backends", spec.backends, rule)
    rule = f"must be at most {MAX_BACKENDS}: each is a process that lives beside the others"
    require(len(compiled) <= MAX_BACKENDS, "backends", spec.backends, rule)


def _check_machine(spec: "ExperimentSpec") -> None:
    rule = "must name exactly one device, 'cpu' or 'cuda:N'"
    valid = len(spec.devices) == 1 and re.fullmatch(r"cpu|cuda:\d+", spec.devices[0])
    require(bool(valid), "devices", spec.devices, rule)
    on_cpu = spec.device == "cpu"
    precision = spec.training.precision
    rule = "needs a CUDA device; on the CPU choose float32 or bf16"
    require(not (on_cpu and precision in ("tf32", "fp16")), "training.precision", precision, rule)


def _check_task(spec: "ExperimentSpec") -> None:
    check_task(spec.task)
    is_suite_task = spec.task == SUITE_TASK
    rule = f"must be a model of a benchmark suite with the task {SUITE_TASK!r}, and only then"
    is_suite_model = spec.model.from_suite is not None
    require(is_suite_model == is_suite_task, "model.source", spec.model.source, rule)
    rule = f"must be {RANDOM_DATA!r} with the task {SUITE_TASK!r}, and only then"
    is_random = spec.data.source == RANDOM_DATA
    require(is_random == is_suite_task, "data.source", spec.data.source, rule)


def _check_batches(spec: "ExperimentSpec", compiled: list[Variant]) -> None:
    batch, samples = spec.training.batch_size, spec.data.num_train_samples
    rule = f"must not exceed data.num_train_samples ({samples}): not one batch would be full"
    require(batch <= samples, "training.batch_size", batch, rule)
    steps = spec.num_steps
    rule = f"makes {steps:,} steps and must make at most {MAX_STEPS:,}: {EVERY_STEP_IS_KEPT}"
    longest = "speed.max_rounds" if spec.scenario == "speed" else "training.epochs"
    count = spec.speed.max_rounds if spec.scenario == "speed" else spec.training.epochs
    require(steps <= MAX_STEPS, longest, count, rule)
    last_batch = spec.training.last_batch
    fixed = any(variant.backend == "cudagraphs" for variant in compiled)
    rule = "must be 'drop' or 'pad' with the backend cudagraphs: a captured graph has one shape"
    require(not (fixed and last_batch == "dynamic"), "training.last_batch", last_batch, rule)
    asked, there = spec.speed.batches, spec.num_full_steps
    rule = f"must be at most {there}: data.num_train_samples make no more full batches"
    require(spec.scenario != "speed" or asked <= there, "speed.batches", asked, rule)


def _check_evaluation(spec: "ExperimentSpec") -> None:
    evaluation = spec.evaluation
    blind = evaluation.when == "never"
    plateau = spec.training.scheduler == "plateau"
    rule = "must not be 'never' with the schedule 'plateau', which follows the held-out loss"
    require(not (blind and plateau), "evaluation.when", evaluation.when, rule)
    rule = "must not be 'never' where training stops by it"
    stops = spec.stopping.follows_evaluation
    require(not (blind and stops), "evaluation.when", evaluation.when, rule)
    for name in ("splits", "predictions"):
        splits = getattr(evaluation, name)
        rule = "must not name 'test' while data.num_test_samples is 0"
        missing = "test" in splits and spec.data.num_test_samples == 0
        require(not missing, f"evaluation.{name}", splits, rule)


def check_request(spec: "ExperimentSpec") -> None:
    """Raises `InvalidSpec` for an experiment that could say nothing.

    Only what is asked for anew is held to this: one that was run is read and shown all the same.
    """
    if spec.scenario != "cache":
        return
    steps, compiling = spec.cache.steps, first_turn_steps(spec)
    rule = (
        f"must be at least {compiling + 1}: the first turn, of {compiling} steps here, is the one "
        "that compiles, and only steps after it tell what a step takes without compiling. Ask for "
        "more steps, or for a smaller block_steps"
    )
    require(steps > compiling, "cache.steps", steps, rule)


def first_turn_steps(spec: "ExperimentSpec") -> int:
    """Steps of a run's first turn, unless it ends before: a turn ends where an epoch does."""
    often = spec.checkpoints.every if spec.checkpoints.unit == "steps" else None
    return min(spec.block_steps, spec.steps_per_epoch, often or spec.block_steps)
