"""Hashes of a script's inputs, code and random states: equal hashes mean equal inputs."""

import hashlib
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from breakeven.runner.worker.data.splits import tensor_bytes
from breakeven.runner.worker.device.base import Device

MAX_DEPTH = 8
"""Levels of nesting within a batch."""
WAVES = (0.7, 2.1)
"""Radians per entry of each wave."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Hashes of the arguments of a compiled function.

    Floating-point tensors are separate: a script may compute them, such as the hidden state of a
    recurrent network, so they may differ between runs.
    """

    sha256: str
    """Hash of all other arguments: whole numbers, texts, types and shapes."""
    floats: list[dict[str, Any]]
    """Floating-point tensors in their order: `sha256` of each, and `rough`, numbers that hardly
    change when the tensor's numbers hardly change."""

    @property
    def whole_sha256(self) -> str:
        hashes = [self.sha256, *(one["sha256"] for one in self.floats)]
        return hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def inputs_of(arguments: object) -> Inputs | None:
    """Hashes of all tensors and plain values in the arguments; None without a tensor. Waits for
    the device."""
    digest, has_tensor = hashlib.sha256(), False
    floats: list[dict[str, Any]] = []
    for leaf in _leaves(arguments, MAX_DEPTH):
        if not isinstance(leaf, Tensor):
            digest.update(repr(leaf).encode())
            continue
        has_tensor = True
        digest.update(f"{leaf.dtype} {tuple(leaf.shape)} ".encode())
        if leaf.is_floating_point():
            sha256 = hashlib.sha256(tensor_bytes(leaf)).hexdigest()[:16]
            floats.append({"sha256": sha256, "rough": _rough(leaf)})
        else:
            digest.update(tensor_bytes(leaf))
    return Inputs(sha256=digest.hexdigest(), floats=floats) if has_tensor else None


def _rough(tensor: Tensor) -> list[float]:
    """Root mean square, mean, and two sums with wave weights, which depend on the order."""
    flat = tensor.detach().reshape(-1).float()
    if not len(flat):
        return []
    places = torch.arange(len(flat), device=flat.device)
    waves = [(flat * torch.cos(places * turn)).sum() / len(flat) ** 0.5 for turn in WAVES]
    found = torch.stack([flat.square().mean().sqrt(), flat.mean(), *waves])
    return [float(value) for value in found.tolist()]


def _leaves(value: object, depth: int) -> Iterator[Tensor | bool | int | float | str]:
    """Yields tensors and plain values in their order, without modules."""
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


def code_sha256(folder: Path) -> str:
    """Hash of the Python files of a folder that are loaded so far, including the script."""
    loaded = {str(getattr(module, "__file__", "")) for module in list(sys.modules.values())}
    digest = hashlib.sha256()
    for name in sorted(loaded):
        if name.endswith(".py") and Path(name).is_relative_to(folder):
            digest.update(Path(name).read_bytes())
    return digest.hexdigest()


def random_states(device: Device) -> dict[str, str]:
    """A short hash of the state of each random number generator, by its name."""
    states: dict[str, bytes] = {
        "python": repr(random.getstate()).encode(),
        "torch": tensor_bytes(torch.get_rng_state()),
        **{name: tensor_bytes(state) for name, state in device.random_state().items()},
    }
    if (numpy := sys.modules.get("numpy")) is not None:
        states["numpy"] = repr(numpy.random.get_state(legacy=False)["state"]).encode()
    return {name: hashlib.sha256(state).hexdigest()[:16] for name, state in states.items()}


def models_of(function: Callable[..., Any]) -> list[nn.Module]:
    """The models that a function uses: its object, or models in its closure or globals."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, nn.Module):
        return [owner]
    try:
        variables = inspect.getclosurevars(inspect.unwrap(function))
    except TypeError:
        return []
    named = [*variables.nonlocals.values(), *variables.globals.values()]
    return [value for value in named if isinstance(value, nn.Module)]
