"""JSON in the schema of `benchmarks/dynamo/cachebench.py`.

Its three records of a model are the cold compile times, the warm ones, and how much less the warm
ones are, in percent. An experiment of the scenario `cache` has all three. A training compiles once,
from an empty cache: that is a cold time, and the other two records are left out.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.variants import parse_backend
from breakeven.storage.comparison.latency import cold_and_warm
from breakeven.storage.exchange.rows import (
    TIMED,
    cell_experiments,
    harness_name,
    is_suite_run,
    load_spec,
    rows,
)
from breakeven.storage.index.store import Store
from breakeven.storage.suite.cells import outcomes

BENCHMARK = "TorchCache Benchmark"
MODEL_TYPE = "OSS model"
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


def records_json(store: Store, id: str) -> str:
    """The records of an experiment, or of all cells of a suite run that have a compile latency, as
    one list; raises `NotInStore` or `NotExportable`."""
    ids = [id]
    if is_suite_run(store, id):
        ids = [key for one in outcomes(store, id) for key in cell_experiments(one, MEASURED)]
    found: list[dict[str, Any]] = []
    for experiment_id in dict.fromkeys(ids):
        spec = load_spec(store, experiment_id)
        measure = _of_caches if spec.kind.compares_caches else _of_steps
        for times in measure(store, experiment_id):
            found += records(spec, times)
    return json.dumps(found, indent=2) + "\n"


def records(spec: ExperimentSpec, times: CompileTimes) -> Iterator[dict[str, Any]]:
    """A record for each of the three metrics that is known."""
    metrics: dict[str, Sequence[float]] = {"Cold compile time (s)": times.cold}
    if times.warm:
        metrics["Warm compile time (s)"] = times.warm
        metrics["Speedup (%)"] = [(1 - sum(times.warm) / sum(times.cold)) * 100]
    device = spec.device.partition(":")[0]
    for name, values in metrics.items():
        yield {
            "benchmark": {
                "name": BENCHMARK,
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
            "metric": {"name": name, "type": MODEL_TYPE, "benchmark_values": list(values)},
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
