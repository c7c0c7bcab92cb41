"""Steps without a compiler, of a model of their own."""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import nn

from runner.specs.experiment import ExperimentSpec
from runner.worker.callbacks import Hooks, TrainingState
from runner.worker.compiler.compiling import leave_alone
from runner.worker.data.batches import MicroBatch
from runner.worker.step.optimizers import make_optimizers
from runner.worker.step.stepping import LossOf, MixedPrecision, StepMaker


def uncompiled_copy(
    model: nn.Module, objective: LossOf, experiment: ExperimentSpec, device: torch.device
) -> Callable[[Sequence[MicroBatch]], None]:
    """Copies the model as it is and begins to train the copy by itself, with optimizers that have
    not stepped yet: the model itself stays as it is. Raises `torch.OutOfMemoryError`."""
    copied = copy.deepcopy(model)
    training = experiment.training
    optimizers = make_optimizers(training, copied, device)
    step = StepMaker(
        copied,
        objective,
        optimizers,
        MixedPrecision(training, device),
        training,
        Hooks([], TrainingState(model=copied, optimizers=optimizers)),
        like_harness=experiment.steps_like_harness,
    ).make("forward", leave_alone)

    def uncompiled(batches: Sequence[MicroBatch]) -> None:
        # Blocks that were compiled in place would otherwise run compiled here, too.
        with torch.compiler.set_stance("force_eager"):
            step(batches)

    return uncompiled
