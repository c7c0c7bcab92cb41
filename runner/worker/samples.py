"""Samples as they are found: chosen from a file, the hub or a built-in set, not yet encoded."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from runner.errors import WorkloadError
from runner.spec import DataSpec
from runner.worker.reviews import generate_reviews

FILE_LOADERS = {".csv": "csv", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Texts, or images as one float tensor (samples, channels, height, width), and their labels."""

    train: Any
    train_labels: Sequence[str]
    evaluation: Any
    evaluation_labels: Sequence[str]


def choose_samples(data: DataSpec, seed: int) -> Samples:
    """The samples that the seed picks; raises `WorkloadError` for data that cannot be used."""
    if data.source == "builtin:digits":
        return _digits(data, seed)
    if data.source == "builtin:reviews":
        total = data.num_train_samples + data.num_eval_samples
        texts, labels = generate_reviews(total, seed)
        return _divide(texts, labels, data.num_train_samples)
    return _file_samples(data, seed) if data.is_file else _hub_samples(data, seed)


def _divide(samples: Any, labels: Sequence[str], num_train: int) -> Samples:
    return Samples(
        train=samples[:num_train],
        train_labels=labels[:num_train],
        evaluation=samples[num_train:],
        evaluation_labels=labels[num_train:],
    )


def _file_samples(data: DataSpec, seed: int) -> Samples:
    import datasets  # takes seconds, and built-in data does without

    path = Path(data.source).expanduser()
    if not path.is_file():
        raise WorkloadError(f"data.source = {data.source!r}: no such file")
    loader = FILE_LOADERS.get(path.suffix)
    if loader is None:
        known = ", ".join(FILE_LOADERS)
        raise WorkloadError(f"data.source = {data.source!r}: the file's name must end in {known}")
    try:
        table = datasets.load_dataset(loader, data_files=str(path), split="train")
    except Exception as error:
        cause = error.__cause__ or error
        raise WorkloadError(f"{path} cannot be read as {path.suffix[1:]}: {cause}") from error
    total = data.num_train_samples + data.num_eval_samples
    samples, labels = _choose(table, data, total, seed, str(path))
    return _divide(samples, labels, data.num_train_samples)


def _hub_samples(data: DataSpec, seed: int) -> Samples:
    import datasets  # takes seconds, and built-in data does without

    chosen = []
    for split, count in (
        (data.train_split, data.num_train_samples),
        (data.eval_split, data.num_eval_samples),
    ):
        try:
            table = datasets.load_dataset(data.source, split=split)
        except Exception as error:
            raise WorkloadError(
                f"data.source = {data.source!r}, split {split!r}: the hub has no such data set, or "
                f"cannot be reached and no copy is cached here. For a file give a path that ends "
                f"in .csv, .jsonl or .parquet. ({type(error).__name__}: {error})"
            ) from error
        chosen.append(_choose(table, data, count, seed, f"{data.source}, split {split!r}"))
    (train, train_labels), (evaluation, evaluation_labels) = chosen
    return Samples(
        train=train,
        train_labels=train_labels,
        evaluation=evaluation,
        evaluation_labels=evaluation_labels,
    )


def _choose(
    table: Any, data: DataSpec, count: int, seed: int, where: str
) -> tuple[list[str], list[str]]:
    """Shuffles a table and takes the first `count` texts and labels."""
    for column in (data.text_column, data.label_column):
        if column not in table.column_names:
            columns = ", ".join(table.column_names)
            raise WorkloadError(f"{where} has no column {column!r}; it has {columns}")
    if len(table) < count:
        raise WorkloadError(
            f"{where} has {len(table)} samples, but {count} were asked for; "
            "lower data.num_train_samples or data.num_eval_samples"
        )
    rows = table.shuffle(seed=seed).select(range(count))
    feature = table.features[data.label_column]
    name_of = getattr(feature, "int2str", str)
    labels = rows[data.label_column]
    if any(label is None for label in labels):
        raise WorkloadError(f"{where}: column {data.label_column!r} has rows without a label")
    texts = ["" if text is None else str(text) for text in rows[data.text_column]]
    return texts, [str(name_of(label)) for label in labels]


def _digits(data: DataSpec, seed: int) -> Samples:
    from sklearn.datasets import load_digits

    digits = load_digits()
    total = data.num_train_samples + data.num_eval_samples
    if total > len(digits.target):
        raise WorkloadError(
            f"builtin:digits has {len(digits.target)} samples, but {total} were asked for; "
            "lower data.num_train_samples or data.num_eval_samples"
        )
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(seed))
    chosen = order[:total].numpy()
    # Pixels come as 0 to 16; centred to -1 to 1, with one channel, as a ViT takes them.
    pixels = torch.tensor(digits.images[chosen], dtype=torch.float32).unsqueeze(1) / 8 - 1
    labels = [str(label) for label in digits.target[chosen]]
    return _divide(pixels, labels, data.num_train_samples)
