"""Texts and rows of a comparison of experiments."""

from collections.abc import Sequence

from breakeven.runner.protocol.states import state_words
from breakeven.storage.comparison.results import Result, ended_early
from breakeven.storage.numbers.formats import DASH, format_ratio, format_share, format_verdict
from breakeven.storage.side_by_side.ratios import (
    Difference,
    Refusal,
    Scaling,
    ScalingKind,
    ScalingObstacle,
    alone_and_together,
    devices_of,
)
from breakeven.storage.side_by_side.sides import Comparable, Obstacle, Side, comparable, labels
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.words.parity import wrong_words

SHOWN = (
    "step_seconds",
    "compile_seconds",
    "break_even_steps",
    "peak_memory_bytes",
    "parity",
    "accuracy",
    "final_loss",
)
"""Numbers that follow the speedup."""
OF_LEARNING = ("accuracy", "final_loss")
WHY_NOT_COMPARED: dict[Obstacle, str] = {
    "scenario": "they measure different things",
    "part": "one trains, the other only makes forward passes",
    "task": "the tasks differ",
    "model": "the models differ",
    "weights": "the initial weights differ",
    "data": "the data differ",
    "unknown": "not all of them recorded their weights and data",
}

SCALING_KINDS: dict[ScalingKind, str] = {
    "strong": "strong scaling: all devices share the batch of the one",
    "weak": "weak scaling: each device has a batch as large as that of the one",
}
WHY_NO_SCALING: dict[ScalingObstacle, str] = {
    "work": "their speeds may not be compared",
    "cpu": "processes that share the CPUs of a machine are not several devices",
    "device": "the devices are of different models",
    "moved": "a run was resumed on another number of devices",
    "dropout": "one of them trains with dropout, the other without",
    "setting": "settings that decide the work per sample differ: {}",
    "batch": "a step has {} samples, which is neither the number on one device, {}, nor this "
    "number times the devices",
}


def wrong_trainings(sides: Sequence[Side]) -> list[str]:
    """A sentence for each run whose speed does not count, because its training is wrong."""
    return [
        f"{side.letter}: {result.label} does not count: {wrong_words(result)}."
        for side in sides
        for result in side.comparison.of_all_environments
        if result.role == "backend" and result.is_wrong
    ]


def difference_text(difference: Difference | None) -> str:
    """`1.10 times (1.06 to 1.14), higher`; a dash for None."""
    if difference is None:
        return DASH
    interval = "" if difference.low is None else f" ({difference.low:.2f} to {difference.high:.2f})"
    return f"{difference.ratio:.2f} times{interval}, {format_verdict(difference.verdict)}"


def obstacles(sides: Sequence[Side]) -> list[str]:
    """A sentence for each side with numbers that may not be compared with the first side."""
    reference, *others = sides
    sentences = []
    for side in others:
        comparability = comparable(reference, side)
        if comparability.obstacles:
            sentences.append(obstacle_text(reference, side, comparability))
    return sentences


def obstacle_text(reference: Side, side: Side, comparability: Comparable) -> str:
    """The numbers of two sides that are not compared, and why."""
    what = "losses and accuracies" if comparability.speed else "neither speeds nor losses"
    verb = "are not compared" if comparability.speed else "are compared"
    why = " and ".join(WHY_NOT_COMPARED[obstacle] for obstacle in comparability.obstacles)
    return f"{reference.letter} and {side.letter}: {what} {verb}, because {why}."


def number_rows(sides: Sequence[Side], name: str) -> list[list[str]]:
    """A row for each backend and the baseline: its number on each side that may be compared with
    the first."""
    rows = [["", *(side.letter for side in sides)]]
    for label in ["baseline", *labels(sides)]:
        cells = [
            DASH if result is None else result.text(name)
            for result in results_by_side(sides, label, name)
        ]
        if any(cell != DASH for cell in cells):
            rows.append([label, *cells])
    return rows


def results_by_side(sides: Sequence[Side], label: str, name: str) -> list[Result | None]:
    """The results of a run on every side; None if the number of that name may not be compared with
    the first side's."""
    reference = sides[0]
    return [
        side.result(label) if side is reference or may_stand_beside(reference, side, name) else None
        for side in sides
    ]


def _speed(result: Result) -> str:
    verdict = result.speed_verdict and format_verdict(result.speed_verdict)
    parts = [ratio_text(result.speedup), verdict]
    if result.speedup is not None and ended_early(result):
        parts.append(state_words(result.state))
    if result.is_wrong:
        parts = ["does not count"]
    return ", ".join(filter(None, parts))


def may_stand_beside(reference: Side, side: Side, name: str) -> bool:
    """Whether a number of two sides may be compared as if both had the same workload."""
    comparability = comparable(reference, side)
    return comparability.learning if name in OF_LEARNING else comparability.speed


def speed_rows(sides: Sequence[Side], differences: Sequence[Difference]) -> list[list[str]]:
    by_place = {(difference.label, difference.letter): difference for difference in differences}
    others = [f"{side.letter} over {sides[0].letter}" for side in sides[1:]]
    rows = [["speedup", *(side.letter for side in sides), *others]]
    for label in labels(sides):
        results = [side.result(label) for side in sides]
        speeds = [DASH if result is None else _speed(result) for result in results]
        quotients = [difference_text(by_place.get((label, side.letter))) for side in sides[1:]]
        rows.append([label, *speeds, *quotients])
    return rows


def efficiency_text(scaling: Scaling) -> str:
    """`81.3 % (79.0 % to 83.5 %)`; `81.3 %` without an interval."""
    text = format_share(scaling.efficiency)
    if scaling.low is None or scaling.high is None:
        return text
    return f"{text} ({format_share(scaling.low)} to {format_share(scaling.high)})"


def scaling_rows(scalings: Sequence[Scaling]) -> list[list[str]]:
    """A header, and a row for each run on several devices."""
    rows = [["scaling efficiency", "", "devices", "efficiency", "times one device"]]
    for scaling in scalings:
        rows.append(
            [
                scaling.label,
                scaling.letter,
                str(scaling.num_devices),
                efficiency_text(scaling),
                format_ratio(scaling.throughput),
            ]
        )
    return rows


def scaling_notes(
    sides: Sequence[Side], scalings: Sequence[Scaling], refused: Sequence[Refusal]
) -> list[str]:
    """The kind of scaling of each side, and why other sides are not compared with one device."""
    alone, together = alone_and_together(sides)
    if alone is None:
        return []
    kinds = {scaling.letter: scaling.kind for scaling in scalings}
    notes = [
        f"{side.letter} on {devices_of(side)} devices against {alone.letter} on one, "
        f"{SCALING_KINDS[kinds[side.letter]]}."
        for side in together
        if side.letter in kinds
    ]
    return notes + [
        f"{refusal.letter} is not compared with one device ({alone.letter}): "
        f"{_why_no_scaling(refusal)}."
        for refusal in refused
    ]


def _why_no_scaling(refusal: Refusal) -> str:
    names = reversed(refusal.names) if refusal.obstacle == "batch" else [", ".join(refusal.names)]
    return WHY_NO_SCALING[refusal.obstacle].format(*names)
