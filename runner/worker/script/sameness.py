"""What a script computes with, as hashes: runs that were given the same have the same."""

import hashlib
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from runner.worker.data.splits import tensor_bytes
from runner.worker.device.base import Device

MAX_DEPTH = 8
"""Of what is nested in a batch."""


def inputs_sha256(arguments: object) -> str | None:
    """Hash of all tensors and numbers that a compiled function was called with; None without a
    tensor among them. It waits for the device."""
    digest, has_tensor = hashlib.sha256(), False
    for leaf in _leaves(arguments, MAX_DEPTH):
        if isinstance(leaf, Tensor):
            has_tensor = True
            digest.update(f"{leaf.dtype} {tuple(leaf.shape)} ".encode())
            digest.update(tensor_bytes(leaf))
        else:
            digest.update(repr(leaf).encode())
    return digest.hexdigest() if has_tensor else None


def _leaves(value: object, depth: int) -> Iterator[Tensor | bool | int | float | str]:
    """Tensors and plain values, in their order; modules are none of the input."""
    if isinstance(value, (Tensor, bool, int, float, str)) and not isinstance(value, nn.Parameter):
        yield value
    elif depth and isinstance(value, Mapping):
        for key in value:
            yield from _leaves(value[key], depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for entry in value:
            yield from _leaves(entry, depth - 1)
    elif depth and hasattr(value, "data") and isinstance(value.data, Mapping):
        yield from _leaves(value.data, depth - 1)  # transformers' BatchEncoding


def random_states(device: Device) -> dict[str, str]:
    """Where each generator of random numbers stands, by its name, as a short hash."""
    states: dict[str, bytes] = {
        "python": repr(random.getstate()).encode(),
        "torch": tensor_bytes(torch.get_rng_state()),
        **{name: tensor_bytes(state) for name, state in device.random_state().items()},
    }
    if (numpy := sys.modules.get("numpy")) is not None:
        states["numpy"] = repr(numpy.random.get_state(legacy=False)["state"]).encode()
    return {name: hashlib.sha256(state).hexdigest()[:16] for name, state in states.items()}


def models_of(function: Callable[..., Any]) -> list[nn.Module]:
    """The models that a function refers to: bound to it, in its closure, or among its globals."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, nn.Module):
        return [owner]
    try:
        variables = inspect.getclosurevars(inspect.unwrap(function))
    except TypeError:
        return []
    named = [*variables.nonlocals.values(), *variables.globals.values()]
    return [value for value in named if isinstance(value, nn.Module)]
