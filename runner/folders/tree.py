"""Folders below folders, however deep somebody nested them.

Python before 3.12 walks by recursion, and before 3.13 removes so: a folder in a thousand others
would end whoever looks at it. No run writes deeper than a dozen.
"""

import os
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

MAX_DEPTH = 60
"""Folders below which nothing is looked at."""
REACH = 10
"""Levels below which folders are brought up to be removed: names of 255 bytes make no longer a path
than the system takes."""


def walk(top: Path, depth: int = MAX_DEPTH) -> Iterator[tuple[str, list[str], list[str]]]:
    """`os.walk` of so many levels below `top`; what it yields last has folders, and stops there."""
    for parent, folders, files in os.walk(top):
        yield parent, folders, files
        if levels_below(top, parent) >= depth:
            folders.clear()


def levels_below(top: Path, parent: str) -> int:
    """How deep a folder that `walk` gave lies."""
    return parent.count(os.sep) - os.fspath(top).count(os.sep)


def remove(folder: Path) -> None:
    """`shutil.rmtree`, of folders of any depth; raises `OSError`."""
    try:
        shutil.rmtree(folder)
    except RecursionError:
        _bring_up(folder)
        shutil.rmtree(folder)


def _bring_up(folder: Path) -> None:
    """Moves what lies deep to the top, and what lies deep in that, until nothing does."""
    taken = {entry.name for entry in folder.iterdir()}
    names = (name for number in count() if (name := f"deep-{number}") not in taken)
    tops = [folder]
    while tops:
        deep = [Path(parent, name) for top in tops for parent, folders, _files in walk(top, REACH)
                if levels_below(top, parent) == REACH for name in folders]  # fmt: skip
        tops = [folder / next(names) for _ in deep]
        for one, place in zip(deep, tops, strict=True):
            os.rename(one, place)
