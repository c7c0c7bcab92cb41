"""Samples as tensors, in splits for training, validation and testing; their order in an epoch, and
its division into micro-batches and windows. One step trains on one window.
"""

import ctypes
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from breakeven.runner.specs.experiment import ExperimentSpec, TrainingSpec
from breakeven.runner.specs.training import SplitName

IGNORE = -100
"""Label of targets that do not count, as in `torch.nn.CrossEntropyLoss.ignore_index`."""
EPOCH_SEED_STRIDE = 1_000_003
"""Distance of seeds, so that epochs of neighbouring seeds differ in order."""
INDUCTOR_ALIGNMENT = 16
"""Alignment in bytes; Inductor's code copies unaligned inputs."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Encoded samples: model inputs by name, each with the samples first, and their labels."""

    inputs: dict[str, Tensor]
    labels: Tensor
    """Classes or numbers, (samples,); or one class for each token, (samples, tokens)."""
    num_targets: Tensor
    """Number of each sample's targets in the loss, (samples,) int64, always on the CPU."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def can_pad(self) -> bool:
        """Whether samples that do not count can pad a batch."""
        return not self.labels.is_floating_point()

    def to(self, device: torch.device) -> "Split":
        inputs = {name: tensor.to(device) for name, tensor in self.inputs.items()}
        return replace(self, inputs=inputs, labels=self.labels.to(device))

    def batch(self, indices: Tensor, num_real: int | None = None) -> dict[str, Tensor]:
        """The samples as arguments of the model; from `num_real` on, padding with labels
        `IGNORE`."""
        batch = {name: tensor[indices] for name, tensor in self.inputs.items()}
        labels = self.labels[indices]
        if num_real is not None:
            labels[num_real:] = IGNORE
        return {**batch, "labels": labels}

    def for_epoch(self, seed: int) -> "Split":
        """The samples for one epoch; a task may change them in each epoch."""
        return self


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Training samples and held-out samples."""

    train: Split
    validation: Split
    test: Split | None = None
    labels: tuple[str, ...]
    """Name of each class; empty if labels are not classes of samples."""
    vocabulary_size: int | None
    """Number of tokens that the tokenizer knows; None without a tokenizer."""

    @property
    def splits(self) -> dict[SplitName, Split]:
        """All splits by name."""
        splits: dict[SplitName, Split] = {"train": self.train, "validation": self.validation}
        if self.test is not None:
            splits["test"] = self.test
        return splits

    @property
    def majority_share(self) -> float | None:
        """Accuracy of always guessing the most frequent validation target; None if labels are
        numbers."""
        labels = self.validation.labels
        if labels.is_floating_point():
            return None
        _, counts = torch.unique(labels[labels != IGNORE], return_counts=True)
        return counts.max().item() / counts.sum().item() if len(counts) else None

    @property
    def padding_share(self) -> float | None:
        """Share of padding among the tokens of the training samples; None without tokens."""
        mask = self.train.inputs.get("attention_mask")
        return None if mask is None else 1 - mask.double().mean().item()

    @property
    def sha256(self) -> str:
        """Hash of all encoded samples, in their order."""
        digest = hashlib.sha256()
        for split in self.splits.values():
            for tensor in (*split.inputs.values(), split.labels):
                digest.update(tensor_bytes(tensor))
        return digest.hexdigest()


def make_split(inputs: dict[str, Tensor], labels: Tensor) -> Split:
    """Makes a split; all labels except `IGNORE` are targets. All tensors are on the CPU."""
    counts = torch.ones_like(labels) if labels.is_floating_point() else labels != IGNORE
    num_targets = counts.reshape(len(labels), -1).sum(1).long()
    return Split(inputs=inputs, labels=labels, num_targets=num_targets)


def own_part(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor that ranks share (DTensor); all of any other tensor."""
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()


def tensor_bytes(tensor: Tensor) -> bytes:
    """The bytes of all elements, of any type, in their order."""
    flat = own_part(tensor).detach().cpu().contiguous().reshape(-1)
    return ctypes.string_at(flat.data_ptr(), flat.nbytes)


class RankPart(NamedTuple):
    """One rank's part of every micro-batch, out of several equal parts."""

    rank: int = 0
    size: int = 1

    def select(self, batch: Tensor) -> Tensor:
        """This part of the samples; the last parts may be smaller or empty."""
        length = -(-len(batch) // self.size)
        return batch[self.rank * length : (self.rank + 1) * length]


WHOLE = RankPart()


class MicroBatch(NamedTuple):
    """The samples of one forward and backward pass."""

    inputs: dict[str, Tensor]
    """Keyword arguments of the model, including labels; samples are the first dimension."""
    share: Tensor
    """Its share of all targets of the optimizer step, 0-dimensional, on the device."""


class EpochBatches:
    """The micro-batches of one epoch, by optimizer step, in an order that the seed determines.

    The samples are ordered and divided into batches in advance, so that this costs no step any
    time. The epoch's last window has the remaining batches. The weight of a micro-batch is its
    share of the window's targets (samples or tokens), so a step equals that of one large batch.
    """

    def __init__(
        self,
        split: Split,
        training: TrainingSpec,
        epoch: int,
        part: RankPart = WHOLE,
        *,
        symbolic_size: bool,
    ) -> None:
        """`split` is on the training's device. Takes only `part` of each micro-batch. With
        `symbolic_size` a compiler sees the batch size as a symbol, so that a smaller batch needs no
        other code."""
        device = split.labels.device
        self.epoch = epoch
        self._accumulation = training.gradient_accumulation
        seed = training.seed * EPOCH_SEED_STRIDE + epoch
        samples = split.for_epoch(seed)
        order = torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))
        size = training.batch_size
        if training.last_batch == "drop":
            order = order[: len(order) // size * size]
        targets = samples.num_targets[order]
        num_real = len(order)
        if training.last_batch == "pad":
            order = torch.cat([order, order[:1].expand(-num_real % size)])
            targets = torch.cat([targets, targets.new_zeros(-num_real % size)])
        batches = _cut(samples.batch(order.to(device), num_real), size, part)
        if symbolic_size:
            for tensor in chain.from_iterable(batch.values() for batch in batches):
                torch._dynamo.mark_dynamic(tensor, 0)
        shares = self._target_shares(torch.split(targets, size), part).to(device).unbind()
        self._batches = [MicroBatch(*both) for both in zip(batches, shares, strict=True)]

    def window(self, index: int) -> list[MicroBatch]:
        """The micro-batches of the epoch's step number `index`, counted from 0."""
        first = index * self._accumulation
        return self._batches[first : first + self._accumulation]

    def _target_shares(self, targets: Sequence[Tensor], part: RankPart) -> Tensor:
        """Shares of targets, times the number of ranks, because gradients are averaged."""
        size = self._accumulation
        counts = [int(batch.sum()) for batch in targets]
        totals = [sum(counts[start : start + size]) for start in range(0, len(counts), size)]
        shares = [
            part.size * int(part.select(batch).sum()) / totals[number // size]
            for number, batch in enumerate(targets)
        ]
        return torch.tensor(shares)


class FixedBatches:
    """The first full windows of the first epoch, prepared in advance and repeated."""

    epoch = 0

    def __init__(self, split: Split, experiment: ExperimentSpec, part: RankPart = WHOLE) -> None:
        """`split` is on the device of the steps. Takes only `part` of each micro-batch."""
        training = replace(experiment.training, gradient_accumulation=experiment.batches_per_step)
        epoch = EpochBatches(split, training, self.epoch, part, symbolic_size=False)
        # Without copies, the rest of the epoch's samples would stay on the device.
        self._windows = [
            [_copied(batch) for batch in epoch.window(index)]
            for index in range(experiment.num_fixed_batches)
        ]

    def window(self, index: int) -> list[MicroBatch]:
        return self._windows[index % len(self._windows)]


Windows = EpochBatches | FixedBatches
"""Micro-batches by optimizer step."""


def _cut(samples: dict[str, Tensor], size: int, part: RankPart) -> list[dict[str, Tensor]]:
    columns = [
        [_aligned(part.select(batch)) for batch in torch.split(tensor, size)]
        for tensor in samples.values()
    ]
    return [dict(zip(samples, parts, strict=True)) for parts in zip(*columns, strict=True)]


def _copied(batch: MicroBatch) -> MicroBatch:
    inputs = {name: tensor.clone() for name, tensor in batch.inputs.items()}
    return MicroBatch(inputs, batch.share.clone())


def _aligned(part: Tensor) -> Tensor:
    """The tensor, copied if compiled code would otherwise copy it in every step."""
    return part if part.data_ptr() % INDUCTOR_ALIGNMENT == 0 else part.clone()
