"""Steps without a compiler beside those under one."""

import copy
from collections.abc import Sequence

import torch
from torch import nn

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.worker.callbacks import Hooks, TrainingState
from breakeven.runner.worker.compiler.compiling import leave_alone
from breakeven.runner.worker.data.batches import MicroBatch
from breakeven.runner.worker.ranks.together import Together
from breakeven.runner.worker.step.optimizers import make_optimizers
from breakeven.runner.worker.step.stepping import (
    LossOf,
    MixedPrecision,
    Step,
    StepMaker,
    StepResult,
)


def uncompiled_step(
    model: nn.Module,
    objective: LossOf,
    optimizers: Sequence[torch.optim.Optimizer],
    precision: MixedPrecision,
    experiment: ExperimentSpec,
    together: Together | None = None,
) -> Step:
    """A step of the model as the experiment makes it, that no callback hears of."""
    step = StepMaker(
        model,
        objective,
        optimizers,
        precision,
        experiment.training,
        Hooks([], TrainingState(model=model, optimizers=optimizers)),
        together,
        like_harness=experiment.steps_like_harness,
    ).make("forward", leave_alone)

    def uncompiled(batches: Sequence[MicroBatch]) -> StepResult:
        # Blocks that were compiled in place would otherwise run compiled here, too.
        with torch.compiler.set_stance("force_eager"):
            return step(batches)

    return uncompiled


def uncompiled_copy(
    model: nn.Module, objective: LossOf, experiment: ExperimentSpec, device: torch.device
) -> Step:
    """Copies the model as it is and trains the copy by itself, with optimizers that have not
    stepped yet: the model itself stays as it is. Raises `torch.OutOfMemoryError`."""
    copied = copy.deepcopy(model)
    training = experiment.training
    optimizers = make_optimizers(training, copied, device)
    precision = MixedPrecision(training, device)
    return uncompiled_step(copied, objective, optimizers, precision, experiment)
