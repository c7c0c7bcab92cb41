"""How measuring ended in the scenario `speed`, and whether the speedups are as exact as asked."""

from collections.abc import Sequence

from runner.folders.states import RunState
from runner.specs.experiment import ExperimentSpec
from storage.comparison.evidence import Evidence
from storage.numbers.formats import format_share
from storage.statistics.resampling import MIN_PAIRS
from storage.statistics.speedups import Ratio


def ending(spec: ExperimentSpec, processes: Sequence[Evidence]) -> tuple[str, ...]:
    """After how many rounds and why measuring ended, a sentence for each reason; nothing before."""
    rounds: dict[str, list[int]] = {}
    for repeat in range(1, spec.speed.repeats + 1):
        labels = [variant.label for variant in spec.variants if variant.repeat == repeat]
        runs = [run for run in processes if run.label in labels]
        if spec.scenario == "speed" and any(run.state is RunState.FINISHED for run in runs):
            rounds.setdefault(_reason(runs), []).append(_num_rounds(runs))
    return tuple(
        f"Measuring ended after {_listed(counts, spec.speed.repeats)}: {reason}."
        for reason, counts in rounds.items()
    )


def too_wide(
    spec: ExperimentSpec, runs: Sequence[Evidence], speedups: Sequence[Ratio | None]
) -> str:
    """Which intervals are wider than asked, and what would help; nothing while runs go on."""
    if spec.scenario != "speed" or not all(run.state.is_final for run in runs):
        return ""
    found = [
        f"{run.label} {format_share(ratio.width)}"
        for run, ratio in zip(runs, speedups, strict=True)
        if ratio is not None and ratio.width is not None
        if ratio.width > spec.speed.target_width
    ]
    if not found:
        return ""
    remedy = "allow for more rounds or seconds, or a calmer machine"
    if spec.speed.repeats > 1:
        remedy = "processes of the same run differ, and only more repeats tell by how much"
    asked = format_share(spec.speed.target_width)
    return f"Intervals are wider than the {asked} asked for: {', '.join(found)}; {remedy}."


def single_repeats(spec: ExperimentSpec, runs: Sequence[Evidence]) -> str:
    """Which runs have one process left of several; nothing while runs go on."""
    if spec.scenario != "speed" or spec.speed.repeats == 1:
        return ""
    counts = {run.label: run.steady_blocks.groupby("process").size() for run in runs}
    left = [label for label, blocks in counts.items() if (blocks >= MIN_PAIRS).sum() == 1]
    if not left or not all(run.state.is_final for run in runs):
        return ""
    return (
        f"Of {', '.join(left)} one process of {spec.speed.repeats} was measured long enough: "
        "the interval does not tell how much processes differ."
    )


def _reason(runs: Sequence[Evidence]) -> str:
    """Why the supervisor ended a repeat. What it said of widths at that moment is left out: those
    of the comparison are what counts."""
    stops = [run.stop.reason for run in runs if run.stop is not None]
    return stops[0].partition(";")[0] if stops else "the rounds that were asked for are over"


def _num_rounds(runs: Sequence[Evidence]) -> int:
    return len({number for run in runs for number in run.steady_blocks["round"]})


def _listed(counts: Sequence[int], repeats: int) -> str:
    *first, last = map(str, counts)
    rounds = f"{', '.join(first)} and {last} rounds" if first else f"{last} rounds"
    return rounds if repeats == 1 else f"{rounds} in {len(counts)} of {repeats} repeats"
