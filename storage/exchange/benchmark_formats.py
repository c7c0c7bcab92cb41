"""Results in the formats of PyTorch's own benchmarks (docs/suites.md): performance and accuracy CSV
of the Dynamo harness, records of the HUD, JSON of cachebench.

The harness writes one file for each backend, precision and part; here `tag` identifies them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.specs.experiment import ExperimentSpec, ModelSpec
from breakeven.runner.specs.scenarios.by_name import SCENARIOS
from breakeven.storage import queries
from breakeven.storage.comparison.cold_and_warm import cold_and_warm
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.correctness import checks
from breakeven.storage.comparison.evidence import counted
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.errors import NotExportable
from breakeven.storage.exchange.csv_and_parquet import to_csv
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import DASH, METRICS
from breakeven.storage.profile.findings import arm_of
from breakeven.storage.suite_runs.cells import outcomes
from breakeven.storage.suite_runs.groups import Cell, Outcome

MILLISECONDS, GIGABYTES = 1e3, 1e-9
"""Factors that convert seconds and bytes."""
FAILURES = {
    RunState.FAILED: "fail_to_run",
    RunState.LOST: "fail_to_run",
    RunState.OUT_OF_MEMORY: "OOM",
    RunState.TIMEOUT: "timeout",
}
"""Final state of a run to the harness's status. A cancelled or running run has none."""
EAGER_FAILURES = {RunState.FAILED: "fail", RunState.LOST: "fail", RunState.OUT_OF_MEMORY: "OOM"}
TIMED = tuple(scenario.name for scenario in SCENARIOS.values() if scenario.has_speedups)
"""Scenarios that time steps against a baseline."""
EAGER_RUNS = {"baseline": "eager_1st_run", "control": "eager_2nd_run"}
COUNTERS = (
    "calls_captured",
    "unique_graphs",
    "fallbacks_to_eager",
    "graph_breaks",
    "unique_graph_breaks",
    "autograd_captures",
    "autograd_compiles",
    "cudagraph_skips",
)
PERFORMANCE_COLUMNS = (
    "dev",
    "name",
    "batch_size",
    "tag",
    "speedup",
    "abs_latency",
    "compilation_latency",
    "compression_ratio",
    "eager_peak_mem",
    "dynamo_peak_mem",
    *COUNTERS,
)
ACCURACY_COLUMNS = (
    "dev",
    "name",
    "batch_size",
    "tag",
    "accuracy",
    *COUNTERS,
    "compilation_latency",
)
IDENTITY = ("dev", "name", "batch_size", "tag")

Row = dict[str, Any]
"""One backend's run, with names and units of the harness's columns: latencies of steps in ms, of
compiling in seconds, memory in GB. None: unmeasured; for `accuracy`, that neither parity nor a
failure is certain. `state`, `environment`, `ended` and others serve formats that are no CSV."""


def harness_name(model: ModelSpec) -> str:
    """The harness's name for a model of its suites, with a slash and a number if its size was
    reduced; the experiment's name for any other model."""
    return model.source.partition(":")[2] if model.from_suite else model.source


def rows_of(store: Store, id: str) -> list[Row]:
    """The rows of an experiment or of a suite run; raises `NotInStore`, and `NotExportable` if it
    times no steps."""
    if not queries.is_suite_run(store, id):
        return rows(store, id)
    timed = suite_rows(store, id)
    if not timed:
        raise NotExportable(f"suite run {id!r} times no steps; this format is for timed steps")
    return timed


def suite_rows(store: Store, suite_run: str) -> list[Row]:
    """The rows of all timed cells, with the statuses of their accuracy checks."""
    return [
        row | {"tag": cell_tag(outcome.cell), "accuracy": outcome.status or row["accuracy"]}
        for outcome in outcomes(store, suite_run)
        for experiment_id in cell_experiments(outcome, TIMED)
        for row in rows(store, experiment_id)
        if row["tag"] == outcome.cell.label
    ]


def cell_tag(cell: Cell) -> str:
    return f"{cell.backend}-{cell.precision}-{cell.part}"


def cell_experiments(outcome: Outcome, scenarios: tuple[str, ...]) -> list[str]:
    return [key for scenario, key in outcome.experiments.items() if scenario in scenarios]


def rows(store: Store, experiment_id: str) -> list[Row]:
    """The rows of an experiment's backends, in its order.

    Raises `NotInStore`, and `NotExportable` if the experiment times no steps.
    """
    comparison = compare(store, experiment_id)
    if not comparison.spec.kind.has_speedups:
        raise NotExportable(
            f"experiment {experiment_id!r} is of the scenario {comparison.spec.scenario!r}; this "
            f"format is for the scenarios {' and '.join(TIMED)}"
        )
    environments = queries.fields_by_run(queries.environments(store, experiment_id))
    ended = dict(
        store.rows(
            "SELECT run_id, trunc(ended)::BIGINT FROM progress JOIN runs USING (run_id) "
            "WHERE experiment_id = ?",
            [experiment_id],
        )
    )
    return [
        _row(comparison, result)
        | {
            "ended": ended.get(result.run_id),
            "environment": environments.get(result.run_id, {}),
        }
        for result in comparison.results
        if result.role == "backend"
    ]


def _row(comparison: Comparison, result: Result) -> Row:
    spec, measured = comparison.spec, result.measured
    baseline = comparison.baseline_of(result.label)
    eager = _scaled(baseline.measured.peak_memory_bytes if baseline else None, GIGABYTES)
    own = _scaled(measured.peak_memory_bytes, GIGABYTES)
    return {
        "dev": spec.device.partition(":")[0],
        "name": harness_name(spec.model),
        "origin": spec.model.from_suite and spec.model.from_suite.suite,
        "part": "training" if spec.trains else "inference",
        "batch_size": spec.training.batch_size * result.batch_times,
        "tag": result.label,
        "backend": result.backend or "",
        "dtype": spec.training.precision,
        "dynamic": arm_of(spec, result.label)[0].dynamic is True,
        "state": RunState(result.state),
        "accuracy": _status(comparison, result),
        "speedup": None if result.speedup is None else result.speedup.median,
        "abs_latency": _scaled(measured.step_seconds, MILLISECONDS),
        "compilation_latency": measured.compile_seconds,
        "compression_ratio": None if eager is None or not own else eager / own,
        "eager_peak_mem": eager,
        "dynamo_peak_mem": own,
        "calls_captured": result.graphs.num_operations,
        "unique_graphs": result.graphs.num_graphs,
        "graph_breaks": measured.graph_breaks,
        "unique_graph_breaks": result.graphs.num_break_reasons,
    }


def _status(comparison: Comparison, result: Result) -> str | None:
    """The harness's status for parity or a failure; failures of baseline and control, in the same
    environment, come first."""
    environments = comparison.spec.environment_by_label
    beside = [
        neighbour
        for neighbour in comparison.results
        if environments[neighbour.label] == environments[result.label]
    ]
    baselines = [neighbour for neighbour in beside if neighbour.role == "baseline"]
    controls = counted([neighbour for neighbour in beside if neighbour.role == "control"])
    for eager in (*baselines, *controls):
        if eager.state in EAGER_FAILURES:
            return f"{EAGER_RUNS[eager.role]}_{EAGER_FAILURES[RunState(eager.state)]}"
    if result.state in FAILURES:
        return FAILURES[RunState(result.state)]
    parity = result.parity
    if parity is not None and parity.is_wrong:
        return "fail_accuracy"
    is_shown = parity is not None and parity.is_good and result.state == RunState.FINISHED
    return "pass" if is_shown else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def next_to_imported(own: Iterable[Row], theirs: pd.DataFrame) -> pd.DataFrame:
    """Own rows first, as text; each row names its source."""
    rows = [("measured here", row["accuracy"], row) for row in own]
    rows += [(f"imported: {row['file']}", row["outcome"], row) for row in theirs.to_dict("records")]
    return pd.DataFrame(
        [
            {
                "from": source,
                "model": row["name"],
                "device": row["dev"],
                "batch_size": _or_dash(row["batch_size"], "{:.0f}"),
                "run": row["tag"] or DASH,
                "outcome": outcome or DASH,
                "speedup": METRICS["speedup"].format(row["speedup"]),
                "step_seconds": _seconds(row["abs_latency"], MILLISECONDS),
                "compile_seconds": _seconds(row["compilation_latency"], 1.0),
                "compression_ratio": _or_dash(row["compression_ratio"], "{:.2f}x"),
            }
            for source, outcome, row in rows
        ]
    )


def _or_dash(value: float | None, template: str) -> str:
    return DASH if value is None or pd.isna(value) else template.format(value)


def _seconds(value: float | None, per_second: float) -> str:
    seconds = None if value is None else value / per_second
    return METRICS["step_seconds"].format(seconds)


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
    if queries.is_suite_run(store, id):
        return write_csv(ACCURACY_COLUMNS, _checked_cells(store, id))
    if compare(store, id).spec.kind.has_checks:
        return write_csv(ACCURACY_COLUMNS, _checked(store, id))
    return write_csv(
        ACCURACY_COLUMNS, (_cells(row, ACCURACY_COLUMNS) for row in rows_of(store, id))
    )


def _checked(store: Store, experiment_id: str) -> Iterator[dict[str, str]]:
    spec = compare(store, experiment_id).spec
    backends = {arm.label for arm in spec.arms if arm.role == "backend"}
    for check in checks(store, experiment_id, spec):
        if check.label in backends:
            yield _judged(spec, f"{check.label}-{check.part}", check.status)


def _checked_cells(store: Store, suite_run: str) -> Iterator[dict[str, str]]:
    for outcome in outcomes(store, suite_run):
        if "accuracy" in outcome.experiments:
            spec = compare(store, outcome.experiments["accuracy"]).spec
            yield _judged(spec, cell_tag(outcome.cell), outcome.status)


def _judged(spec: ExperimentSpec, tag: str, status: str | None) -> dict[str, str]:
    return {
        "dev": spec.device.partition(":")[0],
        "name": harness_name(spec.model),
        "batch_size": str(spec.training.batch_size),
        "tag": tag,
        "accuracy": status or "",
    }


def _performance(row: Row) -> dict[str, str]:
    if row["state"] == RunState.FINISHED:
        return _cells(row, PERFORMANCE_COLUMNS)
    failed = {"speedup": "0.0", "abs_latency": "0.0"} if row["state"] in FAILURES else {}
    return {**_cells(row, IDENTITY), **failed}


def _cells(row: Row, columns: Sequence[str]) -> dict[str, str]:
    """Texts by column; empty for columns that Breakeven does not measure."""
    return {column: _written(row.get(column)) for column in columns}


def _written(value: str | int | float | None) -> str:
    if value is None:
        return ""
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def write_csv(columns: Sequence[str], cells: Iterable[dict[str, str]]) -> str:
    """CSV of rows of cells by column; missing cells are empty. Texts are never formulas."""
    frame = pd.DataFrame(list(cells), columns=list(columns), dtype=object).fillna("")
    return to_csv(frame).decode()


SCHEMA_VERSION = "v3"
HUD_METRICS = (
    "speedup",
    "abs_latency",
    "compilation_latency",
    "compression_ratio",
    "eager_peak_mem",
    "dynamo_peak_mem",
    "calls_captured",
    "unique_graphs",
    "graph_breaks",
    "unique_graph_breaks",
)
"""Metrics with the names and units of the harness's columns."""


def hud_json(store: Store, id: str) -> str:
    """Benchmark records of PyTorch's HUD, version 3, for an experiment or a suite run, one per
    backend and metric. Unknown fields are omitted; the format requires only `metric`."""
    records = [record for row in rows_of(store, id) for record in _hud_records(row)]
    return json.dumps(records, indent=2) + "\n"


def _hud_records(row: Row) -> Iterator[dict[str, Any]]:
    """The records of a row; a run that did not finish has at most a status."""
    common = _common(row)
    for name in HUD_METRICS if row["state"] == RunState.FINISHED else ():
        if row[name] is not None:
            yield {**common, "metric": {"name": name, "benchmark_values": [row[name]]}}
    if row["accuracy"] is not None:
        # A status is a text, but benchmark_values contains numbers.
        status = {"benchmark_values": [row["accuracy"]]}
        yield {
            **common,
            "metric": {"name": "accuracy", "benchmark_values": [], "extra_info": status},
        }


def _common(row: Row) -> dict[str, Any]:
    versions = row["environment"].get("versions") or {}
    about = {"device": row["dev"], "batch_size": str(row["batch_size"]), "tag": row["tag"]}
    return _known(
        {
            "timestamp": row["ended"],
            "schema_version": SCHEMA_VERSION,
            "name": "breakeven",
            "runners": [_runner(row["environment"], row["dev"])] if row["environment"] else None,
            "benchmark": {
                "name": "Breakeven",
                "mode": row["part"],
                "dtype": row["dtype"],
                "extra_info": about,
            },
            "model": _known(
                {
                    "name": row["name"],
                    "backend": row["backend"],
                    "origins": row["origin"] and [row["origin"]],
                }
            ),
            "dependencies": {
                package: {"version": version} for package, version in versions.items()
            },
        }
    )


def _runner(machine: dict[str, Any], device: str) -> dict[str, Any]:
    memory = machine.get("gpu_memory_bytes")
    on_gpu = device != "cpu"
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


def cachebench_json(store: Store, id: str) -> str:
    """JSON of `cachebench.py` for an experiment, or for all cells of a suite run with a compile
    latency; raises `NotInStore` or `NotExportable`.

    The three records of a model are the cold compile times, the warm ones, and the reduction in
    percent. An experiment of the scenario `cache` has all three. A training compiles once, from an
    empty cache: it has only a cold time.
    """
    ids = [id]
    if queries.is_suite_run(store, id):
        ids = [
            key for outcome in outcomes(store, id) for key in cell_experiments(outcome, MEASURED)
        ]
    records: list[dict[str, Any]] = []
    for experiment_id in dict.fromkeys(ids):
        comparison = compare(store, experiment_id)
        spec = comparison.spec
        if spec.cold_and_warm:
            for times in cold_and_warm(comparison):
                if sum(times.cold_seconds) == 0:
                    continue
                arm = parse_backend(times.backend)
                records += _cache_records(
                    spec,
                    arm.label,
                    arm.dynamic is True,
                    times.cold_seconds,
                    times.warm_seconds,
                )
        else:
            for row in rows(store, experiment_id):
                if row["state"] == RunState.FINISHED and row["compilation_latency"] is not None:
                    cold = [row["compilation_latency"]]
                    records += _cache_records(spec, row["tag"], row["dynamic"], cold, ())
    return json.dumps(records, indent=2) + "\n"


def _cache_records(
    spec: ExperimentSpec, backend: str, dynamic: bool, cold: Sequence[float], warm: Sequence[float]
) -> Iterator[dict[str, Any]]:
    """A record for each known one of the three metrics of a backend, from its compile seconds;
    `dynamic`: whether shapes were dynamic from the start."""
    metrics: dict[str, Sequence[float]] = {"Cold compile time (s)": cold}
    if warm:
        metrics["Warm compile time (s)"] = warm
        metrics["Speedup (%)"] = [(1 - sum(warm) / sum(cold)) * 100]
    device = spec.device.partition(":")[0]
    for name, values in metrics.items():
        yield {
            "benchmark": {
                "name": "TorchCache Benchmark",
                "mode": "training" if spec.trains else "inference",
                "extra_info": {"is_dynamic": dynamic, "device": device},
            },
            # A user's own model belongs to none of the suites for `origins`.
            "model": {
                "name": harness_name(spec.model),
                "backend": backend,
                "origins": [spec.model.from_suite.suite] if spec.model.from_suite else [],
            },
            # The type is here and not in the model, as in cachebench.
            "metric": {"name": name, "type": "OSS model", "benchmark_values": list(values)},
        }


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
