"""Labelled samples as tensors, in the parts that training, validation and testing take."""

import hashlib
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from breakeven.runner.specs.training import SplitName

IGNORE = -100
"""Label of what does not count, as in `torch.nn.CrossEntropyLoss.ignore_index`."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Encoded samples: model inputs by name, each with the samples first, and their labels."""

    inputs: dict[str, Tensor]
    labels: Tensor
    """Classes or numbers, (samples,); or one class for each token, (samples, tokens)."""
    num_targets: Tensor
    """How many targets each sample adds to the loss, (samples,) int64, always on the CPU."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def can_pad(self) -> bool:
        """Whether a batch can be filled up with samples that do not count."""
        return not self.labels.is_floating_point()

    def to(self, device: torch.device) -> "Split":
        inputs = {name: tensor.to(device) for name, tensor in self.inputs.items()}
        return replace(self, inputs=inputs, labels=self.labels.to(device))

    def batch(self, indices: Tensor, num_real: int | None = None) -> dict[str, Tensor]:
        """The samples at `indices`, as keyword arguments of the model.

        Samples from `num_real` on only fill the batch up: their labels become `IGNORE`.
        """
        batch = {name: tensor[indices] for name, tensor in self.inputs.items()}
        labels = self.labels[indices]
        if num_real is not None:
            labels[num_real:] = IGNORE
        return {**batch, "labels": labels}

    def for_epoch(self, seed: int) -> "Split":
        """The samples as one epoch trains on them; a task may change them from epoch to epoch."""
        return self


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Samples to train on, and others that are held out."""

    train: Split
    validation: Split
    test: Split | None = None
    labels: tuple[str, ...]
    """Name of each class; empty where labels are not classes of samples."""
    vocabulary_size: int | None
    """Tokens that the tokenizer knows; None without one."""

    @property
    def splits(self) -> dict[SplitName, Split]:
        """The parts that there are, by name."""
        splits: dict[SplitName, Split] = {"train": self.train, "validation": self.validation}
        if self.test is not None:
            splits["test"] = self.test
        return splits

    @property
    def majority_share(self) -> float | None:
        """Accuracy on the validation samples of always guessing their most frequent target.

        None where labels are numbers rather than classes.
        """
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
    """Encoded samples whose targets are all labels but `IGNORE`; everything on the CPU."""
    counts = torch.ones_like(labels) if labels.is_floating_point() else labels != IGNORE
    num_targets = counts.reshape(len(labels), -1).sum(1).long()
    return Split(inputs=inputs, labels=labels, num_targets=num_targets)


def tensor_bytes(tensor: Tensor) -> bytes:
    """The elements in their order, whatever their type."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    content: bytes = flat.view(torch.uint8).numpy().tobytes()
    return content
