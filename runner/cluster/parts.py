"""What of a run folder is not at home yet, part by part: files that only grow as prefixes, others
whole.

Whoever brings them home says what is there already, so that nothing is kept where they come from,
and a part that is asked for twice is the same part.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from breakeven.runner.errors import InvalidRunFolder
from breakeven.runner.folders.inside import open_inside
from breakeven.runner.folders.run_dir import UNFINISHED, RunDir
from breakeven.runner.folders.tree import walk

GROWING = ("events.jsonl", "output.log")
KEPT_AT_HOME = ("spec.json", "claim.json", "cancel", "labels.json", "devices.json",
                "attempts")  # fmt: skip
"""Whose writer is at home."""
NOT_SENT = (*KEPT_AT_HOME, "compile-cache", "work")
"""By which no path begins that comes home: what home writes, and code."""
LAST = "exit.json"
"""Goes home when all else is there: who reads it takes the rest for complete."""
PART_BYTES = 4_000_000
ARRIVING = ".arriving"
"""How the name of a file ends of which not all has come home."""


@dataclass(frozen=True)
class There:
    """What of a file is at home."""

    size: int
    version: int = 0
    """Of one that is sent whole, its time of change; one that only grows has none."""


Known = Mapping[str, There]
"""By path in the run folder."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a file."""

    run_id: str
    path: str
    offset: int
    data: bytes
    version: int = 0
    is_end: bool = False
    """Whether the file ends here, as it is now; of those that are sent whole."""


def missing(run: RunDir, known: Known, most_bytes: int = PART_BYTES) -> Iterator[Part]:
    """What is to be sent next, about so many bytes; nothing once all is at home.

    Files that are sent whole are listed before the journal is read: a checkpoint that comes home
    never has steps of which the journal there does not tell.
    """
    whole = [(path, *_version(run.path / path)) for path in _whole(run)]
    left = most_bytes
    for name in GROWING:
        for part in _grown(run, name, known.get(name, There(0)), left):
            left -= len(part.data)
            yield part
    for path, version, size in sorted(whole, key=lambda one: one[0] == LAST):
        there = known.get(path, There(0, -1))
        if (there.version, there.size) == (version, size):
            continue
        # Not before all of the journal is on its way, and exit.json not before all of the others.
        if left <= 0:
            return
        offset = there.size if there.version == version else 0
        data = _read(run, path, offset, left)
        if size and not data:  # a checkpoint that is no longer among the latest
            continue
        left -= len(data)
        yield Part(run_id=run.run_id, path=path, offset=offset, data=data, version=version,
                   is_end=offset + len(data) >= size)  # fmt: skip


def _grown(run: RunDir, name: str, there: There, most_bytes: int) -> Iterator[Part]:
    try:
        with open_inside(run.path, name) as opened:
            size = os.fstat(opened.fileno()).st_size
    except (OSError, InvalidRunFolder):
        return
    offset = there.size if size >= there.size else 0  # output.log is cut where it grows too long
    if size != there.size:
        data = _read(run, name, offset, most_bytes)
        yield Part(run_id=run.run_id, path=name, offset=offset, data=data)


def _read(run: RunDir, name: str, offset: int, most_bytes: int) -> bytes:
    """Nothing of what is no plain file of the folder, such as a link out of it or a pipe."""
    try:
        with open_inside(run.path, name) as opened:
            opened.seek(offset)
            return opened.read(max(0, most_bytes))
    except (OSError, InvalidRunFolder):
        return b""


def _version(file: Path) -> tuple[int, int]:
    try:
        found = file.lstat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _whole(run: RunDir) -> Iterator[str]:
    """Paths of plain files but for those that grow, those of home, and what is being written."""
    own = (run.compile_cache, run.workplace)
    for parent, folders, files in walk(run.path):
        here = Path(parent)
        folders[:] = sorted(name for name in folders if here / name not in (*own, run.attempts))
        for name in sorted(files):
            path = str((here / name).relative_to(run.path))
            if path in (*GROWING, *KEPT_AT_HOME) or name.startswith("."):
                continue
            if not name.endswith((UNFINISHED, ARRIVING)) and not (here / name).is_symlink():
                yield path


def at_home(run: RunDir) -> dict[str, There]:
    """What a folder has of the files that grow; the others are sent once more."""
    found = {}
    for name in GROWING:
        file = run.path / name
        if file.exists():
            found[name] = There(file.stat().st_size)
    return found


def store(run: RunDir, part: Part, known: dict[str, There]) -> None:
    """Puts a part into the folder at home and notes it in `known`.

    Raises `InvalidRunFolder` for a path that leads out of the folder, and `OSError`.
    """
    target = run.path / part.path
    inside = target.resolve().is_relative_to(run.path.resolve())
    names = Path(part.path).parts
    if not inside or not names or ".." in names or names[0] in NOT_SENT:
        raise InvalidRunFolder(f"{part.path!r} is no file that a run writes")
    target.parent.mkdir(parents=True, exist_ok=True)
    grows = part.path in GROWING
    file = target if grows else target.with_name(target.name + ARRIVING)
    mode = "wb" if part.offset == 0 else "r+b"
    with file.open(mode) as opened:
        opened.truncate(part.offset)
        opened.seek(part.offset)
        opened.write(part.data)
        if not grows:
            opened.flush()
            os.fsync(opened.fileno())
    if part.is_end:
        os.replace(file, target)
    known[part.path] = There(part.offset + len(part.data), part.version)
