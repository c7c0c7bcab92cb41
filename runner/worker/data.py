"""Labelled samples as tensors. Only those that were chosen are tokenized."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.errors import WorkloadError
from runner.spec import DataSpec, ModelSpec
from runner.worker.samples import Samples, choose_samples
from runner.worker.tokenizing import make_tokenizer


@dataclass(frozen=True, kw_only=True)
class Split:
    """Encoded samples: model inputs by name, each with the samples first, and labels (samples,)."""

    inputs: dict[str, Tensor]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "Split":
        inputs = {name: tensor.to(device) for name, tensor in self.inputs.items()}
        return Split(inputs=inputs, labels=self.labels.to(device))

    def batch(self, indices: Tensor) -> dict[str, Tensor]:
        """The samples at `indices`, as keyword arguments of the model."""
        batch = {name: tensor[indices] for name, tensor in self.inputs.items()}
        return {**batch, "labels": self.labels[indices]}


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Training and held-out samples; `labels` holds the name of each class."""

    train: Split
    evaluation: Split
    labels: tuple[str, ...]
    vocabulary_size: int | None
    """Tokens that the tokenizer knows; None for images."""

    @property
    def majority_share(self) -> float:
        """Accuracy on the held-out samples of always guessing their most frequent label."""
        return torch.bincount(self.evaluation.labels).max().item() / len(self.evaluation)

    @property
    def sha256(self) -> str:
        """Hash of all encoded samples, in their order."""
        digest = hashlib.sha256()
        for split in (self.train, self.evaluation):
            for tensor in (*split.inputs.values(), split.labels):
                digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()


def load_dataset(data: DataSpec, model: ModelSpec, seed: int) -> Dataset:
    """Chooses and encodes; raises `WorkloadError` for data that cannot be used as asked."""
    samples = choose_samples(data, seed)
    if isinstance(samples.train, Tensor):
        return _encode_images(samples)
    return _encode_texts(samples, data, model)


def _encode_labels(samples: Samples) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    names = tuple(sorted(set(samples.train_labels)))
    if len(names) < 2:
        raise WorkloadError(
            f"the training samples have one label only ({names[0]!r}): nothing can be learned. "
            "Take more samples or another label column"
        )
    unseen = sorted(set(samples.evaluation_labels) - set(names))
    if unseen:
        raise WorkloadError(
            f"the evaluation samples have labels that no training sample has: {', '.join(unseen)}. "
            f"The training samples have {', '.join(names)}. Take more training samples, or check "
            "data.label_column"
        )
    number = {name: index for index, name in enumerate(names)}
    train, evaluation = (
        torch.tensor([number[label] for label in labels])
        for labels in (samples.train_labels, samples.evaluation_labels)
    )
    return train, evaluation, names


def _encode_texts(samples: Samples, data: DataSpec, model: ModelSpec) -> Dataset:
    tokenizer = make_tokenizer(model, samples.train)
    train_labels, evaluation_labels, names = _encode_labels(samples)

    def encode(texts: Sequence[str], labels: Tensor) -> Split:
        inputs = tokenizer(
            list(texts),
            padding="max_length",
            truncation=True,
            max_length=data.sequence_length,
            return_tensors="pt",
        )
        return Split(inputs=dict(inputs), labels=labels)

    return Dataset(
        train=encode(samples.train, train_labels),
        evaluation=encode(samples.evaluation, evaluation_labels),
        labels=names,
        vocabulary_size=len(tokenizer),
    )


def _encode_images(samples: Samples) -> Dataset:
    train_labels, evaluation_labels, names = _encode_labels(samples)
    return Dataset(
        train=Split(inputs={"pixel_values": samples.train}, labels=train_labels),
        evaluation=Split(inputs={"pixel_values": samples.evaluation}, labels=evaluation_labels),
        labels=names,
        vocabulary_size=None,
    )
