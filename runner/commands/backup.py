"""`python -m runner backup` and `restore-backup`: copies of the data folder."""

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from runner.backup.making import back_up, restore
from runner.backup.snapshots import MANIFEST, Manifest, find, incomplete, snapshots, verify
from runner.errors import BackupUnusable
from runner.folders.data_dir import DataDir
from runner.texts import printable

Add = Callable[[str, Callable[..., int], str], argparse.ArgumentParser]
DAMAGED = 1
SHOWN = 10


def add_backup_commands(add: Add) -> None:
    text = "copy the data folder while trainings go on; what did not change is not copied again"
    take = add("backup", _back_up, text)
    take.usage = f"{take.usage} FOLDER"
    take.add_argument("folder", type=Path, metavar="FOLDER",
                      help="where backups are kept, outside the data folder")  # fmt: skip
    take.add_argument("--keep", type=_count, metavar="NUMBER",
                      help="remove older backups, but for so many of the newest")  # fmt: skip
    take.add_argument(
        "--verify",
        action="store_true",
        help="take none: read all that are there, and say what is damaged",
    )
    back = add("restore-backup", _restore, "bring a backup back, into a data folder that is empty")
    back.usage = f"{back.usage} BACKUP"
    back.add_argument(
        "backup",
        type=Path,
        metavar="BACKUP",
        help="a backup, or a folder of them, of which the newest is taken",
    )


def _back_up(data_dir: DataDir, options: argparse.Namespace) -> int:
    with suppress(OSError):
        os.nice(10)  # Somebody's training may be measured meanwhile.
    if options.verify:
        return _verify(options.folder)
    begun = time.monotonic()
    try:
        made = back_up(data_dir, options.folder, options.keep)
    except OSError as error:
        why = f"{error.strerror or error}: {printable(error.filename or options.folder)}"
        raise BackupUnusable(f"the backup was cut off, and is named as that: {why}") from None
    for name in made.removed:
        _print(f"{printable(name)} removed")
    _print(
        f"{printable(made.snapshot.path)}: {_size(made.manifest)}, of which "
        f"{made.bytes_copied / 1e6:,.1f} MB are new, in {time.monotonic() - begun:.1f} s"
    )
    for name, why in [*made.manifest.left_out.items()][:SHOWN]:
        sys.stderr.write(f"left out: {name}: {printable(why)}\n")
    if len(made.manifest.left_out) > SHOWN:
        sys.stderr.write(f"and {len(made.manifest.left_out) - SHOWN} more\n")
    return 0


def _verify(folder: Path) -> int:
    """0 if every backup is whole, 1 if one is damaged or was cut off."""
    status = 0
    seen: set[tuple[int, int, str]] = set()
    for path in incomplete(folder):
        _print(f"{printable(path.name)}: cut off or going on; not whole")
        status = DAMAGED
    found = [find(folder)] if (folder / MANIFEST).exists() else snapshots(folder)
    if not found and not status:
        raise BackupUnusable(f"there is no backup in {printable(folder)}")
    for snapshot in found:
        try:
            wrong = list(verify(snapshot, seen))
            _print(f"{printable(snapshot.name)}: {_size(snapshot.read())}"
                   f"{', DAMAGED' if wrong else ', whole'}")  # fmt: skip
        except BackupUnusable as error:
            wrong = [str(error)]
        for one in wrong:
            _print(f"    {one}")
        status = DAMAGED if wrong else status
    return status


def _restore(data_dir: DataDir, options: argparse.Namespace) -> int:
    snapshot = find(options.backup.expanduser())
    count = restore(snapshot, data_dir)
    _print(f"{count:,} files of {printable(snapshot.name)} are in {printable(data_dir.path)}; runs "
           "that went on then wait for `python -m runner supervise`")  # fmt: skip
    return 0


def _size(manifest: Manifest) -> str:
    return f"{len(manifest.files):,} files, {manifest.num_bytes / 1e6:,.1f} MB"


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 on")
    return int(text)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
