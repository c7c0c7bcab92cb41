"""Sizes as people write them, `500MB`, `20GB`, `1TB`; and whether the disk has room for what runs
write down."""

import re
import shutil
from pathlib import Path

from breakeven.runner.texts import printable

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?B)", re.IGNORECASE)
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}

MIN_FREE_BYTES = 1_000_000
"""Below that a disk counts as full: a run cannot even say what happened."""


def parse_size(text: str) -> int:
    """Bytes; raises `ValueError`."""
    found = SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} must be a size as 500MB, 20GB or 1TB")
    return int(float(found[1]) * UNITS[found[2].upper()])


def lacks_room(folder: Path) -> str | None:
    """What is free where a folder lies, and what is needed; None while there is enough, or where
    the folder cannot be looked at."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return None
    if free >= MIN_FREE_BYTES:
        return None
    return f"{free / 1e6:.2f} MB free in {printable(folder)}, {MIN_FREE_BYTES / 1e6:.0f} MB needed"
