"""Takes a backup, and brings one back."""

import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from runner.backup.copying import Copy
from runner.backup.snapshots import (
    CONTENT,
    INCOMPLETE,
    Manifest,
    Snapshot,
    digest,
    incomplete,
    place_in_time,
    remove,
    snapshots,
)
from runner.errors import BackupUnusable, InvalidRunFolder, RunnerError
from runner.folders.data_dir import DataDir
from runner.folders.process import ProcessIdentity
from runner.locks import FileLock
from runner.texts import printable

RESTORING = ".restoring"


@dataclass(frozen=True, kw_only=True)
class Made:
    """A backup that was taken."""

    snapshot: Snapshot
    manifest: Manifest
    bytes_copied: int
    """Of files that the backup before it did not have."""
    removed: tuple[str, ...]
    """Names of older ones that went, and of those that were cut off."""


def back_up(data_dir: DataDir, folder: Path, keep: int | None = None) -> Made:
    """Takes a backup of the data folder into a folder of backups, and keeps the newest so many.

    Trainings may go on meanwhile. Raises `BackupUnusable` for a place that cannot be used, and
    `OSError`, for instance for a full disk; then what is there has a name that says so.
    """
    folder = folder.expanduser().resolve()
    if not data_dir.path.is_dir():
        raise BackupUnusable(f"there is no data folder {printable(data_dir.path)} to back up")
    if folder.is_relative_to(data_dir.path) or data_dir.path.is_relative_to(folder):
        raise BackupUnusable(
            f"{printable(folder)} and the data folder {printable(data_dir.path)} lie one in the "
            "other: choose a folder elsewhere, on another disk if there is one"
        )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _alone(folder):
        removed = [path.name for path in incomplete(folder)]
        for path in incomplete(folder):  # Who made them is dead: the lock is ours.
            remove(path)
        begun = time.time()
        target = _new(folder)
        copy = Copy(data_dir, target, _newest(folder))
        copy.make()
        manifest = Manifest(
            host=socket.gethostname(),
            source=str(data_dir.path),
            begun=begun,
            ended=time.time(),
            files=copy.files,
            left_out=copy.left_out,
        )
        os.sync()  # Only then may it be said to be whole.
        target.write(manifest)
        whole = Snapshot(folder / target.name.removesuffix(INCOMPLETE))
        os.rename(target.path, whole.path)
        _sync(folder)
        old = snapshots(folder)[:-keep] if keep else []
        for one in old:
            remove(one.path)
        return Made(snapshot=whole, manifest=manifest, bytes_copied=copy.bytes_copied,
                    removed=(*removed, *(one.name for one in old)))  # fmt: skip


def restore(snapshot: Snapshot, data_dir: DataDir) -> int:
    """Copies a backup into a data folder that is empty or not there; returns how many files.

    Runs that went on when it was taken are then orphans, which the next supervisor lets go on from
    their checkpoints, begin anew or records as lost. Raises `BackupUnusable` for a backup that is
    not whole or damaged and for a folder that holds something; then nothing is at its place.
    """
    manifest = snapshot.read()
    for name in manifest.files:
        # Pages believe their index, and a database can hold more than rows: none is brought along.
        if PurePosixPath(name).parts[0].startswith(data_dir.database_file.name):
            raise BackupUnusable(f"{printable(snapshot.path)} holds {printable(name)}, which no "
                                 "backup does: somebody changed it")  # fmt: skip
    staging = data_dir.path / RESTORING
    if data_dir.path.is_dir() and set(os.listdir(data_dir.path)) == {RESTORING}:
        shutil.rmtree(staging)  # of a restoration that was cut off
    if os.path.lexists(data_dir.path) and (
        not data_dir.path.is_dir() or any(data_dir.path.iterdir())
    ):
        raise BackupUnusable(
            f"{printable(data_dir.path)} is not empty, and nothing is written over it: restore "
            "into another folder (--data-folder), or move this one away first"
        )
    staging.mkdir(parents=True)
    for name, entry in manifest.files.items():
        target = staging / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with snapshot.open(name) as file, target.open("xb") as copy:
                shutil.copyfileobj(file, copy)
            with target.open("rb") as file:
                is_whole = digest(file) == entry.sha256
        except (FileNotFoundError, InvalidRunFolder) as error:
            raise BackupUnusable(_lacking(snapshot, name, printable(error))) from None
        if not is_whole:
            raise BackupUnusable(_lacking(snapshot, name, "its content is not what was copied"))
        os.chmod(target, entry.mode & 0o777)
        os.utime(target, ns=(entry.written, entry.written))
    _vacate(DataDir(staging), manifest.host)
    os.sync()
    # The runs last: until then there is nothing that a dashboard or a supervisor could begin with.
    for name in sorted(os.listdir(staging), key=lambda name: name == data_dir.runs.name):
        os.rename(staging / name, data_dir.path / name)
    os.rmdir(staging)
    return len(manifest.files)


def _vacate(data_dir: DataDir, host: str) -> None:
    """Runs that had not ended where the backup was taken: nobody runs them here."""
    nobody = ProcessIdentity(pid=1, started="")
    for run in data_dir.run_dirs():
        with suppress(RunnerError):
            claim = run.read_claim()
            if claim is not None and not run.is_recorded and claim.host == host:
                run.write_claim(replace(claim, host=socket.gethostname(), process=nobody,
                                        supervisor=nobody))  # fmt: skip


def _lacking(snapshot: Snapshot, name: str, why: str) -> str:
    return (f"{printable(snapshot.path)} is damaged, and nothing was restored from it: "
            f"{printable(name)}: {why}. Take an earlier backup")  # fmt: skip


def _new(folder: Path) -> Snapshot:
    name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    last = max((place_in_time(one.name) for one in snapshots(folder)), default=("", 0))
    if (name, 1) <= last:
        name = f"{last[0]}-{last[1] + 1}"
    target = Snapshot(folder / f"{name}{INCOMPLETE}")
    (target.path / CONTENT).mkdir(parents=True)
    return target


def _newest(folder: Path) -> Snapshot | None:
    """The last one that can be read: what it has need not be copied."""
    for snapshot in reversed(snapshots(folder)):
        with suppress(BackupUnusable):
            snapshot.read()
            return snapshot
    return None


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    lock = FileLock(folder / ".lock")
    if not lock.try_acquire():
        raise BackupUnusable(f"another backup into {printable(folder)} goes on")
    with lock:
        yield
