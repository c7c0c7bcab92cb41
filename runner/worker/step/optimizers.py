"""Optimizers and their learning rates over the steps, by names of torch and transformers."""

import inspect
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.arm_fields import OptimizerForm
from breakeven.runner.specs.experiment import TrainingSpec
from breakeven.runner.specs.training import NO_OPTIMIZER
from breakeven.runner.specs.values import Options

Named = list[tuple[str, nn.Parameter]]
SMALLEST_RATE = 1e-30
"""Replaces a rate of 0. Adam's form for compilers and CUDA graphs divides by the rate, which gives
0/0 for every weight without a gradient. In float32 a step of this size changes nothing."""


def make_optimizers(
    training: TrainingSpec,
    model: nn.Module,
    device: torch.device,
    *,
    capturable: bool = False,
    form: OptimizerForm | None = None,
) -> list[torch.optim.Optimizer]:
    """The training's optimizer, then the optimizers of its parameter groups.

    The first is left out if the groups take all parameters. With `capturable`, optimizers keep
    their step count on the device if they can, so that CUDA graphs can contain the step. `form`
    applies to all optimizers; None lets torch choose. Raises `WorkloadError` for an optimizer,
    options or a form that torch does not have, and for a group without parameters.
    """

    def make(name: str, options: Options, rate: float, named: Named) -> torch.optim.Optimizer:
        kind, arguments = _optimizer_class(name), dict(options)
        if capturable and takes(name, "capturable"):
            arguments.setdefault("capturable", True)
        if form is not None:
            if not takes(name, "fused" if form == "for_loop" else form):
                raise WorkloadError(f"torch.optim.{name} has no form {form!r}")
            arguments |= {"fused": form == "fused", "foreach": form == "foreach"}
        lr = rate if training.has_constant_rate else torch.tensor(rate, device=device)
        try:
            return kind([parameter for _, parameter in named], lr=lr, **arguments)
        except (TypeError, ValueError, RuntimeError) as error:
            raise WorkloadError(
                f"training.optimizer_options = {options!r} do not fit torch.optim.{name}: {error}"
            ) from error

    rest: Named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    grouped = []
    for text, group in zip(training.parameter_groups, training.groups, strict=True):
        named = [(name, p) for name, p in rest if fnmatchcase(name, group.pattern)]
        if not named:
            known = ", ".join(name for name, _ in rest[:3]) or "none"
            raise WorkloadError(
                f"training.parameter_groups: {text!r} matches no parameter that an earlier group "
                f"left; left are {known}{', ...' if len(rest) > 3 else ''}"
            )
        rest = [entry for entry in rest if not fnmatchcase(entry[0], group.pattern)]
        # Options belong to one optimizer: another optimizer starts from its own defaults.
        usual = {} if group.optimizer else training.optimizer_options
        rate = group.learning_rate or training.learning_rate
        grouped.append(
            make(group.optimizer or training.optimizer, {**usual, **group.options}, rate, named)
        )
    if not rest:
        return grouped
    options, rate = training.optimizer_options, training.learning_rate
    return [make(training.optimizer, options, rate, rest), *grouped]


def takes(optimizer: str, argument: str) -> bool:
    """Whether the class of `torch.optim` has such an argument."""
    return argument in inspect.signature(_optimizer_class(optimizer)).parameters


class NoOptimizer(torch.optim.Optimizer):
    """Only clears the gradients."""

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float | Tensor) -> None:
        super().__init__(parameters, {"lr": lr})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Changes nothing."""


def _optimizer_class(name: str) -> Callable[..., torch.optim.Optimizer]:
    if name == NO_OPTIMIZER:
        return NoOptimizer
    kind: Any = getattr(torch.optim, name, None)
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        raise WorkloadError(
            f"training.optimizer = {name!r}: torch.optim has no such optimizer; "
            "Adam, AdamW and SGD are usual"
        )
    return kind


class LearningRate:
    """The learning rate of every step, set without waiting for the device or recompiling.

    The schedule changes a shadow optimizer with plain numbers, one group for each real optimizer.
    Unless the schedule is constant, the real optimizers' rates are tensors on the device, which get
    these numbers. Compiled code reads the tensors in each step, and the shadow has the numbers
    without waiting for the device.
    """

    def __init__(
        self, training: TrainingSpec, num_steps: int, optimizers: Sequence[torch.optim.Optimizer]
    ) -> None:
        self._optimizers = optimizers
        self._full = [float(optimizer.param_groups[0]["lr"]) for optimizer in optimizers]
        groups = [{"params": [torch.zeros(1)], "lr": rate} for rate in self._full]
        self._shadow = torch.optim.SGD(groups)
        self._schedule: lr_scheduler.LRScheduler | None = None
        if training.has_constant_rate:
            return
        try:
            self._schedule = _make_schedule(self._shadow, training, num_steps)
        except (TypeError, ValueError) as error:
            raise WorkloadError(
                f"training.scheduler_options = {training.scheduler_options!r} do not fit "
                f"{training.scheduler!r}: {error}"
            ) from error
        self._apply()

    @property
    def current(self) -> float:
        """The first optimizer's rate in the next step; all rates change in proportion."""
        return float(self._shadow.param_groups[0]["lr"])

    def step_done(self) -> None:
        """Moves on to the rate of the next step."""
        schedule = self._schedule
        if schedule is not None and not isinstance(schedule, lr_scheduler.ReduceLROnPlateau):
            # Torch warns unless the schedule's optimizer has stepped before the schedule does.
            self._shadow.step()
            schedule.step()
            self._apply()

    def evaluated(self, loss: float) -> None:
        """Passes the loss on held-out samples to a plateau schedule."""
        if isinstance(self._schedule, lr_scheduler.ReduceLROnPlateau):
            self._schedule.step(loss)
            self._apply()

    def restore_rates(self) -> None:
        """Sets the specification's rates, whatever the state of the schedule."""
        for optimizer, rate in zip(self._optimizers, self._full, strict=True):
            for group in optimizer.param_groups:
                if isinstance(group["lr"], torch.Tensor):
                    group["lr"].fill_(rate)

    def state_dict(self) -> dict[str, Any]:
        schedule = None if self._schedule is None else self._schedule.state_dict()
        return {"shadow": self._shadow.state_dict(), "schedule": schedule}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._shadow.load_state_dict(state["shadow"])
        if self._schedule is not None:
            self._schedule.load_state_dict(state["schedule"])
            self._apply()

    def _apply(self) -> None:
        for optimizer, shadow in zip(self._optimizers, self._shadow.param_groups, strict=True):
            for group in optimizer.param_groups:
                group["lr"].fill_(max(float(shadow["lr"]), SMALLEST_RATE))


def _make_schedule(
    optimizer: torch.optim.Optimizer, training: TrainingSpec, num_steps: int
) -> lr_scheduler.LRScheduler:
    options: dict[str, Any] = dict(training.scheduler_options)
    if training.scheduler == "plateau":
        return lr_scheduler.ReduceLROnPlateau(optimizer, **options)
    if training.scheduler == "step":
        return lr_scheduler.StepLR(optimizer, **options)
    if training.scheduler == "multistep":
        return lr_scheduler.MultiStepLR(optimizer, **options)
    import transformers  # here, because a constant rate without warm-up does not need it

    is_warm_up_alone = training.scheduler == "constant"
    schedule: lr_scheduler.LRScheduler = transformers.get_scheduler(
        "constant_with_warmup" if is_warm_up_alone else training.scheduler,
        optimizer,
        num_warmup_steps=training.warmup_steps,
        num_training_steps=num_steps,
        scheduler_specific_kwargs=options,
    )
    return schedule
