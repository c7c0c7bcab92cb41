"""Optimizers: one for all parameters, or further ones for parameters picked by name."""

import inspect
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import TrainingSpec
from breakeven.runner.specs.fields import Options

Named = list[tuple[str, nn.Parameter]]


def make_optimizers(
    training: TrainingSpec, model: nn.Module, device: torch.device, *, capturable: bool = False
) -> list[torch.optim.Optimizer]:
    """The training's optimizer, then those of its parameter groups.

    The first is left out if the groups take all parameters. With `capturable`, those that can keep
    their step count on the device, so that CUDA graphs can hold the step. Raises `WorkloadError`
    for an optimizer or options that torch does not have, and for a group without parameters.
    """
    rest: Named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    grouped = []
    for text, group in zip(training.parameter_groups, training.groups, strict=True):
        mine = [(name, p) for name, p in rest if fnmatchcase(name, group.pattern)]
        if not mine:
            known = ", ".join(name for name, _ in rest[:3]) or "none"
            raise WorkloadError(
                f"training.parameter_groups: {text!r} matches no parameter that an earlier group "
                f"left; left are {known}{', ...' if len(rest) > 3 else ''}"
            )
        rest = [entry for entry in rest if not fnmatchcase(entry[0], group.pattern)]
        grouped.append(
            _make(
                group.optimizer or training.optimizer,
                # Options belong to an optimizer: another one starts from its own defaults.
                {**({} if group.optimizer else training.optimizer_options), **group.options},
                group.learning_rate or training.learning_rate,
                mine,
                training,
                device,
                capturable,
            )
        )
    if not rest:
        return grouped
    options, rate = training.optimizer_options, training.learning_rate
    first = _make(training.optimizer, options, rate, rest, training, device, capturable)
    return [first, *grouped]


def takes(optimizer: str, argument: str) -> bool:
    """Whether the class of `torch.optim` has such an argument."""
    return argument in inspect.signature(getattr(torch.optim, optimizer)).parameters


def _make(
    name: str,
    options: Options,
    learning_rate: float,
    parameters: Iterable[tuple[str, nn.Parameter]],
    training: TrainingSpec,
    device: torch.device,
    capturable: bool,
) -> torch.optim.Optimizer:
    kind: Any = getattr(torch.optim, name, None)
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        raise WorkloadError(
            f"training.optimizer = {name!r}: torch.optim has no such optimizer; "
            "Adam, AdamW and SGD are usual"
        )
    arguments: dict[str, Any] = dict(options)
    if capturable and takes(name, "capturable"):
        arguments.setdefault("capturable", True)
    rate: float | Tensor = learning_rate
    if not training.has_constant_rate:
        rate = torch.tensor(rate, device=device)
    make: Callable[..., torch.optim.Optimizer] = kind
    try:
        return make([parameter for _, parameter in parameters], lr=rate, **arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        raise WorkloadError(
            f"training.optimizer_options = {options!r} do not fit torch.optim.{name}: {error}"
        ) from error
