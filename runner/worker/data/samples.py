"""Samples before encoding: chosen from a table of a file, a folder or the hub, or built in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from breakeven.runner.checks.data_file import is_folder
from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import DataSpec
from breakeven.runner.worker.data.data_sources import check_columns, open_file, open_hub
from breakeven.runner.worker.data.generated_reviews import generate_reviews
from breakeven.runner.worker.data.images import images_of

IMAGE_COLUMN = "image"
"""Column in which `datasets` puts the images of a folder."""


def pick_rows(
    table: Any,
    count: int,
    seed: int,
    where: str,
    *,
    column: str | None = None,
    accept: Callable[[Any], bool] = lambda value: True,
) -> Any:
    """Shuffles a table; returns the first `count` rows whose value in `column` is accepted."""
    shuffled = table.shuffle(seed=seed)
    values = range(len(shuffled)) if column is None else shuffled[column]
    indices = list(islice((i for i, value in enumerate(values) if accept(value)), count))
    if len(indices) < count:
        usable = "" if column is None else " usable"
        raise WorkloadError(
            f"{where} has {len(indices)}{usable} samples, but {count} are requested; lower "
            "data.num_train_samples, data.num_eval_samples or data.num_test_samples"
        )
    return shuffled.select(indices)


def label_names(rows: Any, column: str, where: str) -> Sequence[str]:
    """Every row's label as text: the name of its class if the table has names."""
    class_name = getattr(rows.features[column], "int2str", str)
    labels = rows[column]
    if any(label is None for label in labels):
        raise WorkloadError(f"{where}: column {column!r} has rows without a label")
    return [str(class_name(label)) for label in labels]


@dataclass(frozen=True, kw_only=True)
class LabelledSamples:
    """Samples of one split and their labels, if the task needs labels."""

    samples: Any
    """Texts; images; or images as one float tensor (samples, channels, height, width)."""
    labels: Sequence[str]


Samples = dict[str, LabelledSamples]
"""The parts `train`, `validation` and perhaps `test`. No two parts share a sample."""
Choose = Callable[[Any, int, str], LabelledSamples]
"""Takes a table, a number of samples, and the table's name for errors."""


def choose_texts(data: DataSpec, seed: int, *, labelled: bool = True) -> Samples:
    """Picks texts by the seed; raises `WorkloadError` for unusable data. Without labels, blank
    texts are left out, since a model cannot learn from them."""
    if data.source == "builtin:reviews":
        counts = part_sizes(data)
        texts, labels = generate_reviews(sum(counts.values()), seed)
        return _deal_out(LabelledSamples(samples=texts, labels=labels), counts)

    def choose(table: Any, count: int, where: str) -> LabelledSamples:
        column = data.text_column
        check_columns(table, (column, *((data.label_column,) if labelled else ())), where)
        if labelled:
            rows = pick_rows(table, count, seed, where)
            labels = label_names(rows, data.label_column, where)
        else:
            rows = pick_rows(
                table,
                count,
                seed,
                where,
                column=column,
                accept=lambda text: text is not None and bool(str(text).strip()),
            )
            labels = ()
        texts = ["" if text is None else str(text) for text in rows[column]]
        return LabelledSamples(samples=texts, labels=labels)

    return _choose_from(data, choose, may_be_folder=False)


def choose_images(data: DataSpec, seed: int) -> Samples:
    """Picks labelled images by the seed: digits as a tensor, all others as PIL images. Raises
    `WorkloadError` for unusable data."""
    if data.source == "builtin:digits":
        return _deal_out(_digits(data, seed), part_sizes(data))

    def choose(table: Any, count: int, where: str) -> LabelledSamples:
        column = IMAGE_COLUMN if data.is_file and is_folder(data.source) else data.text_column
        check_columns(table, (column, data.label_column), where)
        rows = pick_rows(table, count, seed, where)
        labels = label_names(rows, data.label_column, where)
        return LabelledSamples(samples=images_of(rows, column, where), labels=labels)

    return _choose_from(data, choose, may_be_folder=True)


def number_labels(samples: Samples) -> tuple[tuple[str, ...], dict[str, Tensor]]:
    """The names of the classes, and for each part its labels as class numbers, (samples,)."""
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
    """The number of samples of each part, by name."""
    sizes = {"train": data.num_train_samples, "validation": data.num_eval_samples}
    return sizes | ({"test": data.num_test_samples} if data.num_test_samples else {})


def _deal_out(pool: LabelledSamples, counts: Mapping[str, int]) -> Samples:
    """Divides the pool into parts of these sizes."""
    samples, start = {}, 0
    for name, count in counts.items():
        share = slice(start, start + count)
        samples[name] = LabelledSamples(samples=pool.samples[share], labels=pool.labels[share])
        start += count
    return samples


def _choose_from(data: DataSpec, choose: Choose, *, may_be_folder: bool) -> Samples:
    """The parts of a file or of splits on the hub; parts of one split divide its samples."""
    counts = part_sizes(data)
    if data.is_file:
        table = open_file(data.source, may_be_folder=may_be_folder)
        return _deal_out(choose(table, sum(counts.values()), data.source), counts)
    named = {"train": data.train_split, "validation": data.eval_split, "test": data.test_split}
    samples: Samples = {}
    for split in dict.fromkeys(named[part] for part in counts):
        sharing = {part: count for part, count in counts.items() if named[part] == split}
        table = open_hub(data.source, split)
        pool = choose(table, sum(sharing.values()), f"{data.source}, split {split!r}")
        samples |= _deal_out(pool, sharing)
    return samples


def _digits(data: DataSpec, seed: int) -> LabelledSamples:
    from sklearn.datasets import load_digits

    digits = load_digits()
    total = sum(part_sizes(data).values())
    if total > len(digits.target):
        raise WorkloadError(
            f"builtin:digits has {len(digits.target)} samples, but {total} are requested; lower "
            "data.num_train_samples, data.num_eval_samples or data.num_test_samples"
        )
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(seed))
    chosen = order[:total].numpy()
    # Converts pixels from 0 to 16 into -1 to 1, with one channel, as a ViT expects.
    pixels = torch.tensor(digits.images[chosen], dtype=torch.float32).unsqueeze(1) / 8 - 1
    return LabelledSamples(samples=pixels, labels=[str(label) for label in digits.target[chosen]])
