"""Journals of runs with device samples."""

from typing import Any

from breakeven.runner.protocol.data_dir import DataDir
from tests.helpers.pages_journals import LOSSES, recording

ON_CUDA = {
    "gpu_memory_bytes": 80 * 2**30,
    "cpu_threads": 8,
    "usable_cpus": 16,
    "cpu_threads_reason": "half of 16",
}


SAMPLE: dict[str, Any] = {
    "sm_clock_mhz": 1980,
    "temperature_celsius": 50,
    "throttle_reasons": [],
    "throttled_seconds": {},
    "processes": [],
    "device_memory_used_bytes": 2**30,
    "wall_seconds": 1.0,
}


OTHER = {"pid": 4711, "name": "make", "memory_bytes": 3 * 2**30}


def record(data_dir: DataDir, **of_inductor: Any) -> None:
    """Four blocks of each run with one sample each; `of_inductor` replaces fields of its
    samples."""
    for label in ("baseline", "control", "inductor"):
        run = recording(data_dir, label)
        run.start(environment=ON_CUDA)
        for block in range(4):
            run.block([0.1] * 10, LOSSES[block * 10 : block * 10 + 10])
            run.device(**SAMPLE | (of_inductor if label == "inductor" else {}))
        run.end()
