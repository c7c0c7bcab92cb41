"""Samples before encoding: from a file, a folder of images or the hub, through the library
`datasets`; or a built-in data set.

An image of a few kilobytes may unpack to half a gigabyte, its name may be a network address, and
one format contains a program. So images are unpacked one by one when they are needed, only from
plain files and bytes, and only by the decoders of `FORMATS`.

A generator writes the built-in reviews, so that labelled text needs no network. Most sentences have
phrases whose sentiment is near the review's stars; some are neutral or misleading. So a model can
learn the stars, but not at once.
"""

import glob
import io
import os
import random
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
from torch import Tensor

from breakeven.runner.checks.data_file import is_folder, locate
from breakeven.runner.errors import UnusableData, WorkloadError
from breakeven.runner.specs.experiment import DataSpec
from breakeven.runner.worker.data.hub import hub_advice

if TYPE_CHECKING:
    import PIL.Image

FORMATS = {"PNG", "JPEG", "MPO", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF"}
MAX_PIXELS = 100_000_000
"""Most pixels of an image: 400 MB unpacked; large cameras take 60 million."""
IMAGE_COLUMN = "image"
"""Column in which `datasets` puts the images of a folder."""


class Pictures:
    """The images in `column` of a table, encoded or by path, as RGB; parts of them are slices."""

    def __init__(self, rows: Any, column: str, where: str) -> None:
        """`where` names the table in errors."""
        self._rows, self._column, self._where = rows, column, where

    def __getitem__(self, part: slice) -> "Pictures":
        chosen = self._rows.select(range(*part.indices(len(self._rows))))
        return Pictures(chosen, self._column, self._where)

    def __iter__(self) -> "Iterator[PIL.Image.Image]":
        """Raises `WorkloadError` for a cell that is not an image."""
        for row in self._rows:
            try:
                image = _unpacked(row[self._column])
            except Exception as error:
                cause = f"{type(error).__name__}: {error}"
                raise WorkloadError(
                    f"{self._where}: column {self._column!r} does not hold images ({cause})"
                ) from error
            yield image


def _unpacked(cell: dict[str, Any]) -> "PIL.Image.Image":
    import PIL.Image
    import PIL.ImageOps

    PIL.Image.init()
    known = sorted(FORMATS & PIL.Image.OPEN.keys())
    with _opened(cell) as source, PIL.Image.open(source, formats=known) as image:
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise ValueError(f"{width:,} x {height:,} pixels are more than {MAX_PIXELS:,}")
        image.load()
        return PIL.ImageOps.exif_transpose(image).convert("RGB")


def _opened(cell: dict[str, Any]) -> BinaryIO:
    """The bytes in the cell, or the plain file that it names."""
    if cell["bytes"] is not None:
        return io.BytesIO(cell["bytes"])
    # With a pipe, this process would wait for ever.
    file = os.fdopen(os.open(cell["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(f"{cell['path']} is no plain file")
    return file


def open_file(source: str, *, may_be_folder: bool) -> Any:
    """All rows of a file, or the images of a folder with a subfolder for each label."""
    import datasets  # takes seconds; built-in data does not need it

    try:
        path = locate(source, may_be_folder=may_be_folder)
    except UnusableData as error:
        raise WorkloadError(f"data.source = {source!r}: {error}") from None
    # The library treats paths as patterns: `a[1].csv` would match `a1.csv`.
    literal = glob.escape(str(path))
    if path.is_dir():
        loader, files = "imagefolder", {"data_dir": literal}
    else:
        kind = path.name.removesuffix(".gz").rpartition(".")[2]
        loader, files = kind.replace("jsonl", "json"), {"data_files": literal}
    try:
        return datasets.load_dataset(loader, split="train", **files)
    except Exception as error:
        cause = error.__cause__ or error
        raise WorkloadError(f"{path} cannot be read as {loader}: {cause}") from error


def open_hub(source: str, split: str) -> Any:
    """All rows of one split of a data set on the hub."""
    import datasets  # takes seconds; built-in data does not need it

    try:
        return datasets.load_dataset(source, split=split)
    except Exception as error:
        raise WorkloadError(
            f"data.source = {source!r}, split {split!r}: {hub_advice(error)} For a file give a "
            "path that ends in .csv, .jsonl or .parquet"
        ) from error


def check_columns(table: Any, columns: Iterable[str], where: str) -> None:
    """Raises `WorkloadError` for the first column that the table lacks."""
    for column in columns:
        if column not in table.column_names:
            present = ", ".join(table.column_names)
            raise WorkloadError(f"{where} has no column {column!r}; it has {present}")


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


def images(rows: Any, column: str, where: str) -> Pictures:
    """Every row's image as RGB; the column holds images, encoded images or paths of files."""
    import datasets

    try:
        return Pictures(rows.cast_column(column, datasets.Image(decode=False)), column, where)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise WorkloadError(f"{where}: column {column!r} does not hold images ({cause})") from error


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
        return LabelledSamples(samples=images(rows, column, where), labels=labels)

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


NUM_STARS = 5
_SUBJECTS = (
    "the soup",
    "our waiter",
    "the room",
    "this phone",
    "the battery",
    "the view",
    "my haircut",
    "the delivery",
    "the second season",
    "the breakfast",
    "the sound",
    "their support line",
)
_VERDICTS: tuple[tuple[str, ...], ...] = (
    ("was an insult", "fell apart within a day", "made me ill", "was the worst in years"),
    ("disappointed me", "was rather poor", "took far too long", "cost more than it gave"),
    ("was all right", "did its job", "was neither good nor bad", "matched the price"),
    ("was a pleasant surprise", "worked very well", "was good value", "made us smile"),
    ("was flawless", "exceeded every hope", "was the best in years", "deserves an award"),
)
_FILLERS = (
    "we came on a Tuesday",
    "my sister had recommended it",
    "it rained the whole time",
    "parking was around the corner",
    "I had read about it before",
    "there were four of us",
)
_CLOSINGS: tuple[tuple[str, ...], ...] = (
    ("never again", "I want my money back"),
    ("I would not return", "look elsewhere first"),
    ("I might come back", "it is fine for once"),
    ("I will come again", "worth a try"),
    ("I cannot praise it enough", "go, at once"),
)


def generate_reviews(num_reviews: int, seed: int) -> tuple[list[str], list[str]]:
    """Texts and their labels ("1" to "5" stars), the same for the same seed."""
    rng = random.Random(seed)
    stars = [rng.randrange(NUM_STARS) for _ in range(num_reviews)]
    return [_review(rng, star) for star in stars], [str(star + 1) for star in stars]


def _review(rng: random.Random, star: int) -> str:
    sentences = []
    for _ in range(rng.randint(2, 6)):
        if rng.random() < 0.3:
            sentences.append(rng.choice(_FILLERS))
        else:
            sentences.append(f"{rng.choice(_SUBJECTS)} {rng.choice(_VERDICTS[_near(rng, star)])}")
    sentences.append(rng.choice(_CLOSINGS[_near(rng, star)]))
    return ". ".join(sentence[0].upper() + sentence[1:] for sentence in sentences) + "."


def _near(rng: random.Random, star: int) -> int:
    """Usually the star itself, sometimes a neighbour."""
    shift = rng.choices((0, -1, 1), weights=(8, 1, 1))[0]
    return min(max(star + shift, 0), NUM_STARS - 1)
