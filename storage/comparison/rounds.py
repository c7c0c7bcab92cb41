"""Pairs the blocks of baseline and another run by round, and pools repeats: the processes of the
scenario `speed` that recorded the same run.

Every speedup comes from rounds, and every comparison loads its runs with `load_compared`. A run
without repeats is compared as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.caches import memo, revision
from breakeven.storage.comparison.caution import Caution
from breakeven.storage.comparison.evidence import Evidence, load_evidence
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.intervals import MIN_PAIRS, Floats
from breakeven.storage.statistics.speedups import Ratio

KEYS = ["process", "round", "num_steps"]
SIZES = ("samples", "tokens")
"""Columns with the amount of work of a block's steps, as the script reported it."""


def paired_blocks(baseline: Evidence | None, run: Evidence) -> pd.DataFrame:
    """process, round, num_steps, baseline, other: seconds of steady blocks of equal length from the
    same round, in the order of time. Both runs come from `pool`. Larger batches may have blocks of
    other lengths: `other` is the time of as many samples, in steps of the experiment's batch size.

    Omits rounds in which a script gave the two runs different amounts of work. If one of the two
    ended early, too few rounds count as none, because no more will follow.
    """
    if baseline is None or run.role == "baseline":
        return pd.DataFrame({name: [] for name in [*KEYS, "baseline", "other"]}, dtype=float)
    if baseline.batch_times == run.batch_times == 1:
        pairs = pair(baseline.steady_blocks, run.steady_blocks)
    else:
        pairs = _pair_by_samples(baseline, run)
    is_timed = (pairs["baseline"].to_numpy() > 0) & (pairs["other"].to_numpy() > 0)
    pairs = pairs if is_timed.all() else pairs[is_timed]
    unequal = unequal_blocks(baseline, run)
    if len(unequal):
        rounds, others = (pd.MultiIndex.from_frame(blocks[KEYS]) for blocks in (pairs, unequal))
        pairs = pairs[~rounds.isin(others)]
    ended_early = baseline.state.ended_early or run.state.ended_early
    return pairs.iloc[:0] if ended_early and len(pairs) < MIN_PAIRS else pairs


def savings(pairs: pd.DataFrame) -> Floats:
    """Seconds that a step of the other run saves in each paired round."""
    baseline, other, steps = (pairs[name].to_numpy() for name in ("baseline", "other", "num_steps"))
    saved: Floats = (baseline - other) / steps
    return saved


def unequal_blocks(baseline: Evidence, run: Evidence) -> pd.DataFrame:
    """process, round, num_steps, samples, tokens, samples_baseline, tokens_baseline of steady
    blocks from rounds in which the two runs had different amounts of work."""
    if not (run.tells_sizes and baseline.tells_sizes):
        return run.steady_blocks.iloc[:0]
    blocks = [evidence.steady_blocks[[*KEYS, *SIZES]] for evidence in (run, baseline)]
    both = blocks[0].merge(blocks[1], on=KEYS, suffixes=("", "_baseline"))
    differs = [(both[size] - both[f"{size}_baseline"]).fillna(0) != 0 for size in SIZES]
    return both[differs[0] | differs[1]]


def pair(blocks: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """process, round, num_steps, and the seconds of both as baseline and other."""
    if not (_are_in_turn(blocks) and _are_in_turn(others, like=blocks)):
        columns = [*KEYS, "seconds"]
        pairs = blocks[columns].merge(others[columns], on=KEYS)
        return pairs.rename(columns={"seconds_x": "baseline", "seconds_y": "other"})
    # The usual case of one block per round takes a tenth of the time of a join.
    rounds, own_places, other_places = np.intersect1d(
        blocks["round"], others["round"], assume_unique=True, return_indices=True
    )
    num_steps = blocks["num_steps"].to_numpy()[own_places]
    alike = num_steps == others["num_steps"].to_numpy()[other_places]
    return pd.DataFrame(
        {
            "process": blocks["process"].iloc[0],
            "round": rounds[alike],
            "num_steps": num_steps[alike],
            "baseline": blocks["seconds"].to_numpy()[own_places][alike],
            "other": others["seconds"].to_numpy()[other_places][alike],
        }
    )


def _pair_by_samples(baseline: Evidence, run: Evidence) -> pd.DataFrame:
    """As `pair`, for blocks of any length, in steps of the experiment's batch size."""
    own_blocks, other_blocks = (
        evidence.steady_blocks[[*KEYS, "seconds"]].assign(
            num_steps=evidence.steady_blocks["num_steps"] * evidence.batch_times
        )
        for evidence in (baseline, run)
    )
    pairs = own_blocks.merge(other_blocks, on=["process", "round"], suffixes=("", "_other"))
    other = pairs["seconds_other"] * pairs["num_steps"] / pairs["num_steps_other"]
    pairs = pairs.rename(columns={"seconds": "baseline"}).assign(other=other)
    return pairs[[*KEYS, "baseline", "other"]]


def _are_in_turn(blocks: pd.DataFrame, like: pd.DataFrame | None = None) -> bool:
    """Whether all blocks are of one process, that of `like`, and their rounds ascend."""
    if blocks.empty:
        return False
    processes, rounds = blocks["process"].to_numpy(), blocks["round"].to_numpy()
    process = processes[0] if like is None else like["process"].iloc[0]
    return bool((processes == process).all() and (rounds[1:] > rounds[:-1]).all())


def round_speedups(store: Store, experiment_id: str) -> pd.DataFrame:
    """label, role, process, round, speedup of every paired round; raises `NotInStore`."""
    spec, runs = load_compared(store, experiment_id)
    environments = spec.environment_by_label
    baselines = {environments[run.label]: run for run in runs if run.role == "baseline"}
    frames = [
        paired_blocks(baselines.get(environments[run.label]), run).assign(
            label=run.label, role=run.role
        )
        for run in runs
        if run.role != "baseline"
    ]
    columns = ["label", "role", "process", "round", "speedup"]
    if not frames:
        return pd.DataFrame(columns=columns)
    pairs = pd.concat(frames, ignore_index=True)
    pairs["speedup"] = pairs["baseline"] / pairs["other"]
    return pairs[columns]


SERIES = ("steps", "device")
"""Frames that are concatenated; `blocks` also gain the number of the process."""


@memo(revision)
def load_compared(store: Store, experiment_id: str) -> tuple[ExperimentSpec, list[Evidence]]:
    """The runs to compare, in the order of the experiment; raises `NotInStore`."""
    spec, runs = load_evidence(store, experiment_id)
    return spec, pool(spec, runs)


def pool(spec: ExperimentSpec, runs: Sequence[Evidence]) -> list[Evidence]:
    """One run for each entry of `spec.repeats_by_label` that has a run. Blocks gain the column
    `process`: the number of the process that computed them, from 1, all repeats before all
    processes that added rounds."""
    by_label = {run.label: run for run in runs}
    repeats = {variant.label: variant.repeat for variant in spec.possible_variants}
    begins: dict[int, list[int]] = {repeat: [] for repeat in repeats.values()}
    for run in runs:
        if run.role == "baseline":
            # In another environment the baseline may have failed, and has no added rounds.
            repeat = repeats[run.label]
            begins[repeat] = max(begins[repeat], _begins_of_added(run), key=len)
    numbers = _number_processes(begins)
    pooled = []
    for label, members in spec.repeats_by_label.items():
        runs_by_repeat = {
            repeats[member]: by_label[member] for member in members if member in by_label
        }
        if runs_by_repeat:
            blocks = [
                run.blocks.assign(process=_processes(run.blocks, numbers[repeat], begins[repeat]))
                for repeat, run in runs_by_repeat.items()
            ]
            pooled.append(_pool(label, list(runs_by_repeat.values()), blocks))
    return pooled


def _begins_of_added(baseline: Evidence) -> list[int]:
    """The first round of each process that added rounds, in the order of rounds."""
    blocks = baseline.blocks
    rounds = (blocks.loc[blocks["first_step"] >= step, "round"] for step in baseline.added_at)
    return sorted(int(numbers.min()) for numbers in rounds if len(numbers))


def _number_processes(begins: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """Of each repeat the numbers of its first process and of those that added rounds to it."""
    processes = [
        (addition, repeat)
        for repeat, rounds in begins.items()
        for addition in range(len(rounds) + 1)
    ]
    numbers: dict[int, list[int]] = {repeat: [] for repeat in begins}
    for number, (_, repeat) in enumerate(sorted(processes), 1):
        numbers[repeat].append(number)
    return numbers


def _processes(blocks: pd.DataFrame, numbers: Sequence[int], begins: Sequence[int]) -> Any:
    """The number of each block's process; the first of `numbers` computed the rounds before those
    of `begins`."""
    if not begins:
        return numbers[0]
    return np.asarray(numbers)[np.searchsorted(begins, blocks["round"], side="right")]


def _pool(label: str, runs: Sequence[Evidence], blocks: Sequence[pd.DataFrame]) -> Evidence:
    """Combines the times and blocks of all processes. Everything else is equal in all of them and
    comes from the process with the most steps."""
    farthest = max(runs, key=lambda run: len(run.steps))
    worst = next((run for run in runs if run.state is not RunState.FINISHED), farthest)
    if len(runs) == 1:
        return replace(farthest, label=label, blocks=blocks[0])
    series = {name: pd.concat([getattr(run, name) for run in runs]) for name in SERIES}
    return replace(
        farthest,
        label=label,
        state=worst.state,
        reason=worst.reason,
        blocks=pd.concat(blocks),
        resumed_at=tuple(step for run in runs for step in run.resumed_at),
        added_at=tuple(step for run in runs for step in run.added_at),
        moved_at=tuple(move for run in runs for move in run.moved_at),
        **series,
    )


def ending(spec: ExperimentSpec, processes: Sequence[Evidence]) -> tuple[Caution, ...]:
    """The number of rounds after which measuring ended, for each reason; empty before the end."""
    rounds: dict[str, list[int]] = {}
    for repeat in range(1, spec.speed.repeats + 1):
        labels = [variant.label for variant in spec.variants if variant.repeat == repeat]
        runs = [run for run in processes if run.label in labels]
        if spec.kind.ends_by_width and any(run.state is RunState.FINISHED for run in runs):
            numbers = {number for run in runs for number in run.steady_blocks["round"]}
            rounds.setdefault(_reason(runs), []).append(len(numbers))
    return tuple(
        Caution(
            kind="measuring ended",
            figures={"num_rounds": counts, "repeats": spec.speed.repeats, "reason": reason},
        )
        for reason, counts in rounds.items()
    )


def too_wide(
    spec: ExperimentSpec, runs: Sequence[Evidence], speedups: Sequence[Ratio | None]
) -> Caution | None:
    """The intervals that are wider than requested; None while runs go on, or if none is."""
    if not spec.kind.ends_by_width or not all(run.state.is_final for run in runs):
        return None
    wide = {
        run.label: {"width": ratio.width}
        for run, ratio in zip(runs, speedups, strict=True)
        if ratio is not None and ratio.width is not None
        if ratio.width > spec.speed.target_width
    }
    requested = {"target_width": spec.speed.target_width, "repeats": spec.speed.repeats}
    return Caution(kind="wide intervals", runs=wide, figures=requested) if wide else None


def single_repeats(spec: ExperimentSpec, runs: Sequence[Evidence]) -> Sequence[str]:
    """Labels of runs with enough blocks in only one of several processes; empty before the end."""
    over = all(run.state.is_final for run in runs)
    if not spec.kind.ends_by_width or spec.speed.repeats == 1 or not over:
        return ()
    counts = {run.label: run.steady_blocks.groupby("process").size() for run in runs}
    return [label for label, blocks in counts.items() if (blocks >= MIN_PAIRS).sum() == 1]


def _reason(runs: Sequence[Evidence]) -> str:
    """Why the supervisor ended a repeat, without the widths at that moment: only the comparison's
    widths count."""
    stops = [run.stop for run in runs if run.stop is not None]
    if not stops:
        return "the requested rounds are over"
    return stops[0].reason if stops[0].ending is None else stops[0].ending.why
