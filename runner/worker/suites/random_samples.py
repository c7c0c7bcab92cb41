"""Random samples by the rules of the Dynamo harness."""

from collections.abc import Callable

import torch
from torch import Tensor

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.worker.data.splits import Dataset, Split, make_split

MakeSamples = Callable[[int, torch.Generator], tuple[dict[str, Tensor], Tensor]]
"""From a number of samples to the model's inputs by name and to the labels."""


def random_dataset(
    experiment: ExperimentSpec, make: MakeSamples, vocabulary_size: int | None = None
) -> Dataset:
    """As many samples as the experiment asks for; the same ones for the same seed."""
    generator = torch.Generator().manual_seed(experiment.training.seed)

    def split(count: int) -> Split:
        return make_split(*make(count, generator))

    data = experiment.data
    return Dataset(
        train=split(data.num_train_samples),
        validation=split(data.num_eval_samples),
        test=split(data.num_test_samples) if data.num_test_samples else None,
        labels=(),
        vocabulary_size=vocabulary_size,
    )
