"""Tables of samples, through the library `datasets`: a file, a folder of images, or the hub.

An image of a few kilobytes may unpack to half a gigabyte, its name may be a network address, and
one format contains a program. So images are unpacked one by one when they are needed, only from
plain files and bytes, and only by the decoders of `FORMATS`.
"""

import glob
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, overload

from breakeven.runner.checks.data import locate
from breakeven.runner.errors import UnusableData, WorkloadError
from breakeven.runner.worker.data.hub import hub_advice

if TYPE_CHECKING:
    import PIL.Image

FORMATS = {"PNG", "JPEG", "MPO", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF"}
MAX_PIXELS = 100_000_000
"""Most pixels of an image: 400 MB unpacked; large cameras take 60 million."""
IMAGE_COLUMN = "image"
"""Column in which `datasets` puts the images of a folder."""


class Pictures(Sequence["PIL.Image.Image"]):
    """The images in `column` of a table, encoded or by path, as RGB."""

    def __init__(self, rows: Any, column: str, where: str) -> None:
        """`where` names the table in errors."""
        self._rows, self._column, self._where = rows, column, where

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> "PIL.Image.Image": ...
    @overload
    def __getitem__(self, place: slice) -> "Pictures": ...
    def __getitem__(self, place: int | slice) -> "PIL.Image.Image | Pictures":
        """Raises `WorkloadError` if the cell is not an image."""
        if isinstance(place, slice):
            chosen = self._rows.select(range(*place.indices(len(self))))
            return Pictures(chosen, self._column, self._where)
        try:
            return _unpacked(self._rows[place][self._column])
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            raise WorkloadError(
                f"{self._where}: column {self._column!r} does not hold images ({cause})"
            ) from error

    def __iter__(self) -> "Iterator[PIL.Image.Image]":
        return (self[place] for place in range(len(self)))


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
    name_of = getattr(rows.features[column], "int2str", str)
    labels = rows[column]
    if any(label is None for label in labels):
        raise WorkloadError(f"{where}: column {column!r} has rows without a label")
    return [str(name_of(label)) for label in labels]


def images(rows: Any, column: str, where: str) -> Sequence[Any]:
    """Every row's image as RGB; the column holds images, encoded images or paths of files."""
    import datasets

    try:
        return Pictures(rows.cast_column(column, datasets.Image(decode=False)), column, where)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise WorkloadError(f"{where}: column {column!r} does not hold images ({cause})") from error
