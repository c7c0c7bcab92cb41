"""Imports results of PyTorch's benchmarks for display next to own ones: CSV of the Dynamo harness,
JSON of cachebench and of the HUD.

The unchanged files are in `imports/` of the data folder. They are few and small, so each request
reads them. The harness writes 0.0 for a failure; here it is a failure and not a number.
"""

import csv
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from breakeven.runner.logs import log_action
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.texts import printable, read_json
from breakeven.storage.errors import ImportUnusable
from breakeven.storage.exchange.archives import KNOWN_ARCHIVES, USUAL_LIMITS, Limits
from breakeven.storage.exchange.run_folders import ImportedRuns, import_run_folders
from breakeven.storage.exchange.runs_in_report import archive_in_report

FOLDER = "imports"
SUFFIXES = (".csv", ".json")
MAX_BYTES = 16 * 2**20
"""Limit of one file; real files have some thousand bytes, and a page reads all files."""
IDENTITY = ("dev", "name", "batch_size", "tag")
REQUIRED = IDENTITY[:3]
MEASURED = ("speedup", "accuracy")
"""Performance files have the first column, accuracy files the second."""
NUMBERS = (
    "speedup",
    "abs_latency",
    "compilation_latency",
    "compression_ratio",
    "eager_peak_mem",
    "dynamo_peak_mem",
    "graph_breaks",
)
COLUMNS = ("file", *IDENTITY, "outcome", "has_failed", *NUMBERS)
COMPILE_TIMES = {"Cold compile time (s)": "compilation_latency"}
"""Metrics of cachebench that a row can hold, with their columns."""
LONGEST_COUNT = 10
"""Largest number of digits of a batch size."""
PASSED = ("pass", "pass_due_to_skip")

ImportedRow = dict[str, Any]
"""One row of a file by `COLUMNS`, in the harness's units: ms, s and GB. Missing values are None.
`outcome`: `measured`, `failed`, or the status in an accuracy file."""


def import_file(data_dir: DataDir, file: Path) -> list[ImportedRow]:
    """Copies a file into the data folder and returns its rows.

    Raises `ImportUnusable` if it has no rows, or if another file of its name exists.
    """
    if file.suffix.lower() not in SUFFIXES:
        raise ImportUnusable(
            f"{file} is nothing that can be imported: that is a report, an archive of run folders "
            f"({KNOWN_ARCHIVES}), CSV of the Dynamo harness, and JSON of cachebench or the HUD"
        )
    if file.stat().st_size > MAX_BYTES:
        raise ImportUnusable(f"{file} is larger than {MAX_BYTES // 2**20} MiB")
    rows = read_rows(file)
    target = data_dir.path / FOLDER / file.name
    if target.exists() and target.read_bytes() != file.read_bytes():
        raise ImportUnusable(f"{target} exists and holds something else; rename {file}")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copyfile(file, target)
    return rows


def imported_rows(data_dir: DataDir) -> tuple[pd.DataFrame, list[str]]:
    """All rows of all imported files, with the columns `COLUMNS`, and what is wrong with each file
    that was copied there by hand and has no such rows."""
    rows: list[ImportedRow] = []
    problems = []
    for file in _files(data_dir):
        try:
            rows += read_rows(file)
        except ImportUnusable as error:
            problems.append(str(error))
    return pd.DataFrame(rows, columns=list(COLUMNS)), problems


def imported_version(data_dir: DataDir) -> tuple[tuple[str, int, int], ...]:
    """A version that differs after each change of the imported files."""
    stats = [(file.name, file.stat()) for file in _files(data_dir)]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def _files(data_dir: DataDir) -> list[Path]:
    paths = (data_dir.path / FOLDER).glob("*")
    return sorted(file for file in paths if file.suffix.lower() in SUFFIXES)


def read_rows(file: Path) -> list[ImportedRow]:
    """The rows of one file; raises `ImportUnusable`, for CSV with the number of the line."""
    read = _of_json if file.suffix.lower() == ".json" else _of_csv
    return [_row(file, cells) for cells in read(file)]


def _row(file: Path, cells: Mapping[str, Any]) -> ImportedRow:
    status = cells.get("status")
    numbers = {name: cells.get(name) for name in NUMBERS}
    if status is None:
        # If nothing ran, the harness writes 0.0 and fills the other cells with 0.
        has_failed = 0.0 in (numbers["speedup"], numbers["abs_latency"])
        outcome = "failed" if has_failed else "measured"
    else:
        has_failed, outcome = bool(status) and status not in PASSED, status or "unknown"
    identity = {name: cells[name] for name in IDENTITY}
    return {
        "file": file.name,
        **identity,
        "outcome": outcome,
        "has_failed": has_failed,
        **(dict.fromkeys(NUMBERS) if has_failed else numbers),
    }


def _of_csv(file: Path) -> Iterator[dict[str, Any]]:
    """Cells by column: `IDENTITY`, `NUMBERS`, and `status` in accuracy files."""
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            columns = reader.fieldnames or ()
            missing = [name for name in REQUIRED if name not in columns]
            if missing or not any(name in columns for name in MEASURED):
                raise ImportUnusable(
                    f"{file} is no performance or accuracy CSV of the Dynamo harness: it has the "
                    f"columns {', '.join(columns) or 'of an empty file'}; needed are "
                    f"{', '.join(REQUIRED)} and {' or '.join(MEASURED)}"
                )
            for row in reader:
                at = f"{file}, line {reader.line_num}"
                size = _number(at, "batch_size", row["batch_size"])
                if size is not None and abs(size) >= 10**LONGEST_COUNT:
                    raise ImportUnusable(f"{at}: batch_size = {size:g} is none")
                yield {
                    "dev": row["dev"] or "",
                    "name": row["name"] or "",
                    "batch_size": None if size is None else int(size),
                    "tag": row.get("tag") or None,
                    "status": row.get("accuracy"),
                    **{name: _number(at, name, row.get(name)) for name in NUMBERS},
                }
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ImportUnusable(f"{file} cannot be read: {error}") from None


def _number(at: str, column: str, text: str | None) -> float | None:
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        raise ImportUnusable(f"{at}: {column} = {text!r} is no number") from None
    return number if math.isfinite(number) else None


def _of_json(file: Path) -> list[dict[str, Any]]:
    """The same of a list of records of cachebench or the HUD, with the known numbers."""
    try:
        records = read_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ImportUnusable(f"{file} cannot be read: {printable(error)}") from None
    if not isinstance(records, list) or not all(map(_is_record, records)):
        raise ImportUnusable(
            f"{file} is no JSON of cachebench or of PyTorch's HUD: that is a list of records, each "
            "with `benchmark`, `model` and `metric`"
        )
    together: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in records:
        key = _key(record)
        cells = together.setdefault(key, dict(zip(IDENTITY, key, strict=True)))
        cells |= _measured(record["metric"])
    with_numbers = [cells for cells in together.values() if cells.keys() - set(IDENTITY)]
    if not with_numbers:
        raise ImportUnusable(f"{file} holds no number that is known here: {', '.join(NUMBERS)}")
    return with_numbers


def _is_record(record: Any) -> bool:
    return isinstance(record, dict) and all(
        isinstance(record.get(part), dict) for part in ("benchmark", "model", "metric")
    )


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    benchmark, model = record["benchmark"], record["model"]
    extra = benchmark.get("extra_info")
    extra = extra if isinstance(extra, dict) else {}
    parts = [model.get("backend"), benchmark.get("mode"), benchmark.get("dtype")]
    if extra.get("is_dynamic") is True:
        parts.append("dynamic")
    tag = extra.get("tag") or "-".join(str(part) for part in parts if part)
    batch = str(extra.get("batch_size"))
    is_count = batch.isascii() and batch.isdigit() and len(batch) < LONGEST_COUNT
    size = int(batch) if is_count else None
    return (str(extra.get("device") or ""), str(model.get("name") or ""), size, str(tag) or None)


def _measured(metric: dict[str, Any]) -> dict[str, Any]:
    """The cell of a metric: a column with its number, or the status."""
    name = metric.get("name")
    if name == "accuracy":
        extra = metric.get("extra_info")
        values = extra.get("benchmark_values") if isinstance(extra, dict) else None
        is_status = isinstance(values, list) and values and isinstance(values[0], str)
        return {"status": values[0]} if is_status and values else {}
    column = COMPILE_TIMES.get(str(name), name)
    values = metric.get("benchmark_values")
    numbers = [value for value in values if _is_number(value)] if isinstance(values, list) else []
    return {str(column): float(median(numbers))} if column in NUMBERS and numbers else {}


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 1e300
        and math.isfinite(value)
    )


ARCHIVE_STARTS = (b"PK", b"\x1f\x8b")
TAR_MARK = slice(257, 262)
HEAD_BYTES = 512


@dataclass(frozen=True, kw_only=True)
class Imported:
    """The content of an imported file: runs, or rows to show next to own results."""

    runs: ImportedRuns = field(default_factory=ImportedRuns)
    rows: Sequence[ImportedRow] = ()


def import_any(
    data_dir: DataDir, file: Path, examples: Path | None = None, limits: Limits = USUAL_LIMITS
) -> Imported:
    """Imports a file; if it raises `ImportUnusable`, nothing was imported."""
    imported_file = _import_any(data_dir, file, examples, limits)
    counts = {"runs": len(imported_file.runs.new_runs), "rows": len(imported_file.rows)}
    log_action(data_dir.logs, "import", file.name, **counts)
    return imported_file


def _import_any(data_dir: DataDir, file: Path, examples: Path | None, limits: Limits) -> Imported:
    with file.open("rb") as content:
        head = content.read(HEAD_BYTES)
    try:
        if head.startswith(ARCHIVE_STARTS) or head[TAR_MARK] == b"ustar":
            return Imported(runs=import_run_folders(data_dir, file, examples, limits))
        if head.lstrip()[:9].lower().startswith((b"<!doctype", b"<html")):
            with tempfile.TemporaryDirectory() as folder:
                archive = Path(folder, "runs.zip")
                archive.write_bytes(archive_in_report(file))
                return Imported(runs=import_run_folders(data_dir, archive, examples, limits))
    except ImportUnusable as error:
        raise ImportUnusable(f"{printable(file.name)} is not taken: {error}") from None
    return Imported(rows=import_file(data_dir, file))
