"""Measures the time that compile caches save: cold processes against warm ones.

Each repeat of the scenario `cache` pairs a process that began with empty caches with a process that
began with the caches that the first one wrote.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.texts import listed
from breakeven.storage.comparison.evidence import number
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.comparison.run_numbers import RunNumbers
from breakeven.storage.statistics.break_even import BreakEven, break_even, with_ends
from breakeven.storage.statistics.speedups import (
    Ratio,
    SpeedVerdict,
    holm,
    paired_ratio,
    speed_verdict,
)


@dataclass(frozen=True, kw_only=True)
class ColdWarm:
    """Compile latencies of one backend, over the repeats with two known latencies."""

    backend: str
    """The backend's name in the experiment."""
    cold_seconds: tuple[float, ...]
    warm_seconds: tuple[float, ...]
    gains: tuple[float, ...] = ()
    """Seconds that a steady step of each repeat saves against the baseline's; empty if a process
    has no steady step."""
    speed_verdict: SpeedVerdict | None = None
    """From the steps of the repeats against the baseline's; no control measures noise here."""
    baseline_seconds: float | None = None
    """Duration of a steady step of the baseline."""
    step_seconds: float | None = None
    """Median over the repeats of the duration of a steady step."""
    steps_per_epoch: int | None = None

    @property
    def cold_median(self) -> float:
        return float(np.median(self.cold_seconds))

    @property
    def warm_median(self) -> float:
        return float(np.median(self.warm_seconds))

    @property
    def time_saved(self) -> float | None:
        """1 - sum(warm) / sum(cold), over the repeats; `cachebench.py` calls this a speedup."""
        total = sum(self.cold_seconds)
        return 1 - sum(self.warm_seconds) / total if total else None

    @property
    def cold_break_even(self) -> BreakEven | None:
        """None without steady steps to compare."""
        return self._break_even(self.cold_seconds)

    @property
    def warm_break_even(self) -> BreakEven | None:
        """The same for a process that begins with filled caches."""
        return self._break_even(self.warm_seconds)

    def _break_even(self, latencies: Sequence[float]) -> BreakEven | None:
        if self.baseline_seconds is None:
            return None
        return break_even(
            self.speed_verdict, latencies, self.gains, self.baseline_seconds, self.steps_per_epoch
        )

    def totals(self, num_steps: int) -> tuple[float, float, float] | None:
        """Seconds of a training of so many steps: with empty caches, with filled ones, and without
        a compiler. None without steady steps to compare."""
        if self.baseline_seconds is None or self.step_seconds is None:
            return None
        cold, warm = (
            latency + num_steps * self.step_seconds
            for latency in (self.cold_median, self.warm_median)
        )
        return cold, warm, num_steps * self.baseline_seconds

    @property
    def ratio(self) -> Ratio | None:
        """Cold over warm, paired by repeat; None if a warm process did not compile at all."""
        if min(self.warm_seconds) <= 0:
            return None
        return paired_ratio(self.cold_seconds, self.warm_seconds)


def without_latency(comparison: Comparison) -> list[Result]:
    """Cold and warm processes that finished without a known latency."""
    labels = {arm.label for _text, *pair in comparison.spec.cold_and_warm for arm in pair}
    return [
        result
        for result in comparison.results
        if result.label in labels
        and result.state == RunState.FINISHED
        and result.measured.compile_seconds is None
    ]


def cold_and_warm(comparison: Comparison) -> list[ColdWarm]:
    """Latencies by backend, in the order of the experiment.

    Omits repeats in which a process has no compile latency (yet), and backends without a complete
    repeat.
    """
    spec = comparison.spec
    runs = {result.label: result.measured for result in comparison.results}
    seconds = {label: measured.compile_seconds for label, measured in runs.items()}
    known = pd.DataFrame(
        [
            {
                "backend": text,
                "cold": seconds.get(cold.label),
                "warm": seconds.get(warm.label),
                "step": _step_seconds([runs.get(cold.label), runs.get(warm.label)]),
            }
            for text, cold, warm in spec.cold_and_warm
        ],
        columns=["backend", "cold", "warm", "step"],
    ).dropna(subset=["cold", "warm"])
    baseline = _step_seconds([runs.get("baseline")])
    speeds = _speeds(known, baseline)
    return [
        ColdWarm(
            backend=str(backend),
            cold_seconds=tuple(map(float, repeats["cold"])),
            warm_seconds=tuple(map(float, repeats["warm"])),
            gains=()
            if baseline is None
            else tuple(baseline - repeats["step"].dropna().astype(float)),
            speed_verdict=speeds.get(str(backend)),
            baseline_seconds=baseline,
            step_seconds=number(repeats["step"].astype(float).median()),
            steps_per_epoch=spec.steps_per_epoch,
        )
        for backend, repeats in known.groupby("backend", sort=False)
    ]


def _speeds(known: pd.DataFrame, baseline: float | None) -> dict[str, SpeedVerdict]:
    """The verdict of each backend with steady steps to compare with the baseline's."""
    timed = known.dropna(subset=["step"])
    if baseline is None:
        return {}
    ratios = {
        str(backend): paired_ratio(np.full(len(repeats), baseline), repeats["step"].astype(float))
        for backend, repeats in timed.groupby("backend", sort=False)
    }
    known_ratios = {backend: ratio for backend, ratio in ratios.items() if ratio is not None}
    corrected = holm([ratio.p_value for ratio in known_ratios.values()])
    return {
        backend: speed_verdict(ratio, p, None)
        for (backend, ratio), p in zip(known_ratios.items(), corrected, strict=True)
    }


def _step_seconds(processes: Sequence[RunNumbers | None]) -> float | None:
    """Mean duration of a steady step over the processes; None if one has no steady step."""
    step_seconds = [None if process is None else process.step_seconds for process in processes]
    known = [seconds for seconds in step_seconds if seconds is not None]
    return float(np.mean(known)) if len(known) == len(step_seconds) else None


def why_no_latency(results_without_latency: Sequence[Result]) -> list[str]:
    """Sentences on the processes without a latency, for the terminal and pages. If such a process
    compiled, it has no later step that shows the duration without compiling."""
    without_later_step = [
        result.label for result in results_without_latency if result.graphs.has_compiled
    ]
    never_compiled = [
        result.label for result in results_without_latency if not result.graphs.has_compiled
    ]
    sentences = []
    if without_later_step:
        sentences.append(
            f"{listed(without_later_step)} finished, but no step came after the turns that "
            "compiled, so nothing tells what a step takes without compiling: ask for more steps "
            "(cache.steps) or for shorter turns (block_steps)."
        )
    if never_compiled:
        sentences.append(f"{listed(never_compiled)} finished without having compiled anything.")
    return sentences


def latency_table(latencies: Sequence[ColdWarm]) -> pd.DataFrame:
    """A row of numbers for each backend; infinity means never."""
    return pd.DataFrame(
        [
            {
                "backend": latency.backend,
                "repeats": len(latency.cold_seconds),
                "cold_compile_seconds": latency.cold_median,
                "warm_compile_seconds": latency.warm_median,
                "compile_time_saved": latency.time_saved,
                **with_ends("cold_over_warm", latency.ratio),
                **with_ends("cold_break_even_steps", latency.cold_break_even),
                **with_ends("warm_break_even_steps", latency.warm_break_even),
            }
            for latency in latencies
        ]
    )


def process_table(latencies: Sequence[ColdWarm]) -> pd.DataFrame:
    """backend, repeat, cache (cold or warm), seconds: one row per process."""
    rows = [
        {"backend": latency.backend, "repeat": repeat, "cache": cache, "seconds": seconds}
        for latency in latencies
        for cache, times in (("cold", latency.cold_seconds), ("warm", latency.warm_seconds))
        for repeat, seconds in enumerate(times, start=1)
    ]
    return pd.DataFrame(rows, columns=["backend", "repeat", "cache", "seconds"])


def phase_table(spec: ExperimentSpec, by_run: pd.DataFrame) -> pd.DataFrame:
    """backend, cache, phase, seconds: the median time of each phase over the repeats."""
    backend_and_cache_by_label = {
        arm.label: (backend, cache)
        for backend, cold, warm in spec.cold_and_warm
        for cache, arm in (("cold", cold), ("warm", warm))
    }
    labelled_phases = by_run[by_run["label"].isin(backend_and_cache_by_label)]
    labelled_phases = labelled_phases.assign(
        backend=[backend_and_cache_by_label[label][0] for label in labelled_phases["label"]],
        cache=[backend_and_cache_by_label[label][1] for label in labelled_phases["label"]],
    )
    keys = ["backend", "cache", "phase"]
    return labelled_phases.groupby(keys, sort=False, as_index=False)["seconds"].median()
