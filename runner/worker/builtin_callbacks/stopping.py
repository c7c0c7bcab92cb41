"""Callbacks that end training before its last step."""

import math
from typing import Any

import torch

from breakeven.runner.specs.experiment import EvaluationSpec, StoppingSpec
from breakeven.runner.worker.callbacks import Callback, TrainingState


class StopOnNonfinite(Callback):
    """Ends training in the step whose loss is NaN or infinite. Each step waits for the device."""

    def batch_end(self, state: TrainingState) -> None:
        assert state.loss is not None
        if not torch.isfinite(state.loss):
            state.stop(f"the loss is {state.loss.item()}")


class StopEarly(Callback):
    """Ends training when the metric is good enough, or has not got better for a while."""

    def __init__(self, stopping: StoppingSpec, evaluation: EvaluationSpec) -> None:
        self._stopping = stopping
        self._metric = evaluation.metric
        self._sign = -1.0 if evaluation.lower_is_better else 1.0
        self._best = -math.inf
        self._num_worse = 0

    def evaluation_end(self, state: TrainingState) -> None:
        value = state.scores.get(self._metric)
        # A value that is undefined is no better one.
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
