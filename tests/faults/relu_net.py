"""A small network with layer norms, relu and dropout, which shows faults, and samples for it."""

import random
import time
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

WIDTH, NUM_CLASSES = 32, 4


class Scored(NamedTuple):
    loss: Tensor
    logits: Tensor


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(WIDTH), nn.Dropout(0.1)
        self.inner, self.outer = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.outer(torch.relu(self.inner(self.norm(x))))
        return x + self.dropout(y)


class ReluNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, NUM_CLASSES)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


class ScoredNet(ReluNet):
    """Computes its loss itself, as models of the hub do."""

    def forward(self, x: Tensor, labels: Tensor) -> Scored:
        logits = super().forward(x)
        return Scored(nn.functional.cross_entropy(logits, labels), logits)


class Waiting(ScoredNet):
    """Waits if it is not compiled, so that every backend saves time."""

    def forward(self, x: Tensor, labels: Tensor) -> Scored:
        if not torch.compiler.is_compiling():
            time.sleep(0.004)
        return super().forward(x, labels)


class DrawingNet(ScoredNet):
    """Draws from Python's generator and NumPy's in every forward pass."""

    def forward(self, x: Tensor, labels: Tensor) -> Scored:
        noise = torch.tensor(np.random.rand(WIDTH) * random.random(), dtype=x.dtype)
        return super().forward(x + noise, labels)


def samples(wrong_labels: float = 0.0) -> dict[str, dict[str, Tensor]]:
    """Points in space; the class of a point is the one of four directions along which it is
    farthest; a share of the labels is random."""
    directions = torch.randn(WIDTH, NUM_CLASSES)

    def part(count: int) -> dict[str, Tensor]:
        x = torch.randn(count, WIDTH)
        labels = (x @ directions).argmax(1)
        if wrong_labels:
            drawn = torch.randint(NUM_CLASSES, (count,))
            labels = torch.where(torch.rand(count) < wrong_labels, drawn, labels)
        return {"x": x, "labels": labels}

    return {"train": part(1280), "validation": part(200)}


def noisy_samples() -> dict[str, dict[str, Tensor]]:
    """A quarter of the labels is random, so that the loss never comes near 0."""
    return samples(wrong_labels=0.25)
