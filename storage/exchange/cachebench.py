"""JSON in the schema of `benchmarks/dynamo/cachebench.py`.

Its three records of a model are the cold compile times, the warm ones and a percentage of both. A
run of a training compiles from an empty cache, so its latency is the cold time; the other two
records are left out where no warm process was measured.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from storage.exchange.rows import Row

BENCHMARK = "TorchCache Benchmark"
COLD = "Cold compile time (s)"
MODEL_TYPE = "OSS model"
MODE = "training"
NOTE = "cold compile times only: no warm process was measured, so two of three records are left out"


def records_json(rows: Sequence[Row]) -> str:
    """The text of a file."""
    return json.dumps([record for row in rows for record in records(row)], indent=2) + "\n"


def records(row: Row) -> Iterator[dict[str, Any]]:
    """The record of the cold time; none of a run that did not finish or compiled nothing."""
    if not row.has_finished or row.compilation_latency is None:
        return
    yield {
        "benchmark": {
            "name": BENCHMARK,
            "mode": MODE,
            "extra_info": {"is_dynamic": row.dynamic, "device": row.dev},
        },
        # A model of one's own comes from none of the suites that `origins` names.
        "model": {"name": row.name, "backend": row.backend, "origins": []},
        # The type stands here and not in the model because cachebench has it so.
        "metric": {
            "name": COLD,
            "type": MODEL_TYPE,
            "benchmark_values": [row.compilation_latency],
        },
    }
