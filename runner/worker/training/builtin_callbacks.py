"""The callbacks of a run, and Breakeven's own, which stop it early or record gradients."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import EvaluationSpec, StoppingSpec
from breakeven.runner.specs.training import SplitName
from breakeven.runner.worker.callbacks import Callback, TrainingState
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.data.splits import Split
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.group import full_tensor
from breakeven.runner.worker.step.inference import Inference
from breakeven.runner.worker.training.checkpoints import Checkpoints
from breakeven.runner.worker.training.evaluation import Predictions
from breakeven.runner.worker.user_code import load_object

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


def make_callbacks(
    context: RunContext,
    scaler: torch.amp.GradScaler,
    inference: Inference,
    splits: Mapping[SplitName, Split],
) -> tuple[list[Any], Checkpoints | None]:
    """The callbacks of one run in the order of their calls, and the callback that writes
    checkpoints. A run that adds rounds needs none: it has written all their records."""
    if context.adds_rounds:
        return [], None
    experiment = context.work
    every = experiment.training.gradient_statistics_every
    callbacks: list[Any] = []
    if every is not None:
        callbacks.append(GradientStatistics(every, scaler, context.log))
    if experiment.stopping.nonfinite:
        callbacks.append(StopOnNonfinite())
    if experiment.stopping.follows_evaluation:
        callbacks.append(StopEarly(experiment.stopping, experiment.evaluation))
    if experiment.evaluation.predictions:
        callbacks.append(Predictions(context, inference, splits))
    callbacks += [_make(source) for source in experiment.callbacks]
    if experiment.checkpoints.every is None:
        return callbacks, None
    # Last, so that a checkpoint holds the final states of the other callbacks.
    checkpoints = Checkpoints(context)
    return [*callbacks, checkpoints], checkpoints


def _make(source: str) -> Any:
    kind = load_object(source)
    try:
        return kind()
    except TypeError as error:
        raise WorkloadError(
            f"callbacks: {source!r} cannot be called without arguments: {error}"
        ) from error
