"""Pairs the steady blocks of two runs by round. Every speedup, saving and ratio of energies rests
on these pairs, and only `pair_all` makes them, once for each comparison.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from breakeven.runner.specs.arm_fields import ENVIRONMENT_MARK
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.evidence import Evidence
from breakeven.storage.statistics.intervals import MIN_PAIRS, Floats
from breakeven.storage.statistics.speedups import Ratio, paired_ratio

KEYS = ["process", "round", "num_steps"]
SIZES = ("samples", "tokens")
"""Columns with the amount of work of a block's steps, as the script reported it."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The times on which a run's speed rests."""

    blocks: pd.DataFrame = field(compare=False, repr=False)
    """process, num_steps, seconds of its steady blocks, in the order of time."""
    rounds: pd.DataFrame = field(compare=False, repr=False)
    """Its blocks paired with those of its baseline: the result of `paired_blocks`; empty for the
    baseline, and without one."""
    compile_latencies: tuple[float, ...]
    """Seconds, one for each process that compiled."""
    has_moved: bool
    """Whether it was resumed on another number of devices."""

    @property
    def speedups(self) -> pd.DataFrame:
        """process, round, speedup of each paired round."""
        ratios = self.rounds["baseline"] / self.rounds["other"]
        return self.rounds[["process", "round"]].assign(speedup=ratios)


def timing_of(run: Evidence, rounds: pd.DataFrame) -> Timing:
    """The times of a run with these paired rounds."""
    blocks = run.steady_blocks[["process", "num_steps", "seconds"]].reset_index(drop=True)
    return Timing(
        blocks=blocks,
        rounds=rounds,
        compile_latencies=run.compile_latencies,
        has_moved=bool(run.journal.moved_at),
    )


def pair_all(spec: ExperimentSpec, runs: Sequence[Evidence]) -> dict[tuple[str, str], pd.DataFrame]:
    """The paired rounds of each run and each run that it is compared with, by the labels of both:
    the baseline of its environment, and the same run in the first environment. `runs` come from
    `pool`."""
    return {
        (first.label, run.label): paired_blocks(first, run)
        for run in runs
        for first in _partners(spec, runs, run)
    }


def _partners(spec: ExperimentSpec, runs: Sequence[Evidence], run: Evidence) -> Iterator[Evidence]:
    environments = spec.environment_by_label
    if run.role != "baseline":
        for other in runs:
            if other.role == "baseline" and environments[other.label] == environments[run.label]:
                yield other
                break
    if (first := in_first_environment(spec, runs, run)) is not None:
        yield first


def in_first_environment(
    spec: ExperimentSpec, runs: Sequence[Evidence], run: Evidence
) -> Evidence | None:
    """The same run in the first environment; None for controls and for runs of that environment."""
    first_name, *others = spec.environment_names
    backend, _, name = run.label.partition(ENVIRONMENT_MARK)
    if name not in others or run.role == "control":
        return None
    label = f"{backend}{ENVIRONMENT_MARK}{first_name}"
    return next((other for other in runs if other.label == label), None)


def no_rounds() -> pd.DataFrame:
    """The paired rounds of a run without a baseline."""
    return pd.DataFrame({name: [] for name in [*KEYS, "baseline", "other"]}, dtype=float)


def paired_blocks(baseline: Evidence, run: Evidence) -> pd.DataFrame:
    """process, round, num_steps, baseline, other: seconds of steady blocks of equal length from the
    same round, in the order of time; with meters for both also baseline_joules and other_joules,
    missing without a reading. Larger batches may have blocks of other lengths: `other` is then of
    as many samples, in steps of the experiment's batch size.

    Omits rounds in which a script gave the two runs different amounts of work. If one of the two
    ended early, too few rounds count as none, because no more will follow.
    """
    quantities = ["seconds", "joules"] if baseline.is_metered and run.is_metered else ["seconds"]
    if baseline.batch_times == run.batch_times == 1:
        pairs = pair(baseline.steady_blocks, run.steady_blocks, quantities)
    else:
        pairs = _pair_by_samples(baseline, run, quantities)
    is_timed = (pairs["baseline"].to_numpy() > 0) & (pairs["other"].to_numpy() > 0)
    pairs = pairs if is_timed.all() else pairs[is_timed]
    unequal = unequal_blocks(baseline, run)
    if len(unequal):
        rounds, others = (pd.MultiIndex.from_frame(blocks[KEYS]) for blocks in (pairs, unequal))
        pairs = pairs[~rounds.isin(others)]
    return enough(baseline, run, pairs).reset_index(drop=True)


def enough(baseline: Evidence, run: Evidence, pairs: pd.DataFrame) -> pd.DataFrame:
    """The pairs; none if they are too few for an interval and one of the runs ended early."""
    ended_early = baseline.state.ended_early or run.state.ended_early
    return pairs.iloc[:0] if ended_early and len(pairs) < MIN_PAIRS else pairs


def savings(pairs: pd.DataFrame, unit: str = "") -> Floats:
    """Seconds that a step of the other run saves in each paired round; joules with the unit
    `_joules`."""
    names = (f"baseline{unit}", f"other{unit}", "num_steps")
    baseline, other, steps = (pairs[name].to_numpy() for name in names)
    saved: Floats = (baseline - other) / steps
    return saved


def speedup_of(rounds: pd.DataFrame) -> Ratio | None:
    """The speedup of paired rounds; None without any."""
    return paired_ratio(rounds["baseline"], rounds["other"], rounds["process"])


def beside(first: pd.DataFrame, rounds: pd.DataFrame) -> pd.DataFrame:
    """The paired rounds of two runs that were both timed beside their baselines: of their rounds in
    common, process, round, num_steps, and the seconds of both as baseline and other."""
    columns = [*KEYS, "other"]
    both = first[columns].rename(columns={"other": "baseline"}).merge(rounds[columns], on=KEYS)
    return both


def unequal_blocks(baseline: Evidence, run: Evidence) -> pd.DataFrame:
    """process, round, num_steps, samples, tokens, samples_baseline, tokens_baseline of steady
    blocks from rounds in which the two runs had different amounts of work. Another training may
    pad the same samples further: it then works on more tokens."""
    if not (run.tells_sizes and baseline.tells_sizes):
        return run.steady_blocks.iloc[:0]
    blocks = [evidence.steady_blocks[[*KEYS, *SIZES]] for evidence in (run, baseline)]
    both = blocks[0].merge(blocks[1], on=KEYS, suffixes=("", "_baseline"))
    more = {size: (both[size] - both[f"{size}_baseline"]).fillna(0) for size in SIZES}
    is_padded = run.changes_training & both["samples"].notna() & (more["tokens"] > 0)
    return both[(more["samples"] != 0) | ((more["tokens"] != 0) & ~is_padded)]


NAMES = {"seconds": ("baseline", "other"), "joules": ("baseline_joules", "other_joules")}
"""Each quantity of a block with its columns in pairs."""


def pair(
    blocks: pd.DataFrame, others: pd.DataFrame, quantities: Sequence[str] = ("seconds",)
) -> pd.DataFrame:
    """process, round, num_steps, and the quantities of both."""
    if not (_are_in_turn(blocks) and _are_in_turn(others, like=blocks)):
        names = [*KEYS, *quantities]
        pairs = blocks[names].merge(others[names], on=KEYS)
        return pairs.rename(
            columns={
                f"{quantity}{suffix}": name
                for quantity in quantities
                for suffix, name in zip(("_x", "_y"), NAMES[quantity], strict=True)
            }
        )
    # The usual case of one block per round takes a tenth of the time of a join.
    rounds, own_places, other_places = np.intersect1d(
        blocks["round"], others["round"], assume_unique=True, return_indices=True
    )
    num_steps = blocks["num_steps"].to_numpy()[own_places]
    alike = num_steps == others["num_steps"].to_numpy()[other_places]
    columns = {
        name: frame[quantity].to_numpy()[places][alike]
        for quantity in quantities
        for name, frame, places in zip(
            NAMES[quantity], (blocks, others), (own_places, other_places), strict=True
        )
    }
    process = blocks["process"].iloc[0]
    return pd.DataFrame(
        {"process": process, "round": rounds[alike], "num_steps": num_steps[alike], **columns}
    )


def _pair_by_samples(baseline: Evidence, run: Evidence, quantities: Sequence[str]) -> pd.DataFrame:
    """As `pair`, for blocks of any length, in steps of the experiment's batch size."""
    own_blocks, other_blocks = (
        evidence.steady_blocks[[*KEYS, *quantities]].assign(
            num_steps=evidence.steady_blocks["num_steps"] * evidence.batch_times
        )
        for evidence in (baseline, run)
    )
    pairs = own_blocks.merge(other_blocks, on=["process", "round"], suffixes=("", "_other"))
    columns = {name: pairs[name] for name in KEYS}
    for quantity in quantities:
        own, other = NAMES[quantity]
        scaled = pairs[f"{quantity}_other"] * pairs["num_steps"] / pairs["num_steps_other"]
        columns |= {own: pairs[quantity], other: scaled}
    return pd.DataFrame(columns)


def _are_in_turn(blocks: pd.DataFrame, like: pd.DataFrame | None = None) -> bool:
    """Whether all blocks are of one process, that of `like`, and their rounds ascend."""
    if blocks.empty:
        return False
    processes, rounds = blocks["process"].to_numpy(), blocks["round"].to_numpy()
    process = processes[0] if like is None else like["process"].iloc[0]
    return bool((processes == process).all() and (rounds[1:] > rounds[:-1]).all())
