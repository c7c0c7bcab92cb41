"""The optimizers that a script makes: their form, and the settings of their groups."""

import functools
import weakref
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.arm_fields import OptimizerForm

NO_FORM = "The script's optimizer {} has no {!r} implementation."
CHOSEN = "The script itself chooses the implementation of its optimizer {}: no other is measured."
SETTINGS = (
    "lr",
    "momentum",
    "betas",
    "weight_decay",
    "eps",
    "alpha",
    "beta1",
    "beta2",
    "dampening",
    "nesterov",
    "amsgrad",
    "centered",
    "decoupled_weight_decay",
    "maximize",
    "rho",
    "lambd",
    "t0",
    "lr_decay",
    "momentum_decay",
    "etas",
    "step_sizes",
)
"""Settings that torch's own optimizers never change themselves. Others, such as the step size that
Prodigy estimates, depend on what a backend computes."""


class ScriptOptimizers:
    """Reads the settings of the script's optimizers."""

    def __init__(self) -> None:
        self._made: list[weakref.ref[Optimizer]] = []
        self._names: list[str] = []

    def add(self, optimizer: Optimizer) -> None:
        self._made.append(weakref.ref(optimizer))
        self._names.append(type(optimizer).__name__)

    def number(self, optimizer: Optimizer) -> int:
        """The number of an optimizer, in the order in which they were made."""
        for number, reference in enumerate(self._made):
            if reference() is optimizer:
                return number
        self.add(optimizer)  # a copy, which no constructor made
        return len(self._made) - 1

    def numbers(self) -> range:
        return range(len(self._made))

    def describe(self, number: int, models: Mapping[nn.Module, str]) -> str:
        """The class of an optimizer, and the names of those of these models that it trains, unless
        it trains all."""
        tensors = {id(tensor) for tensor in self._tensors().get(number, [])}
        trained = [
            name
            for model, name in models.items()
            if any(id(parameter) in tensors for parameter in model.parameters())
        ]
        name = self._names[number]
        is_clear = not trained or len(trained) == len(models)
        return name if is_clear else f"{name} of {' and '.join(trained)}"

    def sizes(self) -> dict[int, int]:
        """Number of trained elements of each optimizer that still exists."""
        return {
            number: sum(tensor.numel() for tensor in tensors if not is_lazy(tensor))
            for number, tensors in self._tensors().items()
        }

    def has_others(self, stepped: Container[int]) -> bool:
        """Whether an optimizer has not `stepped` and trains a tensor that no other one trains: one
        within another optimizer shares its tensors."""
        tensors = self._tensors()
        trained = {
            id(tensor) for number in tensors if number in stepped for tensor in tensors[number]
        }
        return any(
            id(tensor) not in trained
            for number in tensors
            if number not in stepped
            for tensor in tensors[number]
        )

    def trained(self) -> set[int]:
        """The `id` of each tensor in the groups of optimizers."""
        return {id(tensor) for tensor in self.tensors()}

    def tensors(self) -> Iterator[Tensor]:
        """The tensors of all optimizers, which some may share."""
        for tensors in self._tensors().values():
            yield from tensors

    def _tensors(self) -> dict[int, list[Tensor]]:
        return {
            number: [
                tensor
                for group in optimizer.param_groups
                for tensor in group["params"]
                if tensor.requires_grad
            ]
            for number, reference in enumerate(self._made)
            if (optimizer := reference()) is not None and hasattr(optimizer, "param_groups")
        }

    def learning_rate(self) -> "float | Tensor | None":
        """The learning rate of the first group of the first optimizer; a tensor on a device is
        copied there, so that nothing waits for it. None without an optimizer."""
        for reference in self._made:
            if (optimizer := reference()) is not None:
                rate = optimizer.param_groups[0].get("lr")
                return rate.detach().clone() if isinstance(rate, Tensor) else rate
        return None

    def settings(self) -> dict[str, list[float]]:
        """The distinct values in the groups of an optimizer, by `number.setting`, such as `0.lr`.
        Optimizers are numbered as they were made, without those that are gone. Waits for the
        device."""
        settings: dict[str, list[float]] = {}
        for number, reference in enumerate(self._made):
            groups = [] if (optimizer := reference()) is None else optimizer.param_groups
            for name in SETTINGS:
                values = [number for group in groups for number in _numbers(group.get(name))]
                if values:
                    settings[f"{number}.{name}"] = list(dict.fromkeys(values))
        return settings


def _numbers(value: Any) -> list[float]:
    if isinstance(value, (list, tuple)):
        return [number for entry in value for number in _numbers(entry)]
    is_number = isinstance(value, (bool, int, float))
    is_number |= isinstance(value, Tensor) and value.numel() == 1
    return [float(value)] if is_number else []


@contextmanager
def forced_optimizer_form(
    form: OptimizerForm | None, fixed: dict[str, str], on_made: Callable[[Optimizer], None]
) -> Iterator[None]:
    """Makes each optimizer in this form, as its arguments `foreach` and `fused` do; None leaves the
    script's. For an optimizer that has no form but its own, or whose form the script chooses, adds
    the reason to `fixed`, or raises `WorkloadError` in the script if there is a form to set. Calls
    `on_made` with each optimizer."""
    make = Optimizer.__init__

    @functools.wraps(make)
    def init(self: Optimizer, params: Any, defaults: dict[str, Any]) -> None:
        name = type(self).__name__
        if (form if form == "foreach" else "fused") not in defaults:
            fixed["optimizer"] = NO_FORM.format(name, form or "fused")
        elif any(defaults.get(option) is not None for option in ("fused", "foreach")):
            fixed["optimizer"] = CHOSEN.format(name)
        if form is not None and fixed:
            raise WorkloadError(fixed["optimizer"])
        arguments = {} if form is None else {"fused": form == "fused", "foreach": form == "foreach"}
        make(self, params, {**defaults, **arguments})
        on_made(self)

    Optimizer.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        Optimizer.__init__ = make  # type: ignore[method-assign]
