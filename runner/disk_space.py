"""How much space a disk has, and how much is needed."""

import re
import shutil
from pathlib import Path

from breakeven.runner.errors import NotEnoughDisk
from breakeven.runner.texts import printable

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?B)", re.IGNORECASE)
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}

FULL_BELOW_BYTES = 1_000_000
"""Below this a disk counts as full: a run could not even record its error."""
QUEUES_FROM_BYTES = 200_000_000
"""Journals of an experiment take a few MB; a cold compile cache takes up to about 100 MB."""


def parse_size(text: str) -> int:
    """Converts a size such as 20GB to bytes; raises `ValueError`."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} must be a size as 500MB, 20GB or 1TB")
    return int(float(match[1]) * UNITS[match[2].upper()])


def lacks_room(folder: Path) -> str | None:
    """The free and the needed space on a folder's disk, in words; None if there is enough, or if
    the disk cannot be read."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return None
    if free >= FULL_BELOW_BYTES:
        return None
    return (
        f"{free / 1e6:.2f} MB free in {printable(folder)}, {FULL_BELOW_BYTES / 1e6:.0f} MB needed"
    )


def require_room(folder: Path) -> None:
    """Raises `NotEnoughDisk` if a folder's disk has no room for a further experiment."""
    free = shutil.disk_usage(folder).free
    if free < QUEUES_FROM_BYTES:
        raise NotEnoughDisk(
            f"{folder} has {free / 1e6:.0f} MB free; an experiment needs "
            f"{QUEUES_FROM_BYTES / 1e6:.0f} MB. Free some space or choose another data folder."
        )
