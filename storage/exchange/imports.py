"""Results of PyTorch's benchmarks that a person brought along, to be shown beside own ones: CSV of
the Dynamo harness, JSON of cachebench and of the HUD.

They lie as they came in `imports/` of the data folder, which is the truth about them: they are few
and small, and are read whenever they are asked for. A 0.0 where the harness writes one for a
failure is a failure here, never a number.
"""

import csv
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.errors import ImportUnusable
from breakeven.storage.exchange.archives import KNOWN
from breakeven.storage.exchange.import_json import (
    IDENTITY,
    JUDGED,
    LONGEST_COUNT,
    PASSED,
    read_records,
)

FOLDER = "imports"
SUFFIXES = (".csv", ".json")
MAX_BYTES = 16 * 2**20
"""Of one file; real ones have some thousands, and all of them are read for a page."""
REQUIRED = ("dev", "name", "batch_size")
MEASURED = ("speedup", "accuracy")
"""A performance file has the first, an accuracy file the second."""


@dataclass(frozen=True, kw_only=True)
class ImportedRow:
    """One row of a file, in the harness's units: ms, s and GB. What the file lacks is None."""

    file: str
    dev: str
    name: str
    batch_size: int | None
    tag: str | None
    outcome: str
    """`measured`, `failed`, or the status that an accuracy file gives."""
    has_failed: bool
    speedup: float | None
    abs_latency: float | None
    compilation_latency: float | None
    compression_ratio: float | None
    eager_peak_mem: float | None
    dynamo_peak_mem: float | None
    graph_breaks: float | None


NUMBERS = (
    "speedup", "abs_latency", "compilation_latency", "compression_ratio", "eager_peak_mem",
    "dynamo_peak_mem", "graph_breaks",
)  # fmt: skip


def import_file(data_dir: DataDir, file: Path) -> list[ImportedRow]:
    """Copies a file into the data folder and returns its rows.

    Raises `ImportUnusable` if it holds none, or if another file of its name is there.
    """
    if file.suffix.lower() not in SUFFIXES:
        raise ImportUnusable(
            f"{file} is nothing that can be imported: that is a report, an archive of run folders "
            f"({KNOWN}), CSV of the Dynamo harness, and JSON of cachebench or the HUD"
        )
    if file.stat().st_size > MAX_BYTES:
        raise ImportUnusable(f"{file} is larger than {MAX_BYTES // 2**20} MiB")
    rows = list(read_rows(file))
    target = data_dir.path / FOLDER / file.name
    if target.exists() and target.read_bytes() != file.read_bytes():
        raise ImportUnusable(f"{target} exists and holds something else; rename {file}")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copyfile(file, target)
    return rows


def imported(data_dir: DataDir) -> pd.DataFrame:
    """Every row of every imported file, with the columns of `ImportedRow`.

    Raises `ImportUnusable` for a file that was put there by hand and holds no such rows.
    """
    rows = [asdict(row) for file in _files(data_dir) for row in read_rows(file)]
    return pd.DataFrame(rows, columns=[field.name for field in fields(ImportedRow)])


def imported_version(data_dir: DataDir) -> tuple[tuple[str, int, int], ...]:
    """Another one after every change of the imported files."""
    stats = [(file.name, file.stat()) for file in _files(data_dir)]
    return tuple((name, found.st_mtime_ns, found.st_size) for name, found in stats)


def _files(data_dir: DataDir) -> list[Path]:
    found = (data_dir.path / FOLDER).glob("*")
    return sorted(file for file in found if file.suffix.lower() in SUFFIXES)


def read_rows(file: Path) -> Iterator[ImportedRow]:
    """The rows of one file; raises `ImportUnusable`, naming the line."""
    if file.suffix.lower() == ".json":
        for cells in read_records(file, NUMBERS):
            numbers: dict[str, Any] = {
                name: None if cells["has_failed"] else cells.get(name) for name in NUMBERS
            }
            told: dict[str, Any] = {name: cells[name] for name in (*IDENTITY, *JUDGED)}
            yield ImportedRow(file=file.name, **told, **numbers)
        return
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            _check_columns(file, reader.fieldnames or ())
            for row in reader:
                yield _row(file, reader.line_num, row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ImportUnusable(f"{file} cannot be read: {error}") from None


def _check_columns(file: Path, columns: object) -> None:
    assert isinstance(columns, (list, tuple))
    missing = [name for name in REQUIRED if name not in columns]
    if missing or not any(name in columns for name in MEASURED):
        raise ImportUnusable(
            f"{file} is no performance or accuracy CSV of the Dynamo harness: it has the columns "
            f"{', '.join(columns) or 'of an empty file'}; needed are {', '.join(REQUIRED)} and "
            f"{' or '.join(MEASURED)}"
        )


def _row(file: Path, line: int, cells: Mapping[str, str | None]) -> ImportedRow:
    numbers = {name: _number(file, line, name, cells.get(name)) for name in NUMBERS}
    status = cells.get("accuracy")
    if status is not None:
        has_failed = bool(status) and status not in PASSED
        outcome = status or "unknown"
    else:
        # The harness writes 0.0 where nothing ran, and fills the other cells with 0.
        has_failed = 0.0 in (numbers["speedup"], numbers["abs_latency"])
        outcome = "failed" if has_failed else "measured"
    batch_size = _number(file, line, "batch_size", cells["batch_size"])
    if batch_size is not None and abs(batch_size) >= 10**LONGEST_COUNT:
        raise ImportUnusable(f"{file}, line {line}: batch_size = {batch_size:g} is none")
    return ImportedRow(
        file=file.name,
        dev=cells["dev"] or "",
        name=cells["name"] or "",
        batch_size=None if batch_size is None else int(batch_size),
        tag=cells.get("tag") or None,
        outcome=outcome,
        has_failed=has_failed,
        **(dict.fromkeys(NUMBERS) if has_failed else numbers),
    )


def _number(file: Path, line: int, column: str, text: str | None) -> float | None:
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        raise ImportUnusable(f"{file}, line {line}: {column} = {text!r} is no number") from None
    return number if math.isfinite(number) else None
