"""Results with the statuses and units of the Dynamo harness, one row per model and backend.

Unmeasured values are None. The harness writes one file for each backend, precision and part; here
`tag` identifies them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec, ModelSpec
from breakeven.runner.specs.scenarios import SCENARIOS, Part
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.evidence import Evidence, counted
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.comparison.rounds import load_compared
from breakeven.storage.errors import NotExportable
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import DASH, METRICS
from breakeven.storage.profile.findings import variant_of
from breakeven.storage.suite.cells import outcomes
from breakeven.storage.suite.groups import Cell, Outcome

MILLISECONDS, GIGABYTES = 1e3, 1e-9
"""Factors that convert seconds and bytes."""
FAILURES = {
    RunState.FAILED: "fail_to_run",
    RunState.LOST: "fail_to_run",
    RunState.OUT_OF_MEMORY: "OOM",
    RunState.TIMEOUT: "timeout",
}
"""Final state of a run to the harness's status. A cancelled or running run has none."""
EAGER_FAILURES = {
    RunState.FAILED: "fail",
    RunState.LOST: "fail",
    RunState.OUT_OF_MEMORY: "OOM",
}
TIMED = tuple(one.name for one in SCENARIOS.values() if one.compares_runs)
"""Scenarios that time steps against a baseline."""
EAGER_RUNS = {"baseline": "eager_1st_run", "control": "eager_2nd_run"}


@dataclass(frozen=True, kw_only=True)
class HarnessRow:
    """One backend's run, with names and units of the harness's columns."""

    dev: str
    """cpu or cuda."""
    name: str
    """The model; for a suite's model the name in the harness."""
    origin: str | None
    """The suite of the model; None without a suite."""
    part: Part
    batch_size: int
    tag: str
    """Label of the run."""
    backend: str
    dtype: str
    dynamic: bool
    """Whether shapes were dynamic from the start."""
    state: RunState
    accuracy: str | None
    """Status; None if neither parity nor a failure is certain."""
    speedup: float | None
    abs_latency: float | None
    """Median step time in ms."""
    compilation_latency: float | None
    """Seconds, with an initially empty compile cache."""
    eager_peak_mem: float | None
    """Peak memory of the baseline in GB."""
    dynamo_peak_mem: float | None
    calls_captured: int | None
    unique_graphs: int | None
    graph_breaks: int | None
    unique_graph_breaks: int | None
    ended: int | None
    """Seconds since the epoch."""
    environment: dict[str, Any]
    """Fields of the `environment` event."""

    @property
    def has_finished(self) -> bool:
        """Whether the numbers are those of a complete run."""
        return self.state == RunState.FINISHED

    @property
    def has_failed(self) -> bool:
        return self.state in FAILURES

    @property
    def compression_ratio(self) -> float | None:
        """Memory needed by the baseline over that of the backend."""
        if self.eager_peak_mem is None or not self.dynamo_peak_mem:
            return None
        return self.eager_peak_mem / self.dynamo_peak_mem


def load_spec(store: Store, experiment_id: str) -> ExperimentSpec:
    """The specification of the experiment; raises `NotInStore`."""
    return compare(store, experiment_id).spec


def harness_name(model: ModelSpec) -> str:
    """The harness's name for a model of its suites, with a slash and a number if its size was
    reduced; the experiment's name for any other model."""
    return model.source.partition(":")[2] if model.from_suite else model.source


def is_suite_run(store: Store, id: str) -> bool:
    return id in set(queries.list_suite_runs(store)["suite_run"])


def rows_of(store: Store, id: str) -> list[HarnessRow]:
    """The rows of an experiment or of a suite run; raises `NotInStore`, and `NotExportable` if it
    times no steps."""
    if not is_suite_run(store, id):
        return rows(store, id)
    found = suite_rows(store, id)
    if not found:
        raise NotExportable(f"suite run {id!r} times no steps; this format is for timed steps")
    return found


def suite_rows(store: Store, suite_run: str) -> list[HarnessRow]:
    """The rows of all timed cells, with the statuses of their accuracy checks."""
    return [row for one in outcomes(store, suite_run) for row in _cell_rows(store, one)]


def _cell_rows(store: Store, outcome: Outcome) -> Iterator[HarnessRow]:
    for experiment_id in cell_experiments(outcome, TIMED):
        for row in rows(store, experiment_id):
            if row.tag == outcome.cell.label:
                status = outcome.status or row.accuracy
                yield replace(row, tag=cell_tag(outcome.cell), accuracy=status)


def cell_tag(cell: Cell) -> str:
    return f"{cell.backend}-{cell.precision}-{cell.part}"


def cell_experiments(outcome: Outcome, scenarios: tuple[str, ...]) -> list[str]:
    return [key for scenario, key in outcome.experiments.items() if scenario in scenarios]


def rows(store: Store, experiment_id: str) -> list[HarnessRow]:
    """The rows of an experiment's backends, in its order.

    Raises `NotInStore`, and `NotExportable` if the experiment times no steps.
    """
    comparison = compare(store, experiment_id)
    if not comparison.spec.kind.compares_runs:
        raise NotExportable(
            f"experiment {experiment_id!r} is of the scenario {comparison.spec.scenario!r}; this "
            f"format is for the scenarios {' and '.join(TIMED)}"
        )
    evidence = {run.label: run for run in load_compared(store, experiment_id)[1]}
    ended = _ended(store, experiment_id)
    return [
        _row(comparison, result, evidence[result.label], ended.get(result.run_id))
        for result in comparison.results
        if result.role == "backend"
    ]


def _row(comparison: Comparison, result: Result, run: Evidence, ended: int | None) -> HarnessRow:
    spec = comparison.spec
    baseline = comparison.baseline_of(result.label)
    graphs = run.compiled_frames["graph_ops"].dropna()
    has_graphs = len(graphs) > 0
    breaks = (
        run.graph_breaks["reason"].nunique() if result.measured.graph_breaks is not None else None
    )
    return HarnessRow(
        dev=spec.device.partition(":")[0],
        name=harness_name(spec.model),
        origin=spec.model.from_suite and spec.model.from_suite.suite,
        part="training" if spec.trains else "inference",
        batch_size=spec.training.batch_size * result.batch_times,
        tag=result.label,
        backend=result.backend or "",
        dtype=spec.training.precision,
        dynamic=variant_of(spec, result.label)[0].dynamic is True,
        state=RunState(result.state),
        accuracy=_status(comparison, result),
        speedup=None if result.speedup is None else result.speedup.median,
        abs_latency=_scaled(result.measured.step_seconds, MILLISECONDS),
        compilation_latency=result.measured.compile_seconds,
        eager_peak_mem=_scaled(
            baseline.measured.peak_memory_bytes if baseline else None, GIGABYTES
        ),
        dynamo_peak_mem=_scaled(result.measured.peak_memory_bytes, GIGABYTES),
        calls_captured=int(graphs.sum()) if has_graphs else None,
        unique_graphs=int((graphs > 0).sum()) if has_graphs else None,
        graph_breaks=result.measured.graph_breaks,
        unique_graph_breaks=breaks,
        ended=ended,
        environment=run.environment,
    )


def _status(comparison: Comparison, result: Result) -> str | None:
    """The harness's status for parity or a failure; failures of baseline and control, in the same
    environment, come first."""
    of = comparison.spec.environment_by_label
    beside = [one for one in comparison.results if of[one.label] == of[result.label]]
    controls = counted([one for one in beside if one.role == "control"])
    for one in [*(one for one in beside if one.role == "baseline"), *controls]:
        if one.state in EAGER_FAILURES:
            return f"{EAGER_RUNS[one.role]}_{EAGER_FAILURES[RunState(one.state)]}"
    if result.state in FAILURES:
        return FAILURES[RunState(result.state)]
    verdict = result.parity.verdict if result.parity is not None else None
    if verdict == "broken":
        return "fail_accuracy"
    is_shown = verdict == "holds" and result.state == RunState.FINISHED
    return "pass" if is_shown else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _ended(store: Store, experiment_id: str) -> dict[str, int]:
    frame = store.query(
        "SELECT run_id, ended FROM progress JOIN runs USING (run_id) WHERE experiment_id = ?",
        [experiment_id],
    )
    return {run: int(end) for run, end in frame.itertuples(index=False) if not pd.isna(end)}


def next_to_imported(own: Iterable[HarnessRow], theirs: pd.DataFrame) -> pd.DataFrame:
    """Own rows first, as text; each row names its source."""
    rows = [("measured here", row.accuracy, row) for row in own]
    rows += [(f"imported: {row.file}", row.outcome, row) for row in theirs.itertuples()]
    return pd.DataFrame([
        {
            "from": source, "model": row.name, "device": row.dev,
            "batch_size": _or_dash(row.batch_size, "{:.0f}"), "run": row.tag or DASH,
            "outcome": outcome or DASH, "speedup": METRICS["speedup"].format(row.speedup),
            "step_seconds": _seconds(row.abs_latency, MILLISECONDS),
            "compile_seconds": _seconds(row.compilation_latency, 1.0),
            "compression_ratio": _or_dash(row.compression_ratio, "{:.2f}x"),
        }
        for source, outcome, row in rows
    ])  # fmt: skip


def _or_dash(value: float | None, template: str) -> str:
    return DASH if value is None or pd.isna(value) else template.format(value)


def _seconds(value: float | None, per_second: float) -> str:
    seconds = None if value is None else value / per_second
    return METRICS["step_seconds"].format(seconds)
