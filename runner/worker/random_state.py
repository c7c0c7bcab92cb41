"""Where all generators of random numbers stand, to be put back there later."""

import random
from typing import Any

import numpy as np
import torch

from breakeven.runner.worker.device.base import Device


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
    """Puts them where they stood when `random_state` was asked."""
    torch.set_rng_state(state["torch"])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    device.set_random_state(state)
