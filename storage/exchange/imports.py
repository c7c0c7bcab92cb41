"""CSV files of the Dynamo harness that a person brought along, to be shown beside own results.

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

import pandas as pd

from runner.folders.run_dir import DataDir
from storage.errors import ImportUnusable

FOLDER = "imports"
REQUIRED = ("dev", "name", "batch_size")
MEASURED = ("speedup", "accuracy")
"""A performance file has the first, an accuracy file the second."""
PASSED = ("pass", "pass_due_to_skip")


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

    Raises `ImportUnusable` if it is no CSV of the harness, or if another file of its name is there.
    """
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

    Raises `ImportUnusable` for a file that was put there by hand and is none of the harness's.
    """
    files = sorted((data_dir.path / FOLDER).glob("*.csv"))
    rows = [asdict(row) for file in files for row in read_rows(file)]
    return pd.DataFrame(rows, columns=[field.name for field in fields(ImportedRow)])


def imported_version(data_dir: DataDir) -> tuple[tuple[str, int, int], ...]:
    """Another one after every change of the imported files."""
    files = sorted((data_dir.path / FOLDER).glob("*.csv"))
    stats = [(file.name, file.stat()) for file in files]
    return tuple((name, found.st_mtime_ns, found.st_size) for name, found in stats)


def read_rows(file: Path) -> Iterator[ImportedRow]:
    """The rows of one file; raises `ImportUnusable`, naming the line."""
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
