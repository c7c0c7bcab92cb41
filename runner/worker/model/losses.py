"""The objective of training: the model's own loss, criteria of `torch.nn`, or a weighted sum."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.loss import _Loss

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.training import MODEL_LOSS, Loss, TrainingSpec
from breakeven.runner.specs.values import nearest
from breakeven.runner.worker.data.splits import IGNORE
from breakeven.runner.worker.model.loaded_workload import Workload

Term = Callable[[Any, Tensor], Tensor]
"""Computes a 0-dimensional loss from a model's output and a batch's labels."""


class Objective:
    """The weighted sum of losses of a batch; each loss is a mean over the batch's targets.

    Construct it when the workload's model is on its device. Raises `WorkloadError` for a criterion
    that torch.nn does not have or that does not fit the labels.
    """

    def __init__(self, training: TrainingSpec, workload: Workload) -> None:
        losses = training.loss_terms
        self.names = tuple(loss.name for loss in losses)
        """Names of the terms, in their order."""
        self._weights = tuple(loss.weight for loss in losses)
        self._terms = tuple(_make_term(loss, training, workload) for loss in losses)

    def __call__(self, output: Any, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """The total; with several terms also the terms before weighting, (terms,)."""
        if len(self._terms) == 1:
            # The usual case needs no list; with weight 1 the loss does not change.
            loss = self._terms[0](output, labels)
            return (loss if self._weights[0] == 1 else self._weights[0] * loss), None
        terms = [term(output, labels) for term in self._terms]
        weighed = [weight * term for weight, term in zip(self._weights, terms, strict=True)]
        parts = torch.stack([term.detach().float() for term in terms])
        return sum(weighed[1:], start=weighed[0]), parts


def find_logits(output: Any) -> Tensor:
    """The logits in an output: an object, a mapping or the tensor itself."""
    logits: Tensor | None = output if isinstance(output, Tensor) else _entry(output, "logits")
    if logits is None:
        raise WorkloadError(
            f"the model returned {type(output).__name__}; it must return a tensor of logits, or "
            "an object or a dict with `logits`"
        )
    return logits


def _entry(output: Any, name: str) -> Any:
    value = getattr(output, name, None)
    return output.get(name) if value is None and isinstance(output, Mapping) else value


def _make_term(loss: Loss, training: TrainingSpec, workload: Workload) -> Term:
    numbers = workload.data.train.labels.is_floating_point()
    if loss.name == MODEL_LOSS:
        example = "MSELoss" if numbers else "CrossEntropyLoss"

        def own(output: Any, labels: Tensor) -> Tensor:
            value = _entry(output, "loss")
            if value is None:
                raise WorkloadError(
                    "the model returns no loss of its own (an entry `loss` of its output); name a "
                    f"criterion of torch.nn instead, as in training.losses = ({example!r},)"
                )
            assert isinstance(value, Tensor)
            return value

        return own

    criterion = make_criterion(loss, workload.model)
    _try_out(criterion, loss, training, workload)
    align = workload.align

    def apply(output: Any, labels: Tensor) -> Tensor:
        value: Tensor = criterion(*align(find_logits(output), labels))
        return value

    return apply


def make_criterion(loss: Loss, model: nn.Module) -> nn.Module:
    """The criterion on the model's device and in its precision, which class weights need.
    Raises `WorkloadError` for a criterion or options that torch.nn does not have."""
    known = [name for name, kind in vars(nn).items() if _is_criterion(kind)]
    if loss.name not in known:
        hint = nearest(loss.name, known) or f"; it has {', '.join(known)}"
        raise WorkloadError(
            f"training.losses names {loss.name!r}, which is no criterion of torch.nn for logits "
            f"and labels{hint}"
        )
    options: dict[str, Any] = {
        name: torch.tensor(value, dtype=torch.float32) if isinstance(value, tuple) else value
        for name, value in loss.options.items()
    }
    if options.get("reduction", "mean") != "mean":
        raise WorkloadError(
            f"training.losses: {loss.name}:reduction={options['reduction']} cannot be used: every "
            "loss must be the mean over its targets, so that micro-batches can be weighed"
        )
    try:
        criterion: nn.Module = getattr(nn, loss.name)(**options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise WorkloadError(
            f"training.losses: {loss.options!r} do not fit torch.nn.{loss.name}: {error}"
        ) from error
    return criterion.to(*_place(model))


def _place(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """The model's device, and the type of its logits: float32, or double for double weights."""
    parameter = next(model.parameters(), torch.zeros(0))
    return parameter.device, torch.promote_types(parameter.dtype, torch.float32)


def _is_criterion(kind: Any) -> bool:
    """Whether `kind` is a loss class that compares one prediction with one target."""
    if not (isinstance(kind, type) and issubclass(kind, _Loss)):
        return False
    return len(inspect.signature(kind.forward).parameters) == 3  # with `self`


def _try_out(criterion: nn.Module, loss: Loss, training: TrainingSpec, workload: Workload) -> None:
    """Raises `WorkloadError` unless the criterion takes logits and labels of this workload."""
    data = workload.data
    device, dtype = _place(workload.model)
    if data.train.labels.is_floating_point():
        labels = data.train.labels[:2].to(device, dtype)
        logits = torch.zeros_like(labels)
    else:
        ignores = training.last_batch == "pad" or bool((data.train.labels == IGNORE).any())
        num_classes = len(data.labels) or data.vocabulary_size or 2
        # Different numbers of labels and classes, so that torch cannot broadcast one to the other.
        labels = torch.zeros(3 if num_classes == 2 else 2, dtype=torch.int64, device=device)
        if ignores:
            labels[-1] = IGNORE
        logits = torch.zeros(len(labels), num_classes, device=device, dtype=dtype)
    try_criterion(criterion, loss, logits, labels)


def try_criterion(criterion: nn.Module, loss: Loss, logits: Tensor, labels: Tensor) -> None:
    """Raises `WorkloadError` unless the criterion takes such logits and labels."""
    try:
        criterion(logits, labels)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        kind = "numbers" if labels.is_floating_point() else "whole-number labels"
        if IGNORE in labels:
            kind += f", some of them {IGNORE} for what does not count"
        example = "MSELoss or SmoothL1Loss" if labels.is_floating_point() else "CrossEntropyLoss"
        raise WorkloadError(
            f"training.losses: torch.nn.{loss.name} cannot compare the model's answers with the "
            f"labels, which are {kind}: {error}. {example} can"
        ) from error
