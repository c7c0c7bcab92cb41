"""Copies a data folder whose runs go on, so that each run is in the copy as it was at one moment.

A run folder makes that possible: its journal is only appended to, and everything else is replaced
whole. So checkpoints are copied first and the journal after them, which then has every row that
a checkpoint relies on. If the run was claimed, ended or reopened meanwhile, it is copied again.
"""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from runner.backup.snapshots import CHUNK, Entry, Manifest, Snapshot, digest
from runner.folders.data_dir import DataDir, run_names
from runner.folders.inside import open_below
from runner.folders.library import room_of
from runner.folders.run_dir import UNFINISHED, RunDir
from runner.folders.tree import MAX_DEPTH, levels_below, walk
from runner.texts import printable

SMALL_BYTES, MAX_RATIO = 2**24, 100
"""No file system packs better than that, so that a larger file with less room is a hole: a folder
from elsewhere may have terabytes of it, which no disk for backups has."""
MOST_ATTEMPTS = 8
"""At a folder that changes while it is copied."""
COMPILE_CACHE, WORKPLACE = (getattr(RunDir(Path("run")), name).name
                            for name in ("compile_cache", "workplace"))  # fmt: skip


class Unsettled(Exception):
    """A folder changed each time that it was copied."""


class Copy:
    """A copy in the making; `earlier` is the backup before it, whose files it shares."""

    def __init__(self, data_dir: DataDir, target: Snapshot, earlier: Snapshot | None) -> None:
        self.files: dict[str, Entry] = {}
        self.left_out: dict[str, str] = {}
        self.bytes_copied = 0
        self._of_place: dict[str, set[str]] = {}
        """Names of files by the run folder, or what else of the data folder, that they lie in."""
        self._data_dir = data_dir
        self._root = data_dir.path
        self._target = target.content
        self._earlier = earlier
        self._known: Manifest | None = None if earlier is None else earlier.read()

    def make(self) -> None:
        """Copies everything but what is made anew from the rest: the index, locks, caches."""
        done: set[str] = set()
        while fresh := [name for name in run_names(self._data_dir.runs) if name not in done]:
            for name in fresh:
                self._copy_run(self._data_dir.run_dir(name))
            done.update(fresh)
            self._copy_others()

    def _copy_run(self, run: RunDir) -> None:
        place = f"{self._data_dir.runs.name}/{run.run_id}"
        for _ in range(MOST_ATTEMPTS):
            before = _record_stamps(run)
            try:
                self._mirror(place)
            except Unsettled:
                continue
            if before == _record_stamps(run):
                return
        if run.path.exists():
            self._leave_out(place, "it changed each time that it was copied")
        self._drop(place, set())

    def _copy_others(self) -> None:
        for entry in sorted(os.scandir(self._root), key=lambda one: one.name):
            if entry.name == self._data_dir.runs.name or self._is_made_anew(entry.name):
                continue
            try:
                self._mirror(entry.name)
            except Unsettled:
                self._leave_out(entry.name, "it changed each time that it was copied")

    def _is_made_anew(self, name: str) -> bool:
        database = self._data_dir.database_file.name
        return (name.startswith((database, ".")) or name.endswith(".lock")
                or name == self._data_dir.capabilities_file.name)  # fmt: skip

    def _mirror(self, place: str) -> None:
        """Copies a file, or all files below a folder as they are at one moment."""
        for _ in range(MOST_ATTEMPTS):
            names = sorted(self._files_of(place), key=_last_is_the_journal)
            self._drop(place, set(names))
            self._of_place[place] = set(names)
            if all([self._copy_file(name) for name in names]):
                return
        raise Unsettled(place)

    def _files_of(self, place: str) -> Iterator[str]:
        top = self._root / place
        if not top.is_dir() or top.is_symlink():
            if os.path.lexists(top):
                yield place
            return
        for parent, folders, files in walk(top):
            here = Path(parent)
            below = here.relative_to(self._root).as_posix()
            kept = [name for name in folders if not _is_passing(f"{below}/{name}")]
            folders[:] = [name for name in kept if not (here / name).is_symlink()]
            for name in sorted(set(kept) - set(folders)):
                self._leave_out(f"{below}/{name}", "a link")
            for name in folders if levels_below(top, parent) >= MAX_DEPTH else ():
                self._leave_out(f"{below}/{name}", f"in more than {MAX_DEPTH} folders")
            yield from (f"{below}/{name}" for name in files if not _is_passing(f"{below}/{name}"))

    def _drop(self, place: str, names: set[str]) -> None:
        """Takes out of the copy what is no longer there."""
        for name in self._of_place.get(place, set()) - names:
            self.files.pop(name, None)
            with suppress(FileNotFoundError):
                os.unlink(self._target / name)
        if not names:
            with suppress(OSError):
                shutil.rmtree(self._target / place)

    def _copy_file(self, name: str) -> bool:
        """Whether the file is in the copy, or need not be; False if it is gone."""
        try:
            # What lies directly in the data folder is the operator's, and may be a link.
            *first, last = PurePosixPath(name).parts
            descriptor = open_below(self._root.joinpath(*first[:1]), (*first[1:], last))
        except FileNotFoundError:
            return False
        except OSError as error:
            is_link = error.errno in (errno.ELOOP, errno.ENOTDIR)
            self._leave_out(name, "a link" if is_link else error.strerror or str(error))
            return True
        with os.fdopen(descriptor, "rb"):
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                self._leave_out(name, "no plain file")
                return True
            if found.st_size > SMALL_BYTES and found.st_size > MAX_RATIO * room_of(found):
                self._leave_out(name, f"{found.st_size:,} bytes that nobody wrote")
                return True
            entry = self.files.get(name)
            if entry is not None and _is_same(entry, found):
                return True
            target = self._target / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                os.unlink(target)
            sha256, size = self._shared(name, descriptor, target), found.st_size
            if sha256 is None:
                sha256, size = self._copied(descriptor, target)
                os.chmod(target, stat.S_IMODE(found.st_mode))
                os.utime(target, ns=(found.st_mtime_ns, found.st_mtime_ns))
            self.files[name] = Entry(size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino,
                                     sha256, stat.S_IMODE(found.st_mode))  # fmt: skip
            return True

    def _shared(self, name: str, descriptor: int, target: Path) -> str | None:
        """Makes the file the earlier backup's if that has the same; its SHA-256."""
        found = os.fstat(descriptor)
        known = None if self._known is None else self._known.files.get(name)
        if (known is None or self._earlier is None or known.mode != stat.S_IMODE(found.st_mode)
                or (known.size, known.written) != (found.st_size, found.st_mtime_ns)):  # fmt: skip
            return None
        if not _is_same(known, found):  # as after the data folder has moved
            with os.fdopen(os.dup(descriptor), "rb") as file:
                is_same = digest(file) == known.sha256
            os.lseek(descriptor, 0, os.SEEK_SET)
            if not is_same:
                return None
        try:
            with self._earlier.open(name) as there:
                if os.fstat(there.fileno()).st_size != known.size:
                    return None
            os.link(self._earlier.content / name, target, follow_symlinks=False)
        except OSError:  # It is gone, or this file system has no hard links.
            return None
        return known.sha256

    def _copied(self, descriptor: int, target: Path) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        with os.fdopen(os.dup(descriptor), "rb") as file, target.open("xb") as copy:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                copy.write(chunk)
                size += len(chunk)
        self.bytes_copied += size
        return digest.hexdigest(), size

    def _leave_out(self, name: str, why: str) -> None:
        self.left_out[printable(name, 1000)] = why


def _is_same(entry: Entry, found: os.stat_result) -> bool:
    return (entry.size, entry.written, entry.changed, entry.inode) == (
        found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)  # fmt: skip


def _record_stamps(run: RunDir) -> list[object]:
    """Differs once a run was claimed, ended, stopped, reopened or begun anew."""
    found: list[object] = []
    for file in (run.spec_file, run.claim_file, run.cancel_file, run.exit_file, run.attempts):
        with suppress(OSError):
            stamp = os.lstat(file)
            found.append((file, stamp.st_ino, stamp.st_mtime_ns))
    return found


def _last_is_the_journal(name: str) -> tuple[bool, str]:
    return Path(name).name.startswith("events.jsonl"), name


def _is_passing(name: str) -> bool:
    """What nobody needs once its writer is gone, by its path below the data folder. In the folder
    where a script works everything is the script's."""
    parts = PurePosixPath(name).parts
    if WORKPLACE in parts[2:3]:
        return False
    last = parts[-1]
    return last.startswith(".") or last.endswith(UNFINISHED) or parts[2:] == (COMPILE_CACHE,)
