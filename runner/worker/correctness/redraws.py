"""Repeats one step with other random numbers, with and without a compiler.

All steps start from the state at the end of training and see the same samples, so they differ only
in their random numbers. A correct backend's weight changes have the same distribution as those
without a compiler. The distances between all changes are recorded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from breakeven.runner.worker.device.base import Device

NUM_FIRST = 2
"""Draws of each kind to find out whether the backend draws the same numbers as eager."""
NUM_DRAWS = 12
"""Draws of each kind if it does not (docs/decisions.md)."""
SAME_SHARE = 0.25
"""Numbers are the same if squared distances to eager's step with the same seed are below this share
of the distances between eager's steps with different seeds."""
MAX_ELEMENTS = 4096
"""Compared elements of a tensor, evenly spread."""
SEED_OFFSET = 7_919
ROOM = 2
"""Required free memory for a copy on the device, in multiples of the copy's size."""


@dataclass(frozen=True, kw_only=True)
class Redraws:
    """Results of all steps: first without a compiler, then with it, in the order of seeds."""

    losses: list[float]
    distances: dict[str, list[float]]
    """By parameter, squared distances between the changes of pairs of steps: (0, 1), (0, 2), ...,
    (1, 2), and so on."""
    changes: dict[str, float]
    """By parameter, mean squared size of the changes by steps without a compiler."""

    @property
    def num_draws(self) -> int:
        return len(self.losses) // 2

    @property
    def same_seed(self) -> float:
        """Mean squared distance, over all tensors, between steps of both kinds with equal seeds."""
        count = self.num_draws
        return self._mean(lambda i, j: j == i + count)

    @property
    def other_seeds(self) -> float:
        """Mean squared distance between steps without a compiler with different seeds."""
        count = self.num_draws
        return self._mean(lambda i, j: j < count)

    @property
    def draws_the_same(self) -> bool:
        """Whether the backend draws the same numbers as without a compiler."""
        return self.same_seed <= SAME_SHARE * self.other_seeds

    def _mean(self, wanted: Callable[[int, int], bool]) -> float:
        size = len(self.losses)
        pairs = [(i, j) for i in range(size) for j in range(i + 1, size)]
        places = [place for place, pair in enumerate(pairs) if wanted(*pair)]
        sums = [sum(distances[place] for place in places) for distances in self.distances.values()]
        return sum(sums) / len(places)


class TensorState:
    """A copy of parameters, buffers and optimizer states. It is restored in place, where compiled
    code and captured graphs expect the tensors. This happens dozens of times, so the copy lies on
    their device if memory suffices."""

    def __init__(
        self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], device: Device
    ) -> None:
        memories = [entry for one in optimizers for entry in one.state.values()]
        self._tensors = [*model.parameters(), *model.buffers()]
        self._tensors += [t for entry in memories for t in entry.values() if isinstance(t, Tensor)]
        has_room = device.free_bytes >= ROOM * sum(tensor.nbytes for tensor in self._tensors)
        self._values = [
            tensor.detach().to(tensor.device if has_room else "cpu", copy=True)
            for tensor in self._tensors
        ]

    @torch.no_grad()
    def restore(self) -> None:
        for tensor, value in zip(self._tensors, self._values, strict=True):
            tensor.copy_(value)


def redraw(
    model: nn.Module,
    state: TensorState,
    step: Callable[[], Tensor],
    compiled_step: Callable[[], Tensor],
    *,
    seed: int,
    num_draws: int,
) -> Redraws:
    """Makes steps with different seeds, and restores the state after each step."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    before = _sampled(parameters)
    losses: list[Tensor] = []
    changes: list[dict[str, Tensor]] = []
    for one in (step, compiled_step):
        for draw in range(num_draws):
            torch.manual_seed(seed + SEED_OFFSET + draw)
            losses.append(one().detach().clone())
            after = _sampled(parameters)
            changes.append({name: after[name] - before[name] for name in parameters})
            state.restore()
    stacked = {
        name: torch.stack([change[name] for change in changes]).cpu().double()
        for name in parameters
    }
    return Redraws(
        losses=torch.stack(losses).float().tolist(),
        distances={name: _distances(one) for name, one in stacked.items()},
        changes={
            name: float(one[:num_draws].square().sum(1).mean()) for name, one in stacked.items()
        },
    )


def _sampled(parameters: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return {
        name: parameter.detach().flatten()[:: -(-parameter.numel() // MAX_ELEMENTS)].float().clone()
        for name, parameter in parameters.items()
    }


def _distances(changes: Tensor) -> list[float]:
    """Squared distances of all pairs in their order, with four digits to save space."""
    rows, columns = torch.triu_indices(len(changes), len(changes), offset=1)
    squares = (changes[rows] - changes[columns]).square().sum(1)
    return [float(f"{square:.4g}") for square in squares.tolist()]
