"""Finds where the first number that is not finite arises in a training step without a compiler."""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakTensorKeyDictionary


@dataclass
class _Call:
    """A module whose forward pass is in progress."""

    name: str
    last: str = ""
    """Name of the layer that it called last."""


class Watch:
    """Hooks on all modules of a model; use it as a context around one step."""

    def __init__(self, model: nn.Module) -> None:
        self.place: str | None = None
        """Where the first number that is not finite comes from, in words."""
        self.phase: str | None = None
        """`forward pass` or `backward pass`; None for data and weights."""
        self._model = model
        self._names = {module: _named(name, module) for name, module in model.named_modules()}
        self._calls: list[_Call] = []
        self._users: MutableMapping[Tensor, list[str]] = WeakTensorKeyDictionary()
        """The code that last used each tensor of the forward pass, as a list of one text: the
        backward pass of this code computes the tensor's gradient. The dictionary keeps no tensor
        alive."""
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> "Watch":
        for name, weight in self._model.named_parameters():
            if _is_bad(weight):
                self._note(f"weight {name} before the step")
        for module in self._names:
            self._handles += [
                module.register_forward_pre_hook(self._before, with_kwargs=True),
                module.register_forward_hook(self._after),
                *(weight.register_hook(self._checked(self._names[module]))
                  for weight in module.parameters(recurse=False) if weight.requires_grad),
            ]  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        for handle in self._handles:
            handle.remove()

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        name = self._names[module]
        inputs = _tensors((args, kwargs))
        if not self._calls:
            if any(map(_is_bad, inputs)):
                self._note("the model's inputs, which are data")
        elif any(map(_is_bad, inputs)):
            self._note(f"code of {self._calls[-1].name} before {name}", "forward pass")
        for one in inputs:
            self._used(one, name)
        self._calls.append(_Call(name))

    def _after(self, module: nn.Module, args: Any, output: Any) -> None:
        call = self._calls.pop()
        after = f"code of {call.name} after {call.last}" if call.last else call.name
        outputs = _tensors(output)
        if any(map(_is_bad, outputs)):
            self._note(after, "forward pass")
        user = "the loss function"
        if self._calls:
            self._calls[-1].last = call.name
            user = f"code of {self._calls[-1].name} after {call.name}"
        for one in outputs:
            self._used(one, user)

    def _used(self, tensor: Tensor, user: str) -> None:
        """Records the code that uses a tensor; a hook checks the tensor's gradient once."""
        if tensor.requires_grad:
            known = self._users.get(tensor)
            if known is None:
                known = self._users[tensor] = [user]

                def look(gradient: Tensor, user: list[str] = known) -> None:
                    self._look(gradient, user[0])

                self._handles.append(tensor.register_hook(look))  # type: ignore[no-untyped-call]
            known[0] = user

    def _checked(self, place: str) -> Callable[[Tensor], None]:
        return lambda gradient: self._look(gradient, place)

    def _look(self, gradient: Tensor, place: str) -> None:
        if not gradient.isfinite().all():
            self._note(place, "backward pass")

    def _note(self, place: str, phase: str | None = None) -> None:
        if self.place is None:
            self.place, self.phase = place, phase


def _named(name: str, module: nn.Module) -> str:
    return f"layer {name} ({type(module).__name__})" if name else f"model {type(module).__name__}"


def _tensors(values: Any) -> list[Tensor]:
    # Outputs of some models are data classes, which torch's trees do not know.
    values = vars(values) if hasattr(values, "__dataclass_fields__") else values
    return [one for one in torch.utils._pytree.tree_leaves(values) if isinstance(one, Tensor)]


def _is_bad(tensor: Tensor) -> bool:
    """Whether a number is not finite; masks of attention, which have no gradient, may be -inf."""
    if not tensor.is_floating_point():
        return False
    fine = tensor.detach().isfinite()
    if not tensor.requires_grad:
        fine |= tensor.detach() == -torch.inf
    return not bool(fine.all())
