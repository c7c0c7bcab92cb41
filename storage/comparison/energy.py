"""Computes the energy that a backend saves against the baseline, and after how many steps it has
saved more than compiling used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.evidence import Evidence
from breakeven.storage.comparison.pairs import enough, savings
from breakeven.storage.statistics.break_even import BreakEven, break_even
from breakeven.storage.statistics.speedups import (
    Ratio,
    SpeedVerdict,
    holm,
    noise_floor,
    paired_ratio,
    speed_verdict,
)


@dataclass(frozen=True, kw_only=True)
class EnergySaving:
    """The energy of a backend's steps beside that of the baseline's, judged like speed."""

    ratio: Ratio
    """The baseline's energy over the backend's, in rounds with a reading of both."""
    verdict: SpeedVerdict
    """`faster` means less energy."""
    break_even: BreakEven | None
    """Joules take the place of its seconds. None if the backend compiled nothing, or if the energy
    of compiling is unknown: a block was not watched, or several runs may have compiled at once."""


def energy_savings(
    spec: ExperimentSpec,
    baseline: Evidence | None,
    runs: Sequence[Evidence],
    rounds: Mapping[str, pd.DataFrame],
) -> dict[str, EnergySaving]:
    """The saving by label, of each backend with a reading in a round of the baseline. `rounds` has
    the paired rounds with the baseline, by label."""
    if baseline is None or not baseline.is_metered:
        return {}
    metered = [run for run in runs if run.is_metered and run is not baseline]
    pairs = {run.label: _with_readings(baseline, run, rounds[run.label]) for run in metered}
    ratios = {run.label: _ratio(pairs[run.label]) for run in metered}
    floor = noise_floor([ratios[run.label] for run in metered if run.role == "control"])
    backends = {
        run.label: (run, ratio)
        for run in metered
        if run.role == "backend" and (ratio := ratios[run.label]) is not None
    }
    corrected = holm([ratio.p_value for _, ratio in backends.values()])
    return {
        label: _saving(spec, baseline, run, pairs[label], ratio, speed_verdict(ratio, p, floor))
        for (label, (run, ratio)), p in zip(backends.items(), corrected, strict=True)
    }


def _with_readings(baseline: Evidence, run: Evidence, rounds: pd.DataFrame) -> pd.DataFrame:
    """The paired rounds in which the meters of both were read."""
    return enough(baseline, run, rounds.dropna(subset=["baseline_joules", "other_joules"]))


def _ratio(pairs: pd.DataFrame) -> Ratio | None:
    return paired_ratio(pairs["baseline_joules"], pairs["other_joules"], pairs["process"])


def _saving(
    spec: ExperimentSpec,
    baseline: Evidence,
    run: Evidence,
    pairs: pd.DataFrame,
    ratio: Ratio,
    verdict: SpeedVerdict,
) -> EnergySaving:
    own, base = (_joules_of_compiling(judged) for judged in (run, baseline))
    is_known = spec.compile == "alone" and own is not None and base is not None
    return EnergySaving(
        ratio=ratio,
        verdict=verdict,
        break_even=break_even(
            verdict,
            own if is_known and own else [],
            savings(pairs, "_joules"),
            _joules_per_step(baseline),
            None,
            pairs["process"],
            baseline_latencies=base if is_known and base else [],
        ),
    )


def _joules_per_step(run: Evidence) -> float:
    steady = run.steady_blocks.dropna(subset="joules")
    return float(steady["joules"].sum() / steady["num_steps"].sum())


def _compiled(run: Evidence) -> pd.DataFrame:
    """The blocks that compiled. As for compile latencies, only the first process of a resumed run
    counts."""
    is_first = (run.blocks["attempt"] == 1).to_numpy()
    return run.blocks[is_first & run.blocks["compiled"].to_numpy(bool)]


def _joules_of_compiling(run: Evidence) -> list[float] | None:
    """For each process that compiled: energy of the blocks that compiled, minus that of as many
    steady steps; at least 0. None if a block was not watched."""
    compiled = _compiled(run)
    if compiled["joules"].isna().any():
        return None
    blocks = compiled.groupby("process")
    spent = blocks["joules"].sum() - blocks["num_steps"].sum() * _joules_per_step(run)
    return [max(0.0, float(joules)) for joules in spent]
