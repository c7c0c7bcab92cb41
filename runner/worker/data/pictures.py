"""Pictures of a table, each unpacked when it is asked for and no two at once.

A picture of a few kilobytes may unpack to half a gigabyte, its name may lead into the network, and
one of its formats is a program for another interpreter. So nothing is opened but plain files and
bytes, by decoders of pictures alone.
"""

import io
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, overload

import PIL.Image
import PIL.ImageOps

from breakeven.runner.errors import WorkloadError

FORMATS = {"PNG", "JPEG", "MPO", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF"}
MAX_PIXELS = 100_000_000
"""Of one picture: 400 MB unpacked; large cameras take 60 million."""


class Pictures(Sequence[PIL.Image.Image]):
    """Rows of a table whose `column` holds pictures, packed or by path, in colours."""

    def __init__(self, rows: Any, column: str, where: str) -> None:
        """`where` is what errors call the table."""
        self._rows, self._column, self._where = rows, column, where

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> PIL.Image.Image: ...
    @overload
    def __getitem__(self, place: slice) -> "Pictures": ...
    def __getitem__(self, place: int | slice) -> "PIL.Image.Image | Pictures":
        """Raises `WorkloadError` for what is no picture."""
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

    def __iter__(self) -> Iterator[PIL.Image.Image]:
        return (self[place] for place in range(len(self)))


def _unpacked(cell: dict[str, Any]) -> PIL.Image.Image:
    PIL.Image.init()
    known = sorted(FORMATS & PIL.Image.OPEN.keys())
    with _opened(cell) as source, PIL.Image.open(source, formats=known) as image:
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise ValueError(f"{width:,} x {height:,} pixels are more than {MAX_PIXELS:,}")
        image.load()
        return PIL.ImageOps.exif_transpose(image).convert("RGB")


def _opened(cell: dict[str, Any]) -> BinaryIO:
    """The bytes that a table holds, or those of the plain file that it names."""
    if cell["bytes"] is not None:
        return io.BytesIO(cell["bytes"])
    # A pipe would keep whoever opens it waiting for ever.
    file = os.fdopen(os.open(cell["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(f"{cell['path']} is no plain file")
    return file
