"""Where all generators of random numbers stand, and what they are seeded with."""

import random
from typing import Any

import numpy as np
import torch

from breakeven.runner.worker.device.base import Device

SEEDS_APART = 7_654_321
"""Between two trainings, so that steps of one draw other numbers than steps of the other."""


def random_state(device: Device) -> dict[str, Any]:
    """Numbers, texts, tensors and lists of them alone, as a checkpoint may hold."""
    kind, words, position, has_gauss, gauss = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": [kind, [int(word) for word in words], position, has_gauss, gauss],
        **device.random_state(),
    }


def set_random_state(state: dict[str, Any], device: Device) -> None:
    """Puts them where they stood when `random_state` was called."""
    torch.set_rng_state(state["torch"])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    device.set_random_state(state)


def step_seed(seed: int, step: int) -> int:
    """For the numbers that a step draws, counted from 0, of a training with that seed.

    Every step has a seed of its own, so that a backend which draws too many numbers once, as one
    does that warms up before it captures a CUDA graph, draws the baseline's again a step later.
    """
    return (seed + 1) * SEEDS_APART + step
