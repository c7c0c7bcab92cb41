"""The workload of a task: a model, samples, and metrics of the model's answers."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from breakeven.runner.errors import NotLoaded, RunnerError, WorkloadError
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.training import Metric
from breakeven.runner.worker.data.splits import IGNORE, Dataset, Split, make_split

Align = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Converts a model's logits and a batch's labels to (targets, classes) and (targets,), some of them
`IGNORE`; if labels are numbers, to two tensors of their shape."""
CLASS_METRICS: tuple[Metric, ...] = ("accuracy", "f1", "precision", "recall", "roc_auc")
"""Metrics if each sample has one class."""
TOKEN_METRICS: tuple[Metric, ...] = ("accuracy", "perplexity")
"""Metrics if each token has one of many classes."""
NUMBER_METRICS: tuple[Metric, ...] = ("mse", "mae")
"""Metrics if labels are numbers."""
MakeSamples = Callable[[int, torch.Generator], tuple[dict[str, Tensor], Tensor]]
"""Makes so many samples; returns the model's inputs by name, and the labels."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model on the CPU and its samples."""

    model: nn.Module
    """Takes the entries of a batch as keyword arguments. Returns logits, or an object with `logits`
    and, if the model computes its loss, `loss`."""
    data: Dataset
    metrics: tuple[Metric, ...]
    """Names of the metrics of this task, without the loss."""
    align: Align
    """Pairs the model's answers with labels: shifts tokens, flattens positions."""


def import_workload(experiment: ExperimentSpec) -> None:
    """Imports what `load_workload` and a training import, and loads nothing."""
    task = importlib.import_module(f"breakeven.runner.worker.tasks.{experiment.task}")
    importlib.import_module("breakeven.runner.worker.model.task_metrics")
    if hasattr(task, "import_packages"):
        task.import_packages(experiment)


def load_workload(experiment: ExperimentSpec) -> Workload:
    """Loads the workload of the experiment's task, the same for all runs; raises `NotLoaded`.

    Each task is a module of `runner.worker.tasks` with a function `load`, and `TASK`, which lists
    its models, data and metrics.
    """
    try:
        task = importlib.import_module(f"breakeven.runner.worker.tasks.{experiment.task}")
        workload: Workload = task.load(experiment)
        _check(workload, experiment)
        return workload
    except RunnerError as error:
        raise NotLoaded(str(error)) from error


def _check(workload: Workload, experiment: ExperimentSpec) -> None:
    """Raises `WorkloadError` for samples without targets, whose batches might have no loss, and for
    a metric that the task lacks."""
    for name, split in workload.data.splits.items():
        empty = (split.num_targets == 0).nonzero()
        if len(empty):
            raise WorkloadError(
                f"{len(empty)} of the {len(split)} {name} samples, the first at position "
                f"{int(empty[0])}, have nothing to learn: a text needs two tokens, and a sample "
                f"one label other than {IGNORE}. Take them out of the data"
            )
    metric, known = experiment.evaluation.metric, ("loss", *workload.metrics)
    if metric not in known:
        raise WorkloadError(
            f"evaluation.metric = {metric!r}: the task {experiment.task!r} with these labels has "
            f"{', '.join(known)}; choose one of them"
        )


def align_classes(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs logits (..., classes) with labels (...) of the same positions."""
    if logits.shape[:-1] != labels.shape or logits.shape[-1] < 2:
        raise WorkloadError(
            f"the model's logits have shape {tuple(logits.shape)}, but labels of shape "
            f"{tuple(labels.shape)} need as many, each with a value for every class"
        )
    return logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)


def align_numbers(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs one number with each label; logits may have an additional last dimension of 1."""
    answers = logits if logits.shape == labels.shape else logits.squeeze(-1)
    if answers.shape != labels.shape:
        raise WorkloadError(
            f"the model's logits have shape {tuple(logits.shape)}, but labels of shape "
            f"{tuple(labels.shape)} need one number each"
        )
    return answers, labels


def align_next_tokens(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs the logits of every token with the token after it."""
    return align_classes(logits[:, :-1], labels[:, 1:])


def random_dataset(
    experiment: ExperimentSpec, make: MakeSamples, vocabulary_size: int | None = None
) -> Dataset:
    """Makes the experiment's number of samples, the same samples for the same seed."""
    generator = torch.Generator().manual_seed(experiment.training.seed)

    def split(count: int) -> Split:
        return make_split(*make(count, generator))

    data = experiment.data
    return Dataset(
        train=split(data.num_train_samples),
        validation=split(data.num_eval_samples),
        test=split(data.num_test_samples) if data.num_test_samples else None,
        labels=(),
        vocabulary_size=vocabulary_size,
    )
