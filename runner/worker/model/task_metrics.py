"""Metrics of a model's answers over all batches of a split, with torchmetrics."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from breakeven.runner.worker.context import ALONE, RankGroup
from breakeven.runner.worker.data.splits import IGNORE
from breakeven.runner.worker.model.loaded_workload import Workload


@contextmanager
def _empty_module(name: str, **content: Any) -> Iterator[None]:
    """Provides a module with only this content, unless the real one is loaded."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = ModuleType(name)
    sys.modules[name].__dict__.update(content)
    try:
        yield
    finally:
        del sys.modules[name]


# Torchmetrics imports one old name from it, for an audio metric. Loading the real module would take
# a seventh of the processor time for a run's imports.
with _empty_module("scipy.signal", hamming=None):
    import torchmetrics
    from torchmetrics import classification, regression, text

# Argument checks would make every update wait for the device.
MICRO: dict[str, Any] = {"average": "micro", "validate_args": False}
MACRO: dict[str, Any] = {"average": "macro", "validate_args": False}
CONSTRUCTORS: dict[str, Callable[[int], torchmetrics.Metric]] = {
    "accuracy": lambda num_classes: classification.MulticlassStatScores(num_classes, **MICRO),
    "f1": lambda num_classes: classification.MulticlassF1Score(num_classes, **MACRO),
    "precision": lambda num_classes: classification.MulticlassPrecision(num_classes, **MACRO),
    "recall": lambda num_classes: classification.MulticlassRecall(num_classes, **MACRO),
    "roc_auc": lambda num_classes: classification.MulticlassAUROC(num_classes, **MACRO),
    "perplexity": lambda num_classes: text.Perplexity(),
    "mse": lambda num_classes: regression.MeanSquaredError(),
    "mae": lambda num_classes: regression.MeanAbsoluteError(),
}


class Scores:
    """The metrics of a workload's task over all answers so far.

    `accuracy` is the share of right answers. `f1`, `precision` and `recall` are means over the
    classes that occur or were predicted. `roc_auc` is the mean over classes, each against the rest,
    with the softmax of the logits, exact instead of binned.
    """

    def __init__(self, workload: Workload, device: torch.device, group: RankGroup = ALONE) -> None:
        """Each rank of `group` has a part of the answers, which torchmetrics gathers."""
        self._group = group
        self._num_targets = 0
        self._names = workload.metrics
        self._align = workload.align
        self._device = device
        self._metrics: dict[str, torchmetrics.Metric] = {}

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Adds a batch's answers; targets that are `IGNORE` do not count."""
        answers, targets = self._align(logits, labels)
        if not targets.is_floating_point():
            counted = (targets != IGNORE).nonzero().squeeze(1)
            answers, targets = answers[counted], targets[counted]
        if not self._metrics:
            # Logits define the number of classes, since models round vocabularies up.
            num_classes = answers.shape[-1]
            self._metrics = {
                name: CONSTRUCTORS[name](num_classes).to(self._device) for name in self._names
            }
        self._num_targets += len(targets)
        answers = answers.float()
        for name, metric in self._metrics.items():
            # For roc_auc, a rank without answers needs an empty list, which ranks then gather.
            if len(targets) == 0 and name != "roc_auc":
                continue
            match name:
                case "roc_auc":
                    metric.update(answers.softmax(-1), targets)
                case "perplexity":
                    metric.update(answers.unsqueeze(0), targets.unsqueeze(0))
                case _:
                    metric.update(answers, targets)

    def compute(self) -> dict[str, float | None]:
        """Value of each metric; None if undefined, as without any answer."""
        answered = sum(self._group.gather(self._num_targets)) > 0
        return {
            name: _value(name, self._metrics[name], self._group) if answered else None
            for name in self._names
        }


def _value(name: str, metric: torchmetrics.Metric, group: RankGroup) -> float | None:
    if name == "accuracy":
        # Divided here, because torchmetrics would divide in single precision.
        num_right, *_, num_targets = metric.compute().tolist()
        return float(num_right / num_targets)
    if name == "roc_auc":
        assert isinstance(metric, classification.MulticlassAUROC)
        classes = torch.unique(torch.cat(metric.target)).tolist() if metric.target else []
        if len(set().union(*group.gather(classes))) < metric.num_classes:
            return None
    return float(metric.compute())
