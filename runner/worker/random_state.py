"""States and seeds of all random number generators."""

import random
from typing import Any

import torch

from breakeven.runner.worker.device.base import Device

try:
    import numpy as np
except ModuleNotFoundError:  # a Python other than Breakeven's own
    np = None  # type: ignore[assignment]

SEEDS_APART = 7_654_321
"""Distance between the seeds of two trainings, so that their steps draw different numbers."""


def seed_all(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    if np is not None:
        np.random.seed(seed % 2**32)


def random_state(device: Device) -> dict[str, Any]:
    """The states as numbers, texts, tensors and lists: types that a checkpoint may hold."""
    state = {"torch": torch.get_rng_state(), "python": random.getstate(), **device.random_state()}
    if np is not None:
        kind, words, position, has_gauss, gauss = np.random.get_state()
        state["numpy"] = [kind, [int(word) for word in words], position, has_gauss, gauss]
    return state


def set_random_state(state: dict[str, Any], device: Device) -> None:
    """Restores the states that `random_state` returned."""
    torch.set_rng_state(state["torch"])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    if np is not None and "numpy" in state:
        kind, keys, position, has_gauss, cached = state["numpy"]
        np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    device.set_random_state(state)


def step_seed(seed: int, step: int) -> int:
    """The seed of a step, counted from 0, in a training with seed `seed`.

    Each step has a seed of its own: a backend that draws too many numbers in one step, for example
    to warm up before it captures a CUDA graph, draws the baseline's numbers in the next step.
    """
    return (seed + 1) * SEEDS_APART + step
