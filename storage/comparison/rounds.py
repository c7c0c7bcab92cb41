"""Finds out how measuring ended that ends by itself, and whether it was enough."""

from collections.abc import Sequence

from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.caution import Caution
from breakeven.storage.comparison.evidence import Evidence
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.statistics.speedups import Ratio


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
