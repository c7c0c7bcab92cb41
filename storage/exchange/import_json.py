"""JSON of cachebench and records of PyTorch's HUD, as rows like those of the harness's CSV files.

Both are lists with a record for each metric of a model and a backend; what belongs together becomes
one row. What a record says of other things is not taken.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from breakeven.runner.texts import printable, read_json
from breakeven.storage.errors import ImportUnusable

IDENTITY = ("dev", "name", "batch_size", "tag")
JUDGED = ("outcome", "has_failed")
COMPILE_TIMES = {"Cold compile time (s)": "compilation_latency"}
"""Of cachebench's metrics those that a row has a place for."""
LONGEST_COUNT = 10
"""Digits of a batch size; none has more."""
PASSED = ("pass", "pass_due_to_skip")


def read_records(file: Path, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Cells by column: dev, name, batch_size, tag, outcome, has_failed and `columns`.

    Raises `ImportUnusable` for anything but a list of such records.
    """
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
        cells |= _measured(record["metric"], columns)
    found = [cells for cells in together.values() if cells.keys() - set(IDENTITY)]
    if not found:
        raise ImportUnusable(f"{file} holds no number that is known here: {', '.join(columns)}")
    for cells in found:
        status = cells.get("status")
        outcome = status or "measured"
        yield {**cells, "outcome": outcome,
               "has_failed": status is not None and status not in PASSED}  # fmt: skip


def _is_record(record: Any) -> bool:
    return isinstance(record, dict) and all(
        isinstance(record.get(part), dict) for part in ("benchmark", "model", "metric")
    )


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    benchmark, model = record["benchmark"], record["model"]
    more = benchmark.get("extra_info")
    more = more if isinstance(more, dict) else {}
    told = [model.get("backend"), benchmark.get("mode"), benchmark.get("dtype")]
    if more.get("is_dynamic") is True:
        told.append("dynamic")
    tag = more.get("tag") or "-".join(str(one) for one in told if one)
    batch = str(more.get("batch_size"))
    is_count = batch.isascii() and batch.isdigit() and len(batch) < LONGEST_COUNT
    size = int(batch) if is_count else None
    return (str(more.get("device") or ""), str(model.get("name") or ""), size, str(tag) or None)


def _measured(metric: dict[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
    """What a metric comes to in a row: a column, or the status."""
    name = metric.get("name")
    if name == "accuracy":
        more = metric.get("extra_info")
        values = more.get("benchmark_values") if isinstance(more, dict) else None
        is_one = isinstance(values, list) and values and isinstance(values[0], str)
        return {"status": values[0]} if is_one and values else {}
    column = COMPILE_TIMES.get(str(name), name)
    values = metric.get("benchmark_values")
    numbers = [one for one in values if _is_number(one)] if isinstance(values, list) else []
    return {str(column): float(median(numbers))} if column in columns and numbers else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) \
        and abs(value) < 1e300 and math.isfinite(value)  # fmt: skip
