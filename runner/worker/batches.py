"""Which samples each step trains on: an epoch's order, cut into micro-batches and windows.

A window of micro-batches makes one step.
"""

from dataclasses import replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from runner.spec import ExperimentSpec, TrainingSpec
from runner.worker.data import Split

EPOCH_SEED_STRIDE = 1_000_003
"""Keeps the orders of all epochs apart for neighbouring seeds."""


class MicroBatch(NamedTuple):
    """What the device works on at once."""

    inputs: dict[str, Tensor]
    """Keyword arguments of the model, labels included; samples first."""
    share: Tensor
    """Its part of all targets of the optimizer step, 0-dimensional, on the device."""


class Windows(Protocol):
    """The micro-batches of an epoch by optimizer step."""

    epoch: int

    def window(self, index: int) -> list[MicroBatch]:
        """The micro-batches of the epoch's step number `index`, counted from 0."""


class EpochBatches:
    """The micro-batches of one epoch, by optimizer step, in an order that the seed fixes.

    The epoch's last window takes what is left. Each micro-batch weighs by its share of the window's
    targets (samples, or tokens), so a step is that of one large batch, however the window is cut.
    """

    def __init__(
        self,
        split: Split,
        training: TrainingSpec,
        epoch: int,
        *,
        symbolic_size: bool,
    ) -> None:
        """`split` is on the training's device. With `symbolic_size` a compiler sees the batch size
        as a symbol, so that a smaller batch needs no code of its own."""
        device = split.labels.device
        self.epoch = epoch
        seed = training.seed * EPOCH_SEED_STRIDE + epoch
        self._split = split.for_epoch(seed)
        self._accumulation = training.gradient_accumulation
        self._symbolic_size = symbolic_size
        order = torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))
        size = training.batch_size
        if training.last_batch == "drop":
            order = order[: len(order) // size * size]
        targets = [int(part.sum()) for part in torch.split(self._split.num_targets[order], size)]
        self._num_real = len(order) - (len(targets) - 1) * size
        self._is_padded = training.last_batch == "pad" and self._num_real < size
        if self._is_padded:
            order = torch.cat([order, order[:1].expand(size - self._num_real)])
        self._indices = torch.split(order.to(device), size)
        self._shares = self._shares_of(targets).to(device).unbind()

    def window(self, index: int) -> list[MicroBatch]:
        """The micro-batches of the epoch's step number `index`, counted from 0."""
        first = index * self._accumulation
        end = min(first + self._accumulation, len(self._indices))
        return [self._batch(number) for number in range(first, end)]

    def _shares_of(self, targets: list[int]) -> Tensor:
        size = self._accumulation
        totals = [sum(targets[start : start + size]) for start in range(0, len(targets), size)]
        shares = [count / totals[number // size] for number, count in enumerate(targets)]
        return torch.tensor(shares)

    def _batch(self, number: int) -> MicroBatch:
        is_short = self._is_padded and number == len(self._indices) - 1
        inputs = self._split.batch(self._indices[number], self._num_real if is_short else None)
        if self._symbolic_size:
            for tensor in inputs.values():
                torch._dynamo.mark_dynamic(tensor, 0)
        return MicroBatch(inputs, self._shares[number])


class FixedBatches:
    """The first full windows of the first epoch, over and over again.

    They are made beforehand, so that a step's time is that of the step alone.
    """

    epoch = 0

    def __init__(self, split: Split, experiment: ExperimentSpec) -> None:
        """`split` is on the device of the steps."""
        training = replace(experiment.training, gradient_accumulation=experiment.batches_per_step)
        first_epoch = EpochBatches(split, training, self.epoch, symbolic_size=False)
        self._windows = [first_epoch.window(index) for index in range(experiment.num_fixed_batches)]

    def window(self, index: int) -> list[MicroBatch]:
        return self._windows[index % len(self._windows)]
