"""Which samples a step trains on, and what is known of a split and of all data."""

import hashlib
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch

from breakeven.runner.specs.experiment import TrainingSpec
from breakeven.runner.worker.data.splits import IGNORE, Dataset, EpochBatches, make_split


def epoch(num_samples: int, number: int = 0, **training: Any) -> EpochBatches:
    spec = TrainingSpec(**{"batch_size": 4, "seed": 7, **training})
    numbers = torch.arange(num_samples)
    split = make_split({"inputs": numbers}, numbers)
    return EpochBatches(split, spec, number, symbolic_size=False)


def samples(batches: EpochBatches, num_windows: int) -> list[list[int]]:
    """Samples by micro-batch, those that do not count left out."""
    return [
        [label for label in batch.inputs["labels"].tolist() if label != IGNORE]
        for window in range(num_windows)
        for batch in batches.window(window)
    ]


def test_every_epoch_sees_every_sample_at_most_once_in_another_order() -> None:
    epochs = [list(chain(*samples(epoch(26, number), 6))) for number in (0, 1)]
    assert all(len(set(order)) == 24 for order in epochs)
    assert epochs[0] != epochs[1]


def test_the_last_batch_is_filled_up_with_what_does_not_count_or_smaller() -> None:
    padded, smaller = (epoch(10, last_batch=way) for way in ("pad", "dynamic"))
    (last,) = padded.window(2)
    assert last.inputs["inputs"].shape == (4,)
    assert last.inputs["labels"][2:].tolist() == [IGNORE, IGNORE]
    assert smaller.window(2)[0].inputs["inputs"].shape == (2,)
    for batches in (padded, smaller):
        assert sorted(chain(*samples(batches, 3))) == list(range(10))


@pytest.mark.parametrize("last_batch", ["pad", "dynamic"])
def test_micro_batches_weigh_by_their_share_of_the_targets(last_batch: str) -> None:
    # Batches of 4, 4 and 2 samples: a window of two, then one of the last alone.
    batches = epoch(10, last_batch=last_batch, gradient_accumulation=2)
    assert [batch.share.item() for batch in batches.window(0)] == [0.5, 0.5]
    assert [batch.share.item() for batch in batches.window(1)] == [1.0]
    # In a window of three the last one has 2 of 10 samples.
    batches = epoch(10, last_batch=last_batch, gradient_accumulation=3)
    shares = [batch.share.item() for batch in batches.window(0)]
    assert shares == pytest.approx([0.4, 0.4, 0.2])


def test_targets_are_counted_for_each_sample_and_by_token_where_labels_are_tokens() -> None:
    for labels, counts in (
        ([0, 1, IGNORE], [1, 1, 0]),
        ([[IGNORE, 4, 5], [IGNORE, 6, IGNORE]], [2, 1]),
        ([0.5, 1.5], [1, 1]),
        ([[0.5, 1.5, 2.5]], [3]),
    ):
        split = make_split({}, torch.tensor(labels))
        assert split.num_targets.dtype == torch.int64 and split.num_targets.tolist() == counts
    tokens = torch.tensor([[5, IGNORE, IGNORE], [5, 5, 5]])
    spec = TrainingSpec(batch_size=1, gradient_accumulation=2, seed=7)
    batches = EpochBatches(make_split({"inputs": tokens}, tokens), spec, 0, symbolic_size=False)
    assert sorted(batch.share.item() for batch in batches.window(0)) == [0.25, 0.75]


def test_every_batch_lies_where_compiled_code_takes_it_as_it_is() -> None:
    """Batches of 3 numbers of 8 bytes: every second one would begin between multiples of 16."""
    batches = epoch(12, batch_size=3)
    tensors = [t for window in range(4) for t in batches.window(window)[0].inputs.values()]
    assert len(tensors) == 8
    assert all(tensor.data_ptr() % 16 == 0 for tensor in tensors)
    assert sorted(chain(*samples(batches, 4))) == list(range(12))


def test_a_batch_holds_the_requested_samples_and_its_fillers_lose_their_labels() -> None:
    split = make_split({"x": torch.arange(8.0).reshape(4, 2)}, torch.tensor([0, 1, 2, 1]))
    batch = split.batch(torch.tensor([2, 0]))
    assert batch["x"].tolist() == [[4, 5], [0, 1]] and batch["labels"].tolist() == [2, 0]
    batch = split.batch(torch.tensor([3, 0, 0]), num_real=1)
    assert batch["labels"].tolist() == [1, IGNORE, IGNORE]
    assert split.labels.tolist() == [0, 1, 2, 1]
    assert split.can_pad
    assert not make_split({"x": torch.zeros(2, 1)}, torch.tensor([0.5, 1.0])).can_pad


def with_validation(labels: torch.Tensor) -> Dataset:
    split = make_split({"x": torch.zeros(len(labels), 1)}, labels)
    return Dataset(train=split, validation=split, labels=(), vocabulary_size=None)


def test_the_majority_share_is_the_accuracy_of_always_guessing_the_commonest() -> None:
    assert with_validation(torch.tensor([0, 1, 1, 2])).majority_share == 0.5  # two of four
    # Of tokens only targets count: three, of which two are 7.
    tokens = torch.tensor([[IGNORE, 7, 7], [3, IGNORE, IGNORE]])
    assert with_validation(tokens).majority_share == pytest.approx(2 / 3)
    assert with_validation(torch.tensor([0.5, 0.5])).majority_share is None


def test_the_hash_of_the_data_depends_on_samples_and_their_order_alone() -> None:
    labels = torch.tensor([0, 1])
    data = with_validation(labels)
    counted = replace(data.train, num_targets=torch.tensor([5, 5]))
    assert replace(data, train=counted).sha256 == data.sha256
    assert with_validation(labels.flip(0)).sha256 != data.sha256
    # In each split `x`, two float32 zeros, then two int64 labels.
    content = torch.zeros(2).numpy().tobytes() + labels.numpy().tobytes()
    assert data.sha256 == hashlib.sha256(content * 2).hexdigest()
    assert replace(data, test=data.train).sha256 == hashlib.sha256(content * 3).hexdigest()
