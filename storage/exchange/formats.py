"""Results in the formats of PyTorch's own benchmarks (docs/suites.md): performance and accuracy CSV
of the Dynamo harness, records of the HUD, JSON of cachebench."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.variants import parse_backend
from breakeven.storage.comparison.correctness import checks
from breakeven.storage.comparison.latency import cold_and_warm
from breakeven.storage.exchange.rows import (
    GIGABYTES,
    TIMED,
    HarnessRow,
    cell_experiments,
    cell_tag,
    harness_name,
    is_suite_run,
    load_spec,
    rows,
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
    """A row per backend of an experiment or a suite run. A failed backend has a speedup and a
    latency of 0.0, as in the harness. A running or cancelled one has no numbers, because the
    harness has no status for a part of a run.
    """
    return write_csv(PERFORMANCE_COLUMNS, map(_performance, rows_of(store, id)))


def accuracy_csv(store: Store, id: str) -> str:
    """A row per backend; its status is empty if neither parity nor a failure is certain.

    For the scenario `accuracy`, a row per backend and part, training or inference; for a suite run,
    a row per checked cell.
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
    """Texts by column; empty for columns that Breakeven does not measure."""
    return {column: _written(getattr(row, column, None)) for column in columns}


def _written(value: str | int | float | None) -> str:
    if value is None:
        return ""
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def write_csv(columns: Sequence[str], cells: Iterable[dict[str, str]]) -> str:
    """CSV of rows of cells by column; missing cells are empty. Texts are never formulas."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({column: cell(text) for column, text in row.items()} for row in cells)
    return text.getvalue()


SCHEMA_VERSION = "v3"
HUD_METRICS = (
    "speedup", "abs_latency", "compilation_latency", "compression_ratio", "eager_peak_mem",
    "dynamo_peak_mem", "calls_captured", "unique_graphs", "graph_breaks", "unique_graph_breaks",
)  # fmt: skip
"""Metrics with the names and units of the harness's columns."""


def hud_json(store: Store, id: str) -> str:
    """Benchmark records of PyTorch's HUD, version 3, for an experiment or a suite run, one per
    backend and metric. Unknown fields are omitted; the format requires only `metric`."""
    found = [record for row in rows_of(store, id) for record in _hud_records(row)]
    return json.dumps(found, indent=2) + "\n"


def _hud_records(row: HarnessRow) -> Iterator[dict[str, Any]]:
    """The records of a row; a run that did not finish has at most a status."""
    common = _common(row)
    measured = {name: getattr(row, name) for name in HUD_METRICS if row.has_finished}
    for name, value in measured.items():
        if value is not None:
            yield {**common, "metric": {"name": name, "benchmark_values": [value]}}
    if row.accuracy is not None:
        # A status is a text, but benchmark_values contains numbers.
        status = {"benchmark_values": [row.accuracy]}
        yield {**common, "metric": {"name": "accuracy", "benchmark_values": [],
                                    "extra_info": status}}  # fmt: skip


def _common(row: HarnessRow) -> dict[str, Any]:
    versions = row.environment.get("versions") or {}
    record = {
        "timestamp": row.ended,
        "schema_version": SCHEMA_VERSION,
        "name": "breakeven",
        "runners": [_runner(row)] if row.environment else None,
        "benchmark": {
            "name": "Breakeven",
            "mode": row.part,
            "dtype": row.dtype,
            "extra_info": {"device": row.dev, "batch_size": str(row.batch_size), "tag": row.tag},
        },
        "model": _known(
            {"name": row.name, "backend": row.backend, "origins": row.origin and [row.origin]}
        ),
        "dependencies": {package: {"version": version} for package, version in versions.items()},
    }
    return _known(record)


def _runner(row: HarnessRow) -> dict[str, Any]:
    machine = row.environment
    memory = machine.get("gpu_memory_bytes")
    on_gpu = row.dev != "cpu"
    return _known(
        {
            "name": machine.get("host"),
            "cpu_info": machine.get("cpu_model"),
            "cpu_count": machine.get("num_cpus"),
            "gpu_info": machine.get("device_name") if on_gpu else None,
            "gpu_count": 1 if on_gpu else None,
            "gpu_mem_info": f"{memory * GIGABYTES:.1f} GB" if on_gpu and memory else None,
        }
    )


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, {})}


MEASURED = ("cache", *TIMED)
"""Scenarios with compile latencies."""


@dataclass(frozen=True, kw_only=True)
class CompileTimes:
    """Compile seconds of one backend; `warm` is empty without a measured warm process."""

    backend: str
    """Name of the backend; with settings, its label."""
    dynamic: bool
    """Whether shapes were dynamic from the start."""
    cold: Sequence[float]
    warm: Sequence[float] = ()


def cachebench_json(store: Store, id: str) -> str:
    """JSON of `cachebench.py` for an experiment, or for all cells of a suite run with a compile
    latency; raises `NotInStore` or `NotExportable`.

    The three records of a model are the cold compile times, the warm ones, and the reduction in
    percent. An experiment of the scenario `cache` has all three. A training compiles once, from an
    empty cache: it has only a cold time.
    """
    ids = [id]
    if is_suite_run(store, id):
        ids = [key for one in outcomes(store, id) for key in cell_experiments(one, MEASURED)]
    found: list[dict[str, Any]] = []
    for experiment_id in dict.fromkeys(ids):
        spec = load_spec(store, experiment_id)
        measure = _of_caches if spec.kind.compares_caches else _of_steps
        for times in measure(store, experiment_id):
            found += _cache_records(spec, times)
    return json.dumps(found, indent=2) + "\n"


def _cache_records(spec: ExperimentSpec, times: CompileTimes) -> Iterator[dict[str, Any]]:
    """A record for each known one of the three metrics."""
    metrics: dict[str, Sequence[float]] = {"Cold compile time (s)": times.cold}
    if times.warm:
        metrics["Warm compile time (s)"] = times.warm
        metrics["Speedup (%)"] = [(1 - sum(times.warm) / sum(times.cold)) * 100]
    device = spec.device.partition(":")[0]
    for name, values in metrics.items():
        yield {
            "benchmark": {
                "name": "TorchCache Benchmark",
                "mode": "training" if spec.trains else "inference",
                "extra_info": {"is_dynamic": times.dynamic, "device": device},
            },
            # A user's own model belongs to none of the suites for `origins`.
            "model": {
                "name": harness_name(spec.model),
                "backend": times.backend,
                "origins": [spec.model.from_suite.suite] if spec.model.from_suite else [],
            },
            # The type is here and not in the model, as in cachebench.
            "metric": {"name": name, "type": "OSS model", "benchmark_values": list(values)},
        }


def _of_caches(store: Store, experiment_id: str) -> Iterator[CompileTimes]:
    for found in cold_and_warm(store, experiment_id):
        if sum(found.cold_seconds) > 0:
            variant = parse_backend(found.backend)
            yield CompileTimes(backend=variant.label, dynamic=variant.dynamic is True,
                               cold=found.cold_seconds, warm=found.warm_seconds)  # fmt: skip


def _of_steps(store: Store, experiment_id: str) -> Iterator[CompileTimes]:
    for row in rows(store, experiment_id):
        if row.has_finished and row.compilation_latency is not None:
            yield CompileTimes(backend=row.tag, dynamic=row.dynamic, cold=[row.compilation_latency])


FORMATS: dict[str, Callable[[Store, str], str]] = {
    "harness-performance-csv": performance_csv,
    "harness-accuracy-csv": accuracy_csv,
    "hud-json": hud_json,
    "cachebench-json": cachebench_json,
}
"""Name of a format to the function that returns the file of an experiment or suite run by its id.

The functions raise `NotInStore`, or `NotExportable` if the format cannot express the experiment.
"""
NOTES = {
    "cachebench-json": "of a training only cold compile times are known; the scenario cache "
    "measures warm ones too"
}
"""Notes for readers of a file, by format."""
