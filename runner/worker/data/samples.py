"""Samples as they are found: chosen from a table or a built-in set, not yet encoded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from breakeven.runner.checks.data import is_folder
from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import DataSpec
from breakeven.runner.worker.data import tables
from breakeven.runner.worker.data.reviews import generate_reviews


@dataclass(frozen=True, kw_only=True)
class Part:
    """Samples of one split, and their labels; none where the task needs none."""

    samples: Any
    """Texts; images; or images as one float tensor (samples, channels, height, width)."""
    labels: Sequence[str]


Samples = dict[str, Part]
"""The parts `train`, `validation` and, if asked for, `test`. No two parts share a sample."""
Choose = Callable[[Any, int, str], Part]
"""So many samples of a table; the text says where they come from."""


def choose_texts(data: DataSpec, seed: int, *, labelled: bool = True) -> Samples:
    """The texts that the seed picks; raises `WorkloadError` for data that cannot be used.

    Without labels, blank texts are passed over: nothing can be learned from them.
    """
    if data.source == "builtin:reviews":
        counts = part_sizes(data)
        texts, labels = generate_reviews(sum(counts.values()), seed)
        return _deal_out(Part(samples=texts, labels=labels), counts)

    def choose(table: Any, count: int, where: str) -> Part:
        column = data.text_column
        tables.check_columns(table, (column, *((data.label_column,) if labelled else ())), where)
        if labelled:
            rows = tables.pick_rows(table, count, seed, where)
            labels = tables.label_names(rows, data.label_column, where)
        else:
            rows = tables.pick_rows(table, count, seed, where, column=column, accept=_has_words)
            labels = ()
        texts = ["" if text is None else str(text) for text in rows[column]]
        return Part(samples=texts, labels=labels)

    if data.is_file:
        return _divide(tables.open_file(data.source), data, choose)
    return _gather(data, choose)


def choose_images(data: DataSpec, seed: int) -> Samples:
    """The labelled images that the seed picks: digits as a tensor, all others as PIL images.

    Raises `WorkloadError` for data that cannot be used.
    """
    if data.source == "builtin:digits":
        return _deal_out(_digits(data, seed), part_sizes(data))

    def choose(table: Any, count: int, where: str) -> Part:
        column = (
            tables.IMAGE_COLUMN if data.is_file and is_folder(data.source) else data.text_column
        )
        tables.check_columns(table, (column, data.label_column), where)
        rows = tables.pick_rows(table, count, seed, where)
        labels = tables.label_names(rows, data.label_column, where)
        return Part(samples=tables.images(rows, column, where), labels=labels)

    if data.is_file:
        return _divide(tables.open_file(data.source, may_be_folder=True), data, choose)
    return _gather(data, choose)


def number_labels(samples: Samples) -> tuple[tuple[str, ...], dict[str, Tensor]]:
    """The names of the classes, and for each part its labels as their numbers, (samples,)."""
    names = tuple(sorted(set(samples["train"].labels)))
    if len(names) < 2:
        raise WorkloadError(
            f"the training samples have one label only ({names[0]!r}): nothing can be learned. "
            "Take more samples or another label column"
        )
    number = {name: index for index, name in enumerate(names)}
    for part, content in samples.items():
        unseen = sorted(set(content.labels) - set(names))
        if unseen:
            raise WorkloadError(
                f"the {part} samples have labels that no training sample has: "
                f"{', '.join(unseen)}. The training samples have {', '.join(names)}. Take more "
                "training samples, or check data.label_column"
            )
    return names, {
        part: torch.tensor([number[label] for label in content.labels])
        for part, content in samples.items()
    }


def part_sizes(data: DataSpec) -> dict[str, int]:
    """How many samples each part has, by its name."""
    sizes = {"train": data.num_train_samples, "validation": data.num_eval_samples}
    return sizes | ({"test": data.num_test_samples} if data.num_test_samples else {})


def _has_words(text: Any) -> bool:
    return text is not None and bool(str(text).strip())


def _deal_out(pool: Part, counts: Mapping[str, int]) -> Samples:
    """Gives each part its share of the pool, one after the other."""
    samples, start = {}, 0
    for name, count in counts.items():
        share = slice(start, start + count)
        samples[name] = Part(samples=pool.samples[share], labels=pool.labels[share])
        start += count
    return samples


def _divide(table: Any, data: DataSpec, choose: Choose) -> Samples:
    counts = part_sizes(data)
    return _deal_out(choose(table, sum(counts.values()), data.source), counts)


def _gather(data: DataSpec, choose: Choose) -> Samples:
    """Parts that name one split of the hub's data set share it, and none gets what another has."""
    counts = part_sizes(data)
    named = {"train": data.train_split, "validation": data.eval_split, "test": data.test_split}
    samples: Samples = {}
    for split in dict.fromkeys(named[part] for part in counts):
        sharing = {part: count for part, count in counts.items() if named[part] == split}
        table = tables.open_hub(data.source, split)
        pool = choose(table, sum(sharing.values()), f"{data.source}, split {split!r}")
        samples |= _deal_out(pool, sharing)
    return samples


def _digits(data: DataSpec, seed: int) -> Part:
    from sklearn.datasets import load_digits

    digits = load_digits()
    total = sum(part_sizes(data).values())
    if total > len(digits.target):
        raise WorkloadError(
            f"builtin:digits has {len(digits.target)} samples, but {total} were asked for; lower "
            "data.num_train_samples, data.num_eval_samples or data.num_test_samples"
        )
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(seed))
    chosen = order[:total].numpy()
    # Pixels come as 0 to 16; centred to -1 to 1, with one channel, as a ViT takes them.
    pixels = torch.tensor(digits.images[chosen], dtype=torch.float32).unsqueeze(1) / 8 - 1
    return Part(samples=pixels, labels=[str(label) for label in digits.target[chosen]])
