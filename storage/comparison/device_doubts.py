"""Disturbances of the device during timing that cast doubt on the times of runs.

A rule looks at one run and compares its blocks with the baseline's. A finding appears among the
warnings of the comparison and next to the run's own numbers. docs/metrics.md gives the reasons for
the thresholds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.caution import Caution, Kind, note
from breakeven.storage.comparison.evidence import Evidence, known
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.statistics.speedups import MIN_MARGIN

DOUBTFUL_BLOCKS = 0.10
"""Share of a run's steady blocks. Fewer disturbed blocks hardly change a median over rounds."""
SHARED_CPU = 0.10
"""Share of the CPU time that other processes used while steady blocks ran."""
STOLEN_CPU = MIN_MARGIN
CLOCK_DIFFERENCE = MIN_MARGIN
"""Difference of median SM clocks from the baseline's; a larger one could decide a verdict alone."""
FREQUENCY_DIFFERENCE = 0.05
"""The same for a CPU, whose frequency is only read after the block."""
WARMING_CELSIUS = 10.0
ABOUT_OTHERS: tuple[Kind, ...] = ("shared device", "shared CPU")
"""Kinds whose cautions name the processes that were seen."""

Seen = dict[str, Any] | None
"""Figures that a rule found in a run; None if it found nothing."""


def device_doubts(run: Evidence, baseline: Evidence | None) -> tuple[Caution, ...]:
    """The findings of all rules in one run."""
    found = ((kind, find(run, baseline)) for kind, find in RULES.items())
    return tuple(_caution(kind, [(run, seen)]) for kind, seen in found if seen is not None)


def device_cautions(
    spec: ExperimentSpec, runs: Sequence[Evidence], doubts: Sequence[Sequence[Caution]]
) -> Iterator[Caution]:
    """The findings in all runs, one caution per rule; `doubts`: the `device_doubts` of each."""
    for kind in RULES:
        found = [
            (run, dict(one.runs[run.label]))
            for run, mine in zip(runs, doubts, strict=True)
            for one in mine
            if one.kind == kind
        ]
        if found:
            yield _caution(kind, found)
    if spec.schedule == "sequential":
        yield from _about_warming(runs)


def device_notes(spec: ExperimentSpec, runs: Sequence[Evidence]) -> tuple[Caution, ...]:
    """Notes on data that was not recorded, and on disturbances that turns make harmless."""
    notes = dict.fromkeys(text for run in runs for text in run.environment.get("notes") or [])
    blind = [Caution(kind="strangers unknown")] if any(map(_cannot_tell_strangers, runs)) else []
    warming = () if spec.schedule == "sequential" else _about_warming(runs)
    return (*map(note, notes), *blind, *warming)


def _throttled(run: Evidence, _: Evidence | None) -> Seen:
    steady = run.steady_device
    reasons = [reason for reason in steady["throttled_by"] if reason]
    if not _many(len(reasons), len(steady)):
        return None
    names = sorted({name for some in reasons for name in some})
    return {"num_seen": len(reasons), "num_looked": len(steady), "held_back": names}


def _shared_device(run: Evidence, _: Evidence | None) -> Seen:
    if run.computes_on_cpu:
        return None
    looks = run.device["processes"].dropna()
    with_others = [others for others in looks if others]
    if not with_others:
        return None
    first = run.device["round"].isna()
    return {
        "num_seen": len(with_others),
        "num_looked": len(looks),
        "was_before": any(run.device.loc[first, "processes"]),
    }


def _shared_cpu(run: Evidence, _: Evidence | None) -> Seen:
    """Only for runs on the CPU; for others it only starts kernels, and servers are always busy."""
    if not run.computes_on_cpu or (steady := _told(run, "busy_cpu_seconds")) is None:
        return None
    # Sums first: the system counts in hundredths of a second, and a block may be shorter.
    others = steady["busy_cpu_seconds"].sum() - steady["own_cpu_seconds"].sum()
    share = others / _capacity(steady)
    if share <= SHARED_CPU:
        return None
    return {"others_cpu_share": share, "num_cpus": int(steady["cpus"].iloc[-1])}


def _stolen_cpu(run: Evidence, _: Evidence | None) -> Seen:
    steady = _told(run, "stolen_cpu_seconds")
    if steady is None:
        return None
    share = steady["stolen_cpu_seconds"].sum() / _capacity(steady)
    return {"stolen_cpu_share": share} if share > STOLEN_CPU else None


def _quota(run: Evidence, _: Evidence | None) -> Seen:
    periods = known(run.steady_device["throttled_periods"])
    held_back = int((periods > 0).sum())
    if not _many(held_back, len(periods)):
        return None
    return {"num_seen": held_back, "num_looked": len(periods)}


def _told(run: Evidence, column: str) -> pd.DataFrame | None:
    """The samples of steady blocks with a value in this column; copies none if all have one."""
    told = run.steady_device[column].notna().to_numpy()
    return (run.steady_device if told.all() else run.steady_device[told]) if told.any() else None


def _clock(run: Evidence, baseline: Evidence | None) -> Seen:
    return _difference(run, baseline, "sm_clock_mhz", CLOCK_DIFFERENCE)


def _frequency(run: Evidence, baseline: Evidence | None) -> Seen:
    if not run.computes_on_cpu:
        return None
    return _difference(run, baseline, "cpu_frequency_mhz", FREQUENCY_DIFFERENCE)


def _difference(run: Evidence, baseline: Evidence | None, column: str, threshold: float) -> Seen:
    """The difference of the medians over steady blocks."""
    if baseline is None or run.role == "baseline":
        return None
    mine = known(run.steady_device[column])
    if len(mine) < MIN_PAIRS or len(its := known(_beside(baseline, run)[column])) < MIN_PAIRS:
        return None
    here, there = float(np.median(mine)), float(np.median(its))
    change = here / there - 1
    if abs(change) <= threshold:
        return None
    return {column: here, "baseline": there, "change": change}


def _beside(baseline: Evidence, run: Evidence) -> pd.DataFrame:
    """The baseline's samples from the devices and repeats in which the run was timed."""
    shared = baseline.blocks["process"].isin(run.blocks["process"])
    samples = baseline.steady_device
    if shared.all():
        return samples
    return samples[samples["run_id"].isin(baseline.blocks.loc[shared, "run_id"])]


def _threads(run: Evidence, _: Evidence | None) -> Seen:
    threads, usable = (run.environment.get(name) for name in ("cpu_threads", "usable_cpus"))
    if threads is None or usable is None or threads <= usable:
        return None
    return {"num_threads": threads, "num_cpus": usable}


def _about_warming(runs: Sequence[Evidence]) -> Iterator[Caution]:
    """Compares the temperatures of the first and the last fifth of all steady blocks, by time."""
    told = [one for run in runs if (one := _told(run, "temperature_celsius")) is not None]
    if not told:
        return
    columns = ["time", "temperature_celsius"]
    celsius = pd.concat([one[columns] for one in told]).sort_values("time")["temperature_celsius"]
    fifth = len(celsius) // 5
    if fifth == 0:
        return
    begin, end = celsius.iloc[:fifth].mean(), celsius.iloc[-fifth:].mean()
    if end - begin > WARMING_CELSIUS:
        yield Caution(kind="warmed up", figures={"begin": begin, "end": end})


def _cannot_tell_strangers(run: Evidence) -> bool:
    """Whether a device reports its clock, but no processes; without both it has its own note."""
    tells_clock = run.device["sm_clock_mhz"].notna()
    return bool(tells_clock.any() and run.device.loc[tells_clock, "processes"].isna().all())


def _many(count: int, total: int) -> bool:
    return count > 0 and count >= DOUBTFUL_BLOCKS * total


def _capacity(samples: pd.DataFrame) -> float:
    """Seconds of available CPU time."""
    return float((samples["wall_seconds"] * samples["cpus"]).sum())


def _caution(kind: Kind, found: Sequence[tuple[Evidence, dict[str, Any]]]) -> Caution:
    others = _others(run for run, _ in found) if kind in ABOUT_OTHERS else ()
    runs = {run.label: seen for run, seen in found}
    return Caution(kind=kind, runs=runs, figures={"processes": others})


def _others(runs: Iterable[Evidence]) -> tuple[dict[str, Any], ...]:
    """name, pid and memory_bytes of every other process on the device during these runs, the
    largest first. Omits a process without a pid, from a journal of another machine."""
    sizes: dict[tuple[str, int], int] = {}
    listed = [one for run in runs for listed in run.device["processes"] for one in listed or []]
    for one in (one for one in listed if one["pid"] is not None):
        key = (one["name"] or "?", one["pid"])
        sizes[key] = max(sizes.get(key, 0), one["memory_bytes"] or 0)
    ordered = sorted(sizes.items(), key=lambda item: -item[1])
    return tuple({"name": name, "pid": pid, "memory_bytes": size} for (name, pid), size in ordered)


RULES: dict[Kind, Callable[[Evidence, Evidence | None], Seen]] = {
    "throttled": _throttled,
    "shared device": _shared_device,
    "shared CPU": _shared_cpu,
    "stolen CPU": _stolen_cpu,
    "CPU quota": _quota,
    "other clock": _clock,
    "other frequency": _frequency,
    "many threads": _threads,
}
"""Each kind of disturbance with the rule that finds it by comparing a run with the baseline."""
