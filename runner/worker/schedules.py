"""Learning rates over the steps, by the names that torch and transformers give them."""

from typing import Any

import torch
import transformers
from torch.optim import lr_scheduler

from runner.errors import WorkloadError
from runner.spec import TrainingSpec

SMALLEST_RATE = 1e-30
"""Stands for a rate of 0, by which Adam's form for compilers and CUDA graphs would divide: 0/0 for
every weight without a gradient. In float32 a step of this size changes nothing."""


class LearningRate:
    """The learning rate of every step, set without waiting for the device or recompiling.

    The schedule moves a shadow optimizer with plain numbers. Where it is not constant, the real
    optimizer holds its rate as a tensor on the device, which is filled with that number: compiled
    code reads it anew in each step, and nobody waits for the device to learn what it is.
    """

    def __init__(
        self, training: TrainingSpec, num_steps: int, optimizer: torch.optim.Optimizer
    ) -> None:
        self._optimizer = optimizer
        self._shadow = torch.optim.SGD([torch.zeros(1)], lr=training.learning_rate)
        self._by_step: lr_scheduler.LRScheduler | None = None
        self._by_loss: lr_scheduler.ReduceLROnPlateau | None = None
        if is_constant(training):
            return
        try:
            if training.scheduler == "plateau":
                self._by_loss = lr_scheduler.ReduceLROnPlateau(self._shadow, **_options(training))
            else:
                self._by_step = _make_schedule(self._shadow, training, num_steps)
        except (TypeError, ValueError) as error:
            raise WorkloadError(
                f"training.scheduler_options = {training.scheduler_options!r} do not fit "
                f"{training.scheduler!r}: {error}"
            ) from error
        self._apply()

    @property
    def current(self) -> float:
        """The rate of the next step."""
        return float(self._shadow.param_groups[0]["lr"])

    def step_done(self) -> None:
        """Moves on to the rate of the next step."""
        if self._by_step is not None:
            # Torch warns unless the optimizer it knows of has stepped before its schedule does.
            self._shadow.step()
            self._by_step.step()
            self._apply()

    def evaluated(self, loss: float) -> None:
        """Tells a plateau schedule the loss on held-out samples."""
        if self._by_loss is not None:
            self._by_loss.step(loss)
            self._apply()

    def _apply(self) -> None:
        for group in self._optimizer.param_groups:
            group["lr"].fill_(max(self.current, SMALLEST_RATE))


def is_constant(training: TrainingSpec) -> bool:
    """Whether the learning rate never changes."""
    return training.scheduler == "constant" and training.warmup_steps == 0


def _make_schedule(
    optimizer: torch.optim.Optimizer, training: TrainingSpec, num_steps: int
) -> lr_scheduler.LRScheduler:
    options = _options(training)
    if training.scheduler == "step":
        return lr_scheduler.StepLR(optimizer, **options)
    if training.scheduler == "multistep":
        return lr_scheduler.MultiStepLR(optimizer, **options)
    is_warm_up_alone = training.scheduler == "constant"
    schedule: lr_scheduler.LRScheduler = transformers.get_scheduler(
        "constant_with_warmup" if is_warm_up_alone else training.scheduler,
        optimizer,
        num_warmup_steps=training.warmup_steps,
        num_training_steps=num_steps,
        scheduler_specific_kwargs=options,
    )
    return schedule


def _options(training: TrainingSpec) -> dict[str, Any]:
    return dict(training.scheduler_options)
