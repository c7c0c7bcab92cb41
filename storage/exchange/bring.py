"""Takes in whatever somebody brings: a report, an archive of run folders, or results of PyTorch's
benchmarks. What it is, its content tells, not its name."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from breakeven.runner.folders import audit
from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.exchange import reports
from breakeven.storage.exchange.archives import USUAL, Limits, named
from breakeven.storage.exchange.imports import ImportedRow, import_file
from breakeven.storage.exchange.run_folders import TakenIn, take_in

ARCHIVES = (b"PK", b"\x1f\x8b")
TAR = slice(257, 262)
HEAD = 512


@dataclass(frozen=True, kw_only=True)
class Brought:
    """What came of a file: runs, or rows beside the own ones."""

    runs: TakenIn = field(default_factory=TakenIn)
    rows: Sequence[ImportedRow] = ()


def bring(
    data_dir: DataDir, file: Path, examples: Path | None = None, limits: Limits = USUAL
) -> Brought:
    """Raises `ImportUnusable`, saying what is wrong; then nothing was taken in."""
    brought = _brought(data_dir, file, examples, limits)
    counts = {"runs": len(brought.runs.new_runs), "rows": len(brought.rows)}
    audit.record(data_dir, "import", file.name, **counts)
    return brought


def _brought(data_dir: DataDir, file: Path, examples: Path | None, limits: Limits) -> Brought:
    with file.open("rb") as content:
        head = content.read(HEAD)
    with named(file):
        if head.startswith(ARCHIVES) or head[TAR] == b"ustar":
            return Brought(runs=take_in(data_dir, file, examples, limits))
        if head.lstrip()[:9].lower().startswith((b"<!doctype", b"<html")):
            return Brought(runs=_of_report(data_dir, file, examples, limits))
    return Brought(rows=import_file(data_dir, file))


def _of_report(data_dir: DataDir, file: Path, examples: Path | None, limits: Limits) -> TakenIn:
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "runs.zip")
        archive.write_bytes(reports.archive_in(file))
        return take_in(data_dir, archive, examples, limits)
