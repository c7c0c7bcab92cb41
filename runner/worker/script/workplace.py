"""The working folder of a script: each run has a copy.

Scripts read and write in their own folder. In a common folder, the runs of an experiment would
overwrite each other's checkpoints, and perhaps the user's. Small files are copied. Large files are
data; they are linked, which costs nothing.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

LARGEST_COPIED_BYTES = 16_000_000
MAX_COPIED_BYTES = 500_000_000
"""Bytes copied altogether; further files are linked."""
MAX_FILES = 20_000
"""Number of files after which whole folders are linked."""
NOT_TAKEN = {"__pycache__", "node_modules", "venv", "env"}
"""Folders left out, like hidden folders such as `.git`: no script reads them by path."""


def make_workplace(folder: Path, place: Path) -> list[str]:
    """Copies `folder` to `place` without replacing files there; returns the linked names."""
    place.mkdir(parents=True, exist_ok=True)
    linked: list[str] = []
    copied, files = 0, 0
    for parent, folders, names in os.walk(folder):
        here = place / Path(parent).relative_to(folder)
        taken = [name for name in folders if _is_taken(Path(parent, name), place)]
        folders[:] = taken if files < MAX_FILES else []
        for name in taken:
            if files < MAX_FILES and not os.path.islink(Path(parent, name)):
                (here / name).mkdir(exist_ok=True)
            else:
                linked += _link(Path(parent, name), here / name, folder)
        for name in names:
            file, size = Path(parent, name), _size(Path(parent, name))
            if size is None or os.path.lexists(here / name):
                continue
            files += 1
            if size <= LARGEST_COPIED_BYTES and copied + size <= MAX_COPIED_BYTES:
                shutil.copy2(file, here / name)
                copied += size
            else:
                linked += _link(file, here / name, folder)
    return linked


def tidy(folder: Path, place: Path) -> None:
    """Removes copies and links of `make_workplace` that the script has not changed; its own files
    remain."""
    for parent, folders, names in os.walk(place, topdown=False):
        original = folder / Path(parent).relative_to(place)
        for name in [*names, *folders]:
            mine, theirs = Path(parent, name), original / name
            if mine.is_symlink() or (mine.is_file() and _is_same(mine, theirs)):
                mine.unlink()
        if Path(parent) != place and not any(Path(parent).iterdir()):
            Path(parent).rmdir()


def _is_taken(folder: Path, place: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name in NOT_TAKEN
    is_environment = (folder / "pyvenv.cfg").exists()
    return not (hidden or is_environment or place.is_relative_to(folder))


def _size(file: Path) -> int | None:
    """Size in bytes; None for pipes and the like, and for unreadable files."""
    try:
        return file.stat().st_size if file.is_file() and os.access(file, os.R_OK) else None
    except OSError:
        return None


def _link(original: Path, here: Path, folder: Path) -> Iterator[str]:
    if not os.path.lexists(here):
        here.symlink_to(original.resolve())
    yield str(original.relative_to(folder))


def _is_same(mine: Path, theirs: Path) -> bool:
    try:
        one, other = mine.stat(), theirs.stat()
    except OSError:
        return False
    return (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)
