"""Performance and accuracy CSV of the Dynamo harness (`benchmarks/dynamo`), with its columns."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.correctness import checks
from breakeven.storage.exchange.rows import (
    HarnessRow,
    cell_tag,
    harness_name,
    is_suite_run,
    load_spec,
    rows_of,
)
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import cell
from breakeven.storage.suite.cells import outcomes

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


def performance_csv(store: Store, id: str) -> str:
    """A row per backend of an experiment or a suite run. A backend that failed has a speedup and a
    latency of 0.0, as in the harness; one that goes on or was cancelled has no numbers at all,
    because the harness has no word for a part of a run.
    """
    return write_csv(PERFORMANCE_COLUMNS, map(_performance, rows_of(store, id)))


def accuracy_csv(store: Store, id: str) -> str:
    """A row per backend; its status is empty where neither sameness nor failure was shown.

    Of an experiment of the scenario `accuracy` a row per backend and part, training or inference;
    of a suite run a row per cell that was checked.
    """
    if is_suite_run(store, id):
        return write_csv(ACCURACY_COLUMNS, _checked_cells(store, id))
    if load_spec(store, id).kind.compares_tensors:
        return write_csv(ACCURACY_COLUMNS, _checked(store, id))
    return write_csv(
        ACCURACY_COLUMNS, (_cells(row, ACCURACY_COLUMNS) for row in rows_of(store, id))
    )


def _checked(store: Store, experiment_id: str) -> Iterator[dict[str, str]]:
    spec = load_spec(store, experiment_id)
    backends = {variant.label for variant in spec.variants if variant.role == "backend"}
    for check in checks(store, experiment_id, spec):
        if check.label in backends:
            yield _status(spec, f"{check.label}-{check.part}", check.status)


def _checked_cells(store: Store, suite_run: str) -> Iterator[dict[str, str]]:
    for outcome in outcomes(store, suite_run):
        if "accuracy" in outcome.experiments:
            spec = load_spec(store, outcome.experiments["accuracy"])
            yield _status(spec, cell_tag(outcome.cell), outcome.status)


def _status(spec: ExperimentSpec, tag: str, status: str | None) -> dict[str, str]:
    return {
        "dev": spec.device.partition(":")[0],
        "name": harness_name(spec.model),
        "batch_size": str(spec.training.batch_size),
        "tag": tag,
        "accuracy": status or "",
    }


def _performance(row: HarnessRow) -> dict[str, str]:
    if row.has_finished:
        return _cells(row, PERFORMANCE_COLUMNS)
    failed = {"speedup": "0.0", "abs_latency": "0.0"} if row.has_failed else {}
    return {**_cells(row, IDENTITY), **failed}


def _cells(row: HarnessRow, columns: Sequence[str]) -> dict[str, str]:
    """By column; columns that nothing here measures are left out."""
    return {column: _written(getattr(row, column, None)) for column in columns}


def _written(value: str | int | float | None) -> str:
    if value is None:
        return ""
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def write_csv(columns: Sequence[str], cells: Iterable[dict[str, str]]) -> str:
    """Cells by column; those that are left out are empty. No text is a formula."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({column: cell(text) for column, text in row.items()} for row in cells)
    return text.getvalue()
