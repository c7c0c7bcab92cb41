"""Whether there is room, and whether what is written stays."""

import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

from breakeven.runner.doctor.findings import Finding, Health
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import MIN_FREE_BYTES

COMFORTABLE_BYTES = 2_000_000_000
"""Some cold compile caches and checkpoints."""
MIN_FREE_FILES = 1_000
"""Files that may still be made; an experiment makes some tens, Inductor some hundreds."""
MIN_OPEN_FILES = 512
FREE_SPACE = (
    "`breakeven retain --budget 20GB` removes what was deleted, then old checkpoints, then "
    "artifacts; results stay"
)


def check_disk(data_dir: DataDir) -> Iterator[Finding]:
    yield _room("Disk", _existing(data_dir.path), FREE_SPACE)
    temporary = Path(tempfile.gettempdir())
    if os.stat(temporary).st_dev != os.stat(_existing(data_dir.path)).st_dev:
        yield _room("Temporary files", temporary, "remove files there, or name another in TMPDIR")
    yield check_writable(data_dir)
    yield check_open_files()


def _room(subject: str, folder: Path, remedy: str) -> Finding:
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    evidence = (
        f"{folder} has {free / 1e9:,.1f} GB free of {found.f_blocks * found.f_frsize / 1e9:,.1f}"
    )
    # Some file systems count no files, and say 0 of 0.
    if found.f_files and found.f_favail < MIN_FREE_FILES:
        evidence += f", and room for {found.f_favail:,} more files"
        return Finding(subject=subject, health=Health.WRONG, evidence=evidence, remedy=remedy)
    if free < COMFORTABLE_BYTES:
        health = Health.WRONG if free < MIN_FREE_BYTES else Health.DOUBTFUL
        return Finding(subject=subject, health=health, evidence=evidence, remedy=remedy)
    return Finding(subject=subject, health=Health.OK, evidence=evidence)


def check_writable(data_dir: DataDir) -> Finding:
    """Writes a file, has the disk take it, reads it again."""
    subject, folder = "Data folder", _existing(data_dir.path)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
            file.write(b"here")
            file.flush()
            os.fsync(file.fileno())
            kept = Path(file.name).read_bytes()
    except OSError as error:
        evidence = f"{folder} cannot be written: {error.strerror or error}"
        remedy = "make it writable for this user, or name another one in BREAKEVEN_DATA"
        return Finding(subject=subject, health=Health.WRONG, evidence=evidence, remedy=remedy)
    if kept != b"here":
        evidence = f"{folder} does not give back what was written"
        return Finding(subject=subject, health=Health.WRONG, evidence=evidence,
                       remedy="move the data folder to another disk")  # fmt: skip
    there = "" if folder == data_dir.path else f" ({data_dir.path} is made when it is needed)"
    return Finding(subject=subject, health=Health.OK, evidence=f"{folder} can be written{there}")


def check_open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= MIN_OPEN_FILES
    evidence = f"a process may have {soft:,} files open"
    remedy = (
        "" if enough else f"`ulimit -n {min(hard, 4096) if hard > 0 else 4096}` before the start"
    )
    health = Health.OK if enough else Health.DOUBTFUL
    return Finding(subject="Open files", health=health, evidence=evidence, remedy=remedy)


def _existing(folder: Path) -> Path:
    """The folder, or the first above it that is there."""
    return next(one for one in (folder, *folder.parents) if one.is_dir())
