"""Benchmark records of PyTorch's HUD, version 3: a JSON list, one record per backend and metric.

Only fields that are known are written; of all of them the format requires `metric` alone.
"""

import json
from collections.abc import Iterator
from typing import Any

from breakeven.storage.exchange.rows import GIGABYTES, HarnessRow, rows_of
from breakeven.storage.index.store import Store

SCHEMA_VERSION = "v3"
NAME = "breakeven"
BENCHMARK = "Breakeven"
METRICS = (
    "speedup", "abs_latency", "compilation_latency", "compression_ratio", "eager_peak_mem",
    "dynamo_peak_mem", "calls_captured", "unique_graphs", "graph_breaks", "unique_graph_breaks",
)  # fmt: skip
"""Named as the harness's columns, in its units."""


def records_json(store: Store, id: str) -> str:
    """All records of an experiment or a suite run, as one list."""
    found = [record for row in rows_of(store, id) for record in records(row)]
    return json.dumps(found, indent=2) + "\n"


def records(row: HarnessRow) -> Iterator[dict[str, Any]]:
    """Its records; a run that did not finish has no numbers, only a status if any."""
    common = _common(row)
    measured = {name: getattr(row, name) for name in METRICS if row.has_finished}
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
        "name": NAME,
        "runners": [_runner(row)] if row.environment else None,
        "benchmark": {
            "name": BENCHMARK,
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
