"""Whether what the data folder holds can be read."""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from breakeven.runner.doctor.findings import Finding, Health
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import damages, listed
from breakeven.runner.texts import printable

SHOWN = 3
OLD_SECONDS = 3600.0
"""Whatever is still being written takes less."""


def check_folders(data_dir: DataDir) -> Iterator[Finding]:
    yield check_run_folders(data_dir)
    yield check_leftovers(data_dir)


def check_run_folders(data_dir: DataDir) -> Finding:
    """Opens every specification: as long as there are many."""
    subject = "Run folders"
    damaged = list(damages(data_dir))
    missing = [(f"{one.experiment_id}.{label}", "") for one in listed(data_dir)
               for label, run, _ in one.runs if run is None]  # fmt: skip
    if not damaged and not missing:
        count = sum(1 for _ in data_dir.run_dirs())
        return Finding(subject=subject, health=Health.OK, evidence=f"{count:,} can be read")
    told = ((damaged, "cannot be read"), (missing, "missing"))
    evidence = "; ".join(f"{len(found):,} {what}: {_some(found)}" for found, what in told if found)
    remedy = (
        f"bring the files back from where they came, or move the folders out of {data_dir.runs}; "
        "`breakeven status --all` names them all"
    )
    return Finding(subject=subject, health=Health.DOUBTFUL, evidence=evidence, remedy=remedy)


def _some(found: Sequence[tuple[str, str]]) -> str:
    shown = (f"{printable(name, 80)}{f': {printable(why, 160)}' if why else ''}"
             for name, why in found[:SHOWN])  # fmt: skip
    more = f"; and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
    return f"{'; '.join(shown)}{more}"


def check_leftovers(data_dir: DataDir) -> Finding:
    """What processes that were killed did not get to rename or remove."""
    subject = "Leftovers"
    found = list(_leftovers(data_dir))
    if not found:
        return Finding(subject=subject, health=Health.OK, evidence="none")
    evidence = f"{len(found)} unfinished files of processes that were killed: {found[0].name}"

    def repair() -> str:
        for path in found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return f"{len(found)} removed"

    return Finding(
        subject=subject,
        health=Health.DOUBTFUL,
        evidence=evidence,
        remedy="`breakeven doctor --repair` removes them",
        repair=repair,
    )


def _leftovers(data_dir: DataDir) -> Iterator[Path]:
    """Hidden files and folders that are written and then renamed, and are older than that takes."""
    for folder in (data_dir.path, data_dir.runs):
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") and _is_old(entry):
                    yield Path(entry.path)


def _is_old(entry: os.DirEntry[str]) -> bool:
    return time.time() - entry.stat(follow_symlinks=False).st_mtime > OLD_SECONDS
