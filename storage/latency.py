"""What compile caches save: cold processes against warm ones on the caches that they left.

Each repeat of the scenario `cache` pairs a process that began with empty caches with one that began
with the caches it left behind.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from storage.evidence import load_evidence
from storage.metrics import METRICS
from storage.statistics import Ratio, paired_ratio
from storage.store import Store


@dataclass(frozen=True, kw_only=True)
class ColdWarm:
    """Compile latencies of one backend, over the repeats of which both processes are known."""

    backend: str
    """The backend as the experiment names it."""
    cold_seconds: tuple[float, ...]
    warm_seconds: tuple[float, ...]

    @property
    def cold_median(self) -> float:
        return float(np.median(self.cold_seconds))

    @property
    def warm_median(self) -> float:
        return float(np.median(self.warm_seconds))

    @property
    def time_saved(self) -> float | None:
        """1 - sum(warm) / sum(cold), over the repeats; what `cachebench.py` calls a speedup."""
        total = sum(self.cold_seconds)
        return 1 - sum(self.warm_seconds) / total if total else None

    @property
    def ratio(self) -> Ratio | None:
        """Cold over warm, paired by repeat; None if a warm process did not compile at all."""
        if min(self.warm_seconds) <= 0:
            return None
        return paired_ratio(self.cold_seconds, self.warm_seconds)


def cold_and_warm(store: Store, experiment_id: str) -> list[ColdWarm]:
    """Latencies by backend, in the order of the experiment; raises `NotInStore`.

    A repeat of which one process has no compile latency (yet) is left out, and so is a backend
    without a repeat that is complete.
    """
    spec, runs = load_evidence(store, experiment_id)
    seconds = {run.label: run.compile_seconds for run in runs}
    known = pd.DataFrame(
        [
            {"backend": text, "cold": seconds.get(cold.label), "warm": seconds.get(warm.label)}
            for text, cold, warm in spec.cold_and_warm
        ],
        columns=["backend", "cold", "warm"],
    ).dropna()
    return [
        ColdWarm(
            backend=str(backend),
            cold_seconds=tuple(map(float, mine["cold"])),
            warm_seconds=tuple(map(float, mine["warm"])),
        )
        for backend, mine in known.groupby("backend", sort=False)
    ]


def summary(found: list[ColdWarm]) -> str:
    """A line per backend, for the terminal."""
    seconds, share = METRICS["compile_seconds"].format, METRICS["compile_time_saved"].format
    return "\n".join(
        f"filled caches, {one.backend}: {seconds(one.warm_median)} instead of "
        f"{seconds(one.cold_median)}, {share(one.time_saved)} of the compile time saved; "
        f"repeats: {len(one.cold_seconds)}"
        for one in found
    )
