"""Performance and accuracy CSV of the Dynamo harness (`benchmarks/dynamo`), with its columns."""

import csv
import io
from collections.abc import Sequence

from storage.exchange.rows import Row

COUNTERS = (
    "calls_captured", "unique_graphs", "fallbacks_to_eager", "graph_breaks", "unique_graph_breaks",
    "autograd_captures", "autograd_compiles", "cudagraph_skips",
)  # fmt: skip
PERFORMANCE_COLUMNS = (
    "dev", "name", "batch_size", "tag", "speedup", "abs_latency", "compilation_latency",
    "compression_ratio", "eager_peak_mem", "dynamo_peak_mem", *COUNTERS,
)  # fmt: skip
ACCURACY_COLUMNS = (
    "dev", "name", "batch_size", "tag", "accuracy", *COUNTERS, "compilation_latency",
)  # fmt: skip
IDENTITY = ("dev", "name", "batch_size", "tag")


def performance_csv(rows: Sequence[Row]) -> str:
    """A row per backend.

    One that failed has a speedup and a latency of 0.0, as in the harness; one that goes on or was
    cancelled has no numbers at all, because the harness has no word for a part of a run.
    """
    return _csv(PERFORMANCE_COLUMNS, [_performance(row) for row in rows])


def accuracy_csv(rows: Sequence[Row]) -> str:
    """A row per backend; its status is empty where neither sameness nor failure was shown."""
    return _csv(ACCURACY_COLUMNS, [_cells(row, ACCURACY_COLUMNS) for row in rows])


def _performance(row: Row) -> dict[str, str]:
    if row.has_finished:
        return _cells(row, PERFORMANCE_COLUMNS)
    failed = {"speedup": "0.0", "abs_latency": "0.0"} if row.has_failed else {}
    return {**_cells(row, IDENTITY), **failed}


def _cells(row: Row, columns: Sequence[str]) -> dict[str, str]:
    """By column; columns that nothing here measures are left out."""
    return {column: _written(getattr(row, column, None)) for column in columns}


def _written(value: str | int | float | None) -> str:
    if value is None:
        return ""
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _csv(columns: Sequence[str], rows: Sequence[dict[str, str]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
