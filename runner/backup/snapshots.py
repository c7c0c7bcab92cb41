"""What a backup is on the disk: a folder for each time it was taken, whole in itself.

<backup folder>/
  20261122T021500Z/
    backup.json          what is in it: size, times and SHA-256 of every file; written last
    data/                the files of the data folder
  20261123T021500Z/      what did not change is the same file on the disk (a hard link)
  20261124T021500Z.incomplete/     one that goes on, or was cut off: never taken for whole
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from runner.errors import BackupUnusable, InvalidRunFolder
from runner.folders.inside import open_inside
from runner.texts import printable

FORMAT = 1
MANIFEST, CONTENT, INCOMPLETE = "backup.json", "data", ".incomplete"
NAME = re.compile(r"(\d{8}T\d{6}Z)(?:-(\d{1,9}))?")
"""When it was taken; several of one second, or after the clock was set back, count on."""
CHUNK = 2**20
MAX_MANIFEST_BYTES = 2**30


@dataclass(frozen=True)
class Entry:
    """A file of a backup. Times in nanoseconds; inode and change time are the original's, by which
    the next backup knows that it is as it was."""

    size: int
    written: int
    changed: int
    inode: int
    sha256: str
    mode: int = 0o644


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What `backup.json` says."""

    host: str
    source: str
    """The data folder, as it was called there."""
    begun: float
    ended: float
    """Seconds since the epoch."""
    files: dict[str, Entry]
    """By path below `data/`, with slashes."""
    left_out: dict[str, str]
    """What is no plain file or could not be copied, and why."""

    @property
    def num_bytes(self) -> int:
        return sum(entry.size for entry in self.files.values())


class Snapshot:
    """One whole backup."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content = path / CONTENT

    @property
    def name(self) -> str:
        return self.path.name

    def read(self) -> Manifest:
        """What is in it; raises `BackupUnusable`."""
        shown = printable(self.path)
        if self.name.endswith(INCOMPLETE):
            raise BackupUnusable(f"{shown} was cut off while it was taken: it is not whole")
        try:
            with open_inside(self.path, MANIFEST) as file:
                return _manifest(json.loads(file.read(MAX_MANIFEST_BYTES)))
        except FileNotFoundError:
            raise BackupUnusable(f"{shown} holds no {MANIFEST}: it is no whole backup") from None
        except (ValueError, TypeError, KeyError, RecursionError, InvalidRunFolder) as error:
            why = printable(error)
            raise BackupUnusable(f"{shown}/{MANIFEST} cannot be used: {why}") from None

    def write(self, manifest: Manifest) -> None:
        """Says what is in it, once all of it is on the disk."""
        content = {"format": FORMAT, **asdict(manifest)}
        with (self.path / MANIFEST).open("x") as file:
            json.dump(content, file, indent=0)
            file.flush()
            os.fsync(file.fileno())

    def open(self, name: str) -> BinaryIO:
        """A file of it; raises `FileNotFoundError`, or `InvalidRunFolder` for what is no plain
        file."""
        return open_inside(self.content, name)


def snapshots(folder: Path) -> list[Snapshot]:
    """Those that are whole by their name, the oldest first."""
    names = [name for name in _names(folder) if NAME.fullmatch(name)]
    return [Snapshot(folder / name) for name in sorted(names, key=place_in_time)]


def incomplete(folder: Path) -> list[Path]:
    """Those that go on or were cut off."""
    return [
        folder / name
        for name in _names(folder)
        if name.endswith(INCOMPLETE) and NAME.fullmatch(name.removesuffix(INCOMPLETE))
    ]


def place_in_time(name: str) -> tuple[str, int]:
    """By which names of backups are in order."""
    found = NAME.fullmatch(name.removesuffix(INCOMPLETE))
    assert found is not None
    return found[1], int(found[2] or 1)


def find(path: Path) -> Snapshot:
    """A backup itself, or the newest one in a folder of them; raises `BackupUnusable`."""
    if (path / MANIFEST).exists() or path.name.endswith(INCOMPLETE):
        return Snapshot(path)
    found = snapshots(path)
    if found:
        return found[-1]
    cut_off = incomplete(path)
    why = f"only {printable(cut_off[-1].name)}, which was cut off" if cut_off else "no backup"
    raise BackupUnusable(f"there is {why} in {printable(path)}")


def remove(path: Path) -> None:
    """Removes a backup, so that what is left of one that is half gone has another's name."""
    aside = path if path.name.endswith(INCOMPLETE) else path.with_name(path.name + INCOMPLETE)
    with suppress(FileNotFoundError):
        os.rename(path, aside)
        shutil.rmtree(aside)


def verify(snapshot: Snapshot, seen: set[tuple[int, int, str]]) -> Iterator[str]:
    """What is wrong with a backup, a sentence each; raises `BackupUnusable`.

    `seen` has the files that were found whole in other backups, which are read once.
    """
    manifest = snapshot.read()
    for name, entry in manifest.files.items():
        try:
            with snapshot.open(name) as file:
                found = os.fstat(file.fileno())
                key = (found.st_dev, found.st_ino, entry.sha256)
                if found.st_size != entry.size:
                    yield f"{printable(name)} has {found.st_size:,} bytes instead of {entry.size:,}"
                elif key not in seen and digest(file) != entry.sha256:
                    yield f"{printable(name)} is damaged: its content is another than was copied"
                else:
                    seen.add(key)
        except FileNotFoundError:
            yield f"{printable(name)} is missing"
        except (OSError, InvalidRunFolder) as error:
            yield f"{printable(name)} cannot be read: {printable(error)}"


def digest(file: BinaryIO) -> str:
    """The SHA-256 of what is left of a file."""
    found = hashlib.sha256()
    while chunk := file.read(CHUNK):
        found.update(chunk)
    return found.hexdigest()


def _manifest(content: dict[str, Any]) -> Manifest:
    if content.pop("format") != FORMAT:
        raise ValueError("another version of Breakeven wrote it")
    files = {_plain(name): Entry(**entry) for name, entry in content.pop("files").items()}
    for entry in files.values():
        numbers = (entry.size, entry.written, entry.changed, entry.inode, entry.mode)
        if not all(type(one) is int and one >= 0 for one in numbers):
            raise ValueError("a file's size or times are no numbers")
    return Manifest(files=files, **content)


def _plain(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise ValueError(f"{printable(name)} lies outside the backup")
    return name


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
