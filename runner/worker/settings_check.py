"""Checks whether torch accepts the settings of an experiment.

Reads a specification as JSON; prints, as JSON, the field that torch refuses and why, or `{}`. The
run's own functions try the settings on a model of one layer. Accepted settings can fail in the run
only because of the real model or its labels.
"""

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

if __name__ == "__main__":
    gc.disable()  # which would take a third of the time: what torch loads remains in use

import torch
import torch._inductor.config
from torch import nn

from breakeven.runner.errors import RunnerError, WorkloadError
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.training import MODEL_LOSS, Loss, TrainingSpec
from breakeven.runner.specs.values import nearest
from breakeven.runner.worker.compiler.compile_with_backend import leave_alone, make_compiler
from breakeven.runner.worker.device.device_kinds import device_class
from breakeven.runner.worker.model.losses import make_criterion, try_criterion
from breakeven.runner.worker.process_end import leave_in_time
from breakeven.runner.worker.step.optimizers import LearningRate, make_optimizers
from breakeven.runner.worker.step.stepping import MixedPrecision

CPU = torch.device("cpu")
NICENESS = 10
USUAL_CLASSES = 4
MOST_CHARACTERS = 400
Check = Callable[[], object]


def main() -> None:
    os.nice(NICENESS)  # other processes may be timing trainings
    torch.set_num_threads(1)
    spec = ExperimentSpec.from_json(sys.stdin.read())
    sys.stdout.write(json.dumps(first_refused(spec)) + "\n")


def first_refused(spec: ExperimentSpec) -> dict[str, Any]:
    """Field, value and rule of the first setting that torch refuses; empty if there is none."""
    for field, value, check in _checks(spec):
        try:
            check()
        except Exception as error:  # torch raises many kinds for settings
            message = str(getattr(error, "rule", error)) or type(error).__name__
            before, _, reason = message.partition(" do not fit ")
            rule = f"do not fit {reason}" if reason else before
            if not isinstance(error, RunnerError):
                rule = f"torch refuses it: {rule}"
            return {"field": field, "value": value, "rule": rule[:MOST_CHARACTERS]}
    return {}


def _checks(spec: ExperimentSpec) -> Iterator[tuple[str, Any, Check]]:
    """Every setting that torch checks: its field, its value, and a function that tries it."""
    training = spec.training
    # The optimizers of a run on a GPU, but on the CPU: this process leaves GPUs to trainings.
    capturable = device_class(spec.device).captures_graphs
    ungrouped = replace(training, parameter_groups=())
    yield (
        "training.optimizer_options",
        training.optimizer_options,
        partial(_try_optimizer, ungrouped, capturable),
    )
    for text in training.parameter_groups:
        everything = "*:" + text.partition(":")[2]  # this layer's parameters have other names
        grouped = replace(training, parameter_groups=(everything,))
        yield "training.parameter_groups", text, partial(_try_optimizer, grouped, capturable)
    yield (
        "training.scheduler_options",
        training.scheduler_options,
        partial(_try_schedule, ungrouped, capturable, spec.num_steps),
    )
    yield (
        "training.scaler_options",
        training.scaler_options,
        partial(MixedPrecision, training, CPU),
    )
    for text, loss in zip(training.losses, training.loss_terms, strict=True):
        if loss.name != MODEL_LOSS:
            yield "training.losses", text, partial(_try_loss, loss, spec.task)
    for text in spec.backends:
        yield "backends", text, partial(_try_backend, text)


def _try_optimizer(training: TrainingSpec, capturable: bool) -> None:
    model = nn.Linear(2, 2)
    optimizers = make_optimizers(training, model, CPU, capturable=capturable)
    model(torch.ones(1, 2)).sum().backward()
    for optimizer in () if capturable else optimizers:
        optimizer.step()


def _try_schedule(training: TrainingSpec, capturable: bool, num_steps: int) -> None:
    optimizers = make_optimizers(training, nn.Linear(2, 2), CPU, capturable=capturable)
    rate = LearningRate(training, num_steps, optimizers)
    for _ in range(min(2, num_steps)):
        rate.step_done()
    rate.evaluated(1.0)


def _try_loss(loss: Loss, task: str) -> None:
    """Uses as many classes as weights, if any; labels of a custom task may be numbers."""
    criterion = make_criterion(loss, nn.Linear(2, 2))
    if task != "custom":
        weights = [len(value) for value in loss.options.values() if isinstance(value, tuple)]
        logits = torch.zeros(USUAL_CLASSES + 1, (weights or [USUAL_CLASSES])[0])
        try_criterion(criterion, loss, logits, torch.zeros(len(logits), dtype=torch.int64))


def _try_backend(text: str) -> None:
    """Loads the backend and wraps a function: torch reads the options, but compiles nothing."""
    arm = parse_backend(text)
    known = torch._inductor.config.get_config_copy()
    for name in arm.options:
        if name not in known:
            raise WorkloadError(f"Inductor has no configuration {name!r}{nearest(name, known)}")
    make_compiler(arm)(leave_alone)


if __name__ == "__main__":
    main()
    leave_in_time(0)
