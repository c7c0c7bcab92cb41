"""Puts back what a pass beside the training changes: random numbers, buffers, weights, attributes.

Every tensor is written in place, so that views, optimizers and compiled code still have it, and
unseen by autograd, whose graphs of this step remain valid.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.random_state import random_state, set_random_state

COPIES = 4
"""A comparison keeps about so many copies of the weights. If the device has no room for them, they
are kept in the memory of the host."""


class Untouched:
    """The state of a model and of all generators at one moment."""

    def __init__(self, model: nn.Module, device: Device) -> None:
        self._device = device
        self._random = random_state(device)
        self._attributes = [(module, dict(vars(module))) for module in model.modules()]
        self._tables: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for module in model.modules():
            for table in (module._parameters, module._buffers):
                self._tables.append((cast("dict[str, Any]", table), dict(table)))
        tensors = [*model.parameters(), *model.buffers()]
        num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        has_room = device.free_bytes > COPIES * num_bytes
        self.keeps_on = device.torch_device if has_room else torch.device("cpu")
        """Where copies are kept."""
        self._kept = [(tensor, self.copied(tensor)) for tensor in tensors]

    def copied(self, tensor: Tensor) -> Tensor:
        """A copy that nothing changes."""
        return tensor.detach().to(self.keeps_on, copy=True)

    def restore(self) -> None:
        """Makes everything as it was."""
        set_random_state(self._random, self._device)
        for module, attributes in self._attributes:
            now = vars(module)
            if now.keys() != attributes.keys() or any(
                now[name] is not value for name, value in attributes.items()
            ):
                now.clear()
                now.update(attributes)
        for table, tensors in self._tables:
            table.update(tensors)
        for tensor, kept in self._kept:
            if not same_bits(tensor.detach().to(kept.device), kept):
                tensor.data.copy_(kept)


class QuickState:
    """The generators and buffers before a compiled step: little enough to keep in each step."""

    def __init__(self, device: Device, buffers: list[Tensor]) -> None:
        self._device, self._buffers = device, buffers
        self._random: dict[str, Any] = {}
        self._kept = [torch.empty_like(buffer) for buffer in buffers]

    def keep(self) -> None:
        """Keeps the current state in place of the last one."""
        self._random = {"torch": torch.get_rng_state(), **self._device.random_state()}
        if self._kept:
            torch._foreach_copy_(self._kept, [buffer.detach() for buffer in self._buffers])

    def restore(self) -> None:
        """Puts back what was kept last."""
        torch.set_rng_state(self._random["torch"])
        self._device.set_random_state(self._random)
        for buffer, kept in zip(self._buffers, self._kept, strict=True):
            buffer.data.copy_(kept)


def same_bits(tensor: Tensor, other: Tensor) -> bool:
    """Whether all elements are equal, NaN to NaN."""
    if not tensor.is_floating_point():
        return torch.equal(tensor, other)
    return bool(((tensor == other) | (tensor.isnan() & other.isnan())).all())
