"""What a run prints, kept within bounds, because a disk that a script fills with words is full for
all; and without secrets once it is over."""

import os
from contextlib import suppress
from pathlib import Path

from breakeven.runner.masking import mask

MAX_BYTES = 64_000_000
KEPT_BYTES = 4_000_000
"""Of the end, once there is more than the most."""


def cut_output(file: Path) -> None:
    """Cuts off all but the end of a file to which processes append, if it is too long.

    What is written while it is cut may be lost.
    """
    with suppress(OSError):
        if file.stat().st_size <= MAX_BYTES:
            return
        with file.open("r+b") as output:
            output.seek(-KEPT_BYTES, os.SEEK_END)
            kept = output.read()
            output.seek(0)
            output.write(b"[cut off: more than 64 MB were printed]\n" + kept)
            output.truncate()


def mask_output(file: Path) -> None:
    """Masks secrets in a file to which nobody writes any more; one without any stays as it is.

    Like everything here it stops nobody: pages mask what they read once more.
    """
    with suppress(OSError):
        if file.is_symlink() or not file.is_file():
            return
        cut_output(file)  # A folder from elsewhere may have come with a terabyte of nothing.
        text = file.read_text(errors="surrogateescape")
        masked = mask(text)
        if masked != text:
            with file.open("r+b") as output:
                output.write(masked.encode(errors="surrogateescape"))
                output.truncate()
