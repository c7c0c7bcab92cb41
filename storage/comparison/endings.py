"""How measuring ended in the scenario `speed`, and whether the speedups are as exact as asked."""

from collections.abc import Sequence

from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.caution import Caution
from breakeven.storage.comparison.evidence import Evidence
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.statistics.speedups import Ratio


def ending(spec: ExperimentSpec, processes: Sequence[Evidence]) -> tuple[Caution, ...]:
    """After how many rounds and why measuring ended, for each reason; nothing before."""
    rounds: dict[str, list[int]] = {}
    for repeat in range(1, spec.speed.repeats + 1):
        labels = [variant.label for variant in spec.variants if variant.repeat == repeat]
        runs = [run for run in processes if run.label in labels]
        if spec.kind.ends_by_width and any(run.state is RunState.FINISHED for run in runs):
            rounds.setdefault(_reason(runs), []).append(_num_rounds(runs))
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
    """Which intervals are wider than asked; None while runs go on, and if none is."""
    if not spec.kind.ends_by_width or not all(run.state.is_final for run in runs):
        return None
    found = {
        run.label: {"width": ratio.width}
        for run, ratio in zip(runs, speedups, strict=True)
        if ratio is not None and ratio.width is not None
        if ratio.width > spec.speed.target_width
    }
    asked = {"target_width": spec.speed.target_width, "repeats": spec.speed.repeats}
    return Caution(kind="wide intervals", runs=found, figures=asked) if found else None


def single_repeats(spec: ExperimentSpec, runs: Sequence[Evidence]) -> Sequence[str]:
    """Labels of the runs that have one process left of several; none while runs go on."""
    over = all(run.state.is_final for run in runs)
    if not spec.kind.ends_by_width or spec.speed.repeats == 1 or not over:
        return ()
    counts = {run.label: run.steady_blocks.groupby("process").size() for run in runs}
    return [label for label, blocks in counts.items() if (blocks >= MIN_PAIRS).sum() == 1]


def _reason(runs: Sequence[Evidence]) -> str:
    """Why the supervisor ended a repeat. What it said of widths at that moment is left out: those
    of the comparison are what counts."""
    stops = [run.stop for run in runs if run.stop is not None]
    if not stops:
        return "the rounds that were asked for are over"
    return stops[0].reason if stops[0].ending is None else stops[0].ending.why


def _num_rounds(runs: Sequence[Evidence]) -> int:
    return len({number for run in runs for number in run.steady_blocks["round"]})
