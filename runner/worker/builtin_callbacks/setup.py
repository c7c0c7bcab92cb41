"""Which callbacks a run has: those that its specification's settings ask for, then one's own."""

from collections.abc import Mapping
from typing import Any

import torch

from breakeven.runner.errors import WorkloadError
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.specs.training import SplitName
from breakeven.runner.worker.builtin_callbacks.checkpoints import Checkpoints
from breakeven.runner.worker.builtin_callbacks.gradients import GradientStatistics
from breakeven.runner.worker.builtin_callbacks.predictions import Predictions
from breakeven.runner.worker.builtin_callbacks.stopping import StopEarly, StopOnNonfinite
from breakeven.runner.worker.data.splits import Split
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.ranks.group import ALONE, Group
from breakeven.runner.worker.step.inference import Inference
from breakeven.runner.worker.user_code import load_object


class CallbackSetup:
    """The callbacks of one run, in the order in which they are called."""

    def __init__(
        self,
        spec: RunSpec,
        run: RunDir,
        log: EventLog,
        scaler: torch.amp.GradScaler,
        inference: Inference,
        splits: Mapping[SplitName, Split],
        group: Group = ALONE,
    ) -> None:
        experiment = spec.experiment
        every = experiment.training.gradient_statistics_every
        self.callbacks: list[Any] = []
        if every is not None:
            self.callbacks.append(GradientStatistics(every, scaler, log))
        if experiment.stopping.nonfinite:
            self.callbacks.append(StopOnNonfinite())
        if experiment.stopping.follows_evaluation:
            self.callbacks.append(StopEarly(experiment.stopping, experiment.evaluation))
        if experiment.evaluation.predictions:
            self.callbacks.append(Predictions(spec, run, log, inference, splits, group))
        self.callbacks += [_make(source) for source in experiment.callbacks]
        # Last, so that a checkpoint holds what the other callbacks came to know.
        self.checkpoints = _checkpoints(spec, run, log)
        if self.checkpoints is not None:
            self.callbacks.append(self.checkpoints)


def _checkpoints(spec: RunSpec, run: RunDir, log: EventLog) -> Checkpoints | None:
    experiment = spec.experiment
    if experiment.checkpoints.every is None:
        return None
    return Checkpoints(
        experiment.checkpoints, experiment.evaluation, experiment.steps_per_epoch, run, log
    )


def _make(source: str) -> Any:
    kind = load_object(source)
    try:
        return kind()
    except TypeError as error:
        raise WorkloadError(
            f"callbacks: {source!r} cannot be called without arguments: {error}"
        ) from error
