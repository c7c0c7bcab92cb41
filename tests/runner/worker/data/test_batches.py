"""Which samples a step trains on."""

from itertools import chain

import pytest
import torch

from breakeven.runner.specs.experiment import TrainingSpec
from breakeven.runner.worker.data.splits import IGNORE, EpochBatches, Split, make_split


def split_of(num_samples: int) -> Split:
    numbers = torch.arange(num_samples)
    return make_split({"inputs": numbers}, numbers)


def epoch(num_samples: int, number: int = 0, **training: object) -> EpochBatches:
    spec = TrainingSpec(batch_size=4, seed=7, **training)  # type: ignore[arg-type]
    return EpochBatches(split_of(num_samples), spec, number, symbolic_size=False)


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


def test_samples_that_fill_no_batch_are_dropped_by_choice() -> None:
    assert [len(batch) for batch in samples(epoch(10), 2)] == [4, 4]


def test_a_padded_last_batch_is_full_and_its_fillers_do_not_count() -> None:
    batches = epoch(10, last_batch="pad")
    (last,) = batches.window(2)
    assert last.inputs["inputs"].shape == (4,)
    assert last.inputs["labels"][2:].tolist() == [IGNORE, IGNORE]
    assert sorted(chain(*samples(batches, 3))) == list(range(10))


def test_a_dynamic_last_batch_is_smaller() -> None:
    batches = epoch(10, last_batch="dynamic")
    assert [len(batch) for batch in samples(batches, 3)] == [4, 4, 2]


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


def test_targets_are_counted_by_token_where_labels_are_tokens() -> None:
    labels = torch.full((2, 3), IGNORE)
    labels[0, 0] = 5  # one target
    labels[1] = 5  # three
    spec = TrainingSpec(batch_size=1, gradient_accumulation=2, seed=7)
    batches = EpochBatches(make_split({"inputs": labels}, labels), spec, 0, symbolic_size=False)
    assert sorted(batch.share.item() for batch in batches.window(0)) == [0.25, 0.75]


def test_every_batch_lies_where_compiled_code_takes_it_as_it_is() -> None:
    """Batches of 3 numbers of 8 bytes: every second one would begin between multiples of 16."""
    spec = TrainingSpec(batch_size=3, seed=7)
    batches = EpochBatches(split_of(12), spec, 0, symbolic_size=False)
    tensors = [t for window in range(4) for t in batches.window(window)[0].inputs.values()]
    assert len(tensors) == 8
    assert all(tensor.data_ptr() % 16 == 0 for tensor in tensors)
    assert sorted(chain(*samples(batches, 4))) == list(range(12))
