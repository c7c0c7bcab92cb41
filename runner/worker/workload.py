"""What a task hands to the training loop: a model, samples, and how to judge its answers."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from runner.spec import ExperimentSpec
from runner.training_spec import Metric
from runner.worker.data import Dataset

Align = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From a model's logits and a batch's labels to (targets, classes) and (targets,)."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model on the CPU and the samples it trains on."""

    model: nn.Module
    """Called with the entries of a batch as keyword arguments. Returns logits, or an object with
    `logits` and, where the model knows its loss, `loss`."""
    data: Dataset
    metrics: tuple[Metric, ...]
    """Names of the metrics of this task, beside the loss."""
    align: Align
    """Pairs what the model said with what was asked: shifts tokens, flattens positions."""


def load_workload(experiment: ExperimentSpec) -> Workload:
    """The workload of the experiment's task; raises `WorkloadError` for one that cannot be had.

    Each task is a module of `runner.worker.tasks` with a function `load`.
    """
    task = importlib.import_module(f"runner.worker.tasks.{experiment.task}")
    workload: Workload = task.load(experiment)
    return workload
