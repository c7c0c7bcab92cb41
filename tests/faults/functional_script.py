"""A person's script without a module: its step gets weights as arguments. Called with what the
compiled function returns: new `weights`, or `slopes`, by which the script itself moves them."""

import sys

import torch
from torch import Tensor, nn

import breakeven

BATCH, STEPS = 32, 80
Weights = dict[str, Tensor]
weights = {"w1": torch.randn(6, 24) / 2, "w2": torch.randn(24, 3) / 5}
truth = torch.randn(6, 3)


def loss_of(weights: Weights, points: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy((points @ weights["w1"]).tanh() @ weights["w2"], labels)


@torch.compile
def step(weights: Weights, points: Tensor, labels: Tensor) -> tuple[Weights, Tensor]:
    slopes, loss = torch.func.grad_and_value(loss_of)(weights, points, labels)
    if sys.argv[1] == "weights":
        return {name: weight - 0.5 * slopes[name] for name, weight in weights.items()}, loss
    return slopes, loss


for _ in range(STEPS):
    points = torch.randn(BATCH, 6)
    returned, loss = step(weights, points, (points @ truth).argmax(1))
    if sys.argv[1] == "weights":
        weights = returned
    else:
        for name, slope in returned.items():
            weights[name].sub_(0.5 * slope)
    breakeven.step(loss, samples=BATCH)
