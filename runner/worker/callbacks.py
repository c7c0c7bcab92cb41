"""Hooks into the training loop, for users' callbacks and for Breakeven's own, which stop a run
early or record gradients.

A callback is a class with any of the methods of `Callback`. The loop calls its own callbacks first,
then the experiment's `callbacks` in their order. Their work inside a step is timed with the step.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from breakeven.runner.specs.experiment import EvaluationSpec, StoppingSpec
from breakeven.runner.worker.context import full_tensor
from breakeven.runner.worker.event_log import EventLog

Hook = Literal[
    "train_begin",
    "train_end",
    "epoch_begin",
    "epoch_end",
    "batch_begin",
    "batch_end",
    "after_backward",
    "after_optimizer_step",
    "evaluation_begin",
    "evaluation_end",
    "block_end",
]


OwnValue = tuple[int, str, float | Tensor]
"""A recorded number: steps done, name, value."""


@dataclass
class TrainingState:
    """The state of training, for callbacks. Reading it costs nothing; `loss.item()` waits for the
    device."""

    model: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    step: int = 0
    """Optimizer steps done so far."""
    epoch: int = 0
    """Number of the epoch, from 0."""
    loss: Tensor | None = None
    """Loss of the last step, 0-dimensional, on the device."""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    """Loss and metrics of the last evaluation, by name, on its first split."""
    scores_step: int | None = None
    """Steps done at that evaluation."""
    stop_reason: str | None = None
    values: list[OwnValue] = field(default_factory=list)
    """Numbers recorded since the last block."""

    def stop(self, reason: str) -> None:
        """Ends training after the current step; `reason` is a sentence for the record."""
        self.stop_reason = self.stop_reason or reason

    def record(self, name: str, value: float | Tensor) -> None:
        """Records a number at the current step, for a chart on the run's page. A 0-dimensional
        tensor may stay on the device: it is read when the block is over."""
        self.values.append((self.step, name, value))


class Callback:
    """Base of callbacks; every method is optional and does nothing here.

    `batch_begin` and `batch_end` surround an optimizer step. `after_backward` sees the gradients of
    all its micro-batches, before clipping; `after_optimizer_step` sees the new weights. With either
    of these two, the optimizer is compiled apart from forward and backward. `block_end` follows a
    block and its evaluation: slow work belongs there, since no clock runs.
    """

    def train_begin(self, state: TrainingState) -> None: ...

    def train_end(self, state: TrainingState) -> None: ...

    def epoch_begin(self, state: TrainingState) -> None: ...

    def epoch_end(self, state: TrainingState) -> None: ...

    def batch_begin(self, state: TrainingState) -> None: ...

    def batch_end(self, state: TrainingState) -> None: ...

    def after_backward(self, state: TrainingState) -> None: ...

    def after_optimizer_step(self, state: TrainingState) -> None: ...

    def evaluation_begin(self, state: TrainingState) -> None: ...

    def evaluation_end(self, state: TrainingState) -> None: ...

    def block_end(self, state: TrainingState) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        """The callback's part of a checkpoint: numbers, texts, tensors, lists and dicts."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state that `state_dict` returned."""


class Hooks:
    """Calls the methods that the callbacks define, and no others: an unused hook costs nothing."""

    def __init__(self, callbacks: Sequence[Any], state: TrainingState) -> None:
        self.callbacks = callbacks
        self._state = state
        self._methods: dict[str, list[Callable[[TrainingState], None]]] = {
            hook: [getattr(callback, hook) for callback in callbacks if _defines(callback, hook)]
            for hook in get_args(Hook)
        }

    def call(self, hook: Hook) -> None:
        for method in self._methods[hook]:
            method(self._state)

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Calls no callbacks, during steps outside of the training."""
        methods, self._methods = self._methods, {hook: [] for hook in self._methods}
        try:
            yield
        finally:
            self._methods = methods

    @property
    def between_backward_and_update(self) -> bool:
        """Whether a callback is called between backward and the end of a step."""
        return bool(self._methods["after_backward"] or self._methods["after_optimizer_step"])

    def state_dict(self) -> list[dict[str, Any]]:
        return [
            callback.state_dict() if _defines(callback, "state_dict") else {}
            for callback in self.callbacks
        ]

    def load_state_dict(self, states: Sequence[dict[str, Any]]) -> None:
        for callback, state in zip(self.callbacks, states, strict=True):
            if _defines(callback, "load_state_dict"):
                callback.load_state_dict(state)


def _defines(callback: Any, method: str) -> bool:
    own = getattr(type(callback), method, None)
    return own is not None and own is not getattr(Callback, method, None)


STATISTICS = ("norm", "mean", "deviation", "largest", "zeros")


class StopOnNonfinite(Callback):
    """Ends training if the loss of a step is NaN or infinite. Each step waits for the device."""

    def batch_end(self, state: TrainingState) -> None:
        assert state.loss is not None
        if not torch.isfinite(state.loss):
            state.stop(f"the loss is {state.loss.item()}")


class StopEarly(Callback):
    """Ends training when the metric is good enough or has not improved for a while."""

    def __init__(self, stopping: StoppingSpec, evaluation: EvaluationSpec) -> None:
        self._stopping = stopping
        self._metric = evaluation.metric
        self._sign = -1.0 if evaluation.lower_is_better else 1.0
        self._best = -math.inf
        self._num_worse = 0

    def evaluation_end(self, state: TrainingState) -> None:
        value = state.scores.get(self._metric)
        # An undefined value is no improvement.
        goodness = -math.inf if value is None or math.isnan(value) else self._sign * value
        better = goodness > self._best + self._stopping.min_delta
        self._num_worse = 0 if better else self._num_worse + 1
        self._best = goodness if better else self._best
        threshold, patience = self._stopping.threshold, self._stopping.patience
        if threshold is not None and goodness >= self._sign * threshold:
            state.stop(f"{self._metric} {value:.6g} has reached the threshold {threshold:g}")
        elif patience is not None and self._num_worse >= patience:
            best = self._sign * self._best
            state.stop(f"{self._metric} was not better than {best:.6g} for {patience} evaluations")

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best, "num_worse": self._num_worse}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._best, self._num_worse = state["best"], state["num_worse"]


class GradientStatistics(Callback):
    """Records norm, mean, standard deviation, largest size and share of zeros of gradients.

    They are computed on the device every `every` steps, before clipping, and read when the block is
    over. With fp16 they are divided by the scale of the loss.
    """

    def __init__(self, every: int, scaler: torch.amp.GradScaler, log: EventLog) -> None:
        self._every = every
        self._scaler = scaler
        self._log = log
        self._taken: list[tuple[int, list[str], Tensor]] = []

    @torch.no_grad()
    def after_backward(self, state: TrainingState) -> None:
        if state.step % self._every:
            return
        # A parameter without a gradient did not affect the loss; it is left out.
        named = [(n, p.grad) for n, p in state.model.named_parameters() if p.grad is not None]
        scale = self._scaler.get_scale() if self._scaler.is_enabled() else 1.0
        rows = torch.stack([_statistics(full_tensor(grad).float() / scale) for _, grad in named])
        self._taken.append((state.step, [name for name, _ in named], rows))

    def block_end(self, state: TrainingState) -> None:
        for step, names, rows in self._taken:
            tensors = [
                {"name": name, **dict(zip(STATISTICS, row, strict=True))}
                for name, row in zip(names, rows.tolist(), strict=True)
            ]
            self._log.append("gradient_statistics", step=step, tensors=tensors)
        self._taken.clear()


def _statistics(gradient: Tensor) -> Tensor:
    zeros = (gradient == 0).float().mean()
    largest = gradient.abs().max()
    deviation = gradient.std(correction=0)
    return torch.stack([gradient.norm(), gradient.mean(), deviation, largest, zeros])
