"""Images of a table, as RGB.

An image of a few kilobytes may unpack to half a gigabyte, its name may be a network address, and
one format contains a program. So images are unpacked one by one when they are needed, only from
plain files and bytes, and only by the decoders of `FORMATS`.
"""

import io
import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from breakeven.runner.errors import WorkloadError

if TYPE_CHECKING:
    import PIL.Image

FORMATS = {"PNG", "JPEG", "MPO", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF"}

MAX_PIXELS = 100_000_000
"""Most pixels of an image: 400 MB unpacked; large cameras take 60 million."""


class LazyImages:
    """The images in `column` of a table, encoded or by path, as RGB; parts of them are slices."""

    def __init__(self, rows: Any, column: str, where: str) -> None:
        """`where` names the table in errors."""
        self._rows, self._column, self._where = rows, column, where

    def __getitem__(self, part: slice) -> "LazyImages":
        chosen = self._rows.select(range(*part.indices(len(self._rows))))
        return LazyImages(chosen, self._column, self._where)

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


def images_of(rows: Any, column: str, where: str) -> LazyImages:
    """Every row's image as RGB; the column holds images, encoded images or paths of files."""
    import datasets

    try:
        return LazyImages(rows.cast_column(column, datasets.Image(decode=False)), column, where)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise WorkloadError(f"{where}: column {column!r} does not hold images ({cause})") from error
