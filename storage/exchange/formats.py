"""Results in the formats of PyTorch's own benchmarks (docs/suites.md): performance and accuracy CSV
of the Dynamo harness, records of the HUD, JSON of cachebench."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
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


SCHEMA_VERSION = "v3"
HUD_METRICS = (
    "speedup", "abs_latency", "compilation_latency", "compression_ratio", "eager_peak_mem",
    "dynamo_peak_mem", "calls_captured", "unique_graphs", "graph_breaks", "unique_graph_breaks",
)  # fmt: skip
"""Named as the harness's columns, in its units."""


def hud_json(store: Store, id: str) -> str:
    """Benchmark records of PyTorch's HUD, version 3, of an experiment or a suite run, one per
    backend and metric. Only fields that are known are written; of all of them the format requires
    `metric` alone."""
    found = [record for row in rows_of(store, id) for record in _hud_records(row)]
    return json.dumps(found, indent=2) + "\n"


def _hud_records(row: HarnessRow) -> Iterator[dict[str, Any]]:
    """Its records; a run that did not finish has no numbers, only a status if any."""
    common = _common(row)
    measured = {name: getattr(row, name) for name in HUD_METRICS if row.has_finished}
    for name, value in measured.items():
        if value is not None:
            yield {**common, "metric": {"name": name, "benchmark_values": [value]}}
    if row.accuracy is not None:
        # A status is a text, and benchmark_values holds numbers.
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
"""Scenarios that tell compile latencies."""
NOTE = "of a training only cold compile times are known; the scenario cache measures warm ones too"


@dataclass(frozen=True, kw_only=True)
class CompileTimes:
    """Of one backend, in seconds; `warm` is empty where no warm process was measured."""

    backend: str
    """Its name; with settings, the label that they make."""
    dynamic: bool
    """Whether shapes were symbols from the start."""
    cold: Sequence[float]
    warm: Sequence[float] = ()


def cachebench_json(store: Store, id: str) -> str:
    """JSON of `cachebench.py`, of an experiment or of all cells of a suite run that have a compile
    latency; raises `NotInStore` or `NotExportable`.

    Its three records of a model are the cold compile times, the warm ones, and how much less the
    warm ones are, in percent. An experiment of the scenario `cache` has all three. A training
    compiles once, from an empty cache: that is a cold time, and the other two are left out.
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
    """A record for each of the three metrics that is known."""
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
            # A model of one's own comes from none of the suites that `origins` names.
            "model": {
                "name": harness_name(spec.model),
                "backend": times.backend,
                "origins": [spec.model.from_suite.suite] if spec.model.from_suite else [],
            },
            # The type stands here and not in the model because cachebench has it so.
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
