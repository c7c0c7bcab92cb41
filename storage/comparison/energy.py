"""Computes the energy that a backend saves against the baseline, and after how many steps it has
saved more than compiling used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.evidence import Evidence, of_role
from breakeven.storage.comparison.rounds import paired_blocks, savings
from breakeven.storage.statistics.speedups import (
    BreakEven,
    Ratio,
    SpeedVerdict,
    break_even,
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


def energy_savings(spec: ExperimentSpec, runs: Sequence[Evidence]) -> dict[str, EnergySaving]:
    """The saving by label, of each backend with a reading in a round of the baseline."""
    in_joules = {run.label: _in_joules(run) for run in runs}
    metered = [run for run in in_joules.values() if run is not None]
    baseline = of_role(metered, "baseline")
    if baseline is None:
        return {}
    pairs = {run.label: paired_blocks(baseline, run) for run in metered if run is not baseline}
    ratios = {}
    for label, rounds in pairs.items():
        if ratio := paired_ratio(rounds["baseline"], rounds["other"], rounds["process"]):
            ratios[label] = ratio
    floor = noise_floor([ratios.get(run.label) for run in metered if run.role == "control"])
    backends = [run for run in metered if run.role == "backend" and run.label in ratios]
    corrected = holm([ratios[run.label].p_value for run in backends])
    per_step = _joules_per_step(baseline)
    all_compiled = {run.label: len(_compiled(run)) for run in runs}
    savings_found = {}
    for run, p_holm in zip(backends, corrected, strict=True):
        ratio, own_pairs = ratios[run.label], pairs[run.label]
        verdict = speed_verdict(ratio, p_holm, floor)
        is_known = spec.compile == "alone" and len(_compiled(run)) == all_compiled[run.label]
        compiling = _joules_of_compiling(run) if is_known else []
        savings_found[run.label] = EnergySaving(
            ratio=ratio,
            verdict=verdict,
            break_even=break_even(
                verdict, compiling, savings(own_pairs), per_step, None, own_pairs["process"]
            ),
        )
    return savings_found


def _in_joules(run: Evidence) -> Evidence | None:
    """The run's blocks with a reading, with joules in place of seconds. None without a steady one,
    or if a steady block was too short for the device's counter to advance."""
    if run.device["energy_joules"].isna().all():
        return None  # Most devices have no meter, and a join of no rows takes milliseconds, too.
    keys = ["run_id", "round", "first_step"]
    read = run.device[[*keys, "energy_joules"]].dropna()
    blocks = run.blocks.drop(columns="seconds").merge(read, on=keys)
    blocks = blocks.rename(columns={"energy_joules": "seconds"})
    steady = blocks["seconds"][blocks["steady"].to_numpy(bool)]
    return replace(run, blocks=blocks) if len(steady) and (steady > 0).all() else None


def _joules_per_step(run: Evidence) -> float:
    steady = run.steady_blocks
    return float(steady["seconds"].sum() / steady["num_steps"].sum())


def _compiled(run: Evidence) -> pd.DataFrame:
    """The blocks that compiled. As for compile latencies, only the first process of a resumed run
    counts."""
    is_first = (run.blocks["attempt"] == 1).to_numpy()
    return run.blocks[is_first & run.blocks["compiled"].to_numpy(bool)]


def _joules_of_compiling(run: Evidence) -> list[float]:
    """For each process that compiled: energy of the blocks that compiled, minus that of as many
    steady steps; at least 0."""
    blocks = _compiled(run).groupby("process")
    spent = blocks["seconds"].sum() - blocks["num_steps"].sum() * _joules_per_step(run)
    return [max(0.0, float(joules)) for joules in spent]
