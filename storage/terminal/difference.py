"""Texts of a comparison of experiments; pages show the same sentences."""

from collections.abc import Sequence

from breakeven.runner.folders.states import state_words
from breakeven.runner.texts import printable
from breakeven.storage.comparison.results import Result, ended_early
from breakeven.storage.difference.sides import (
    Comparable,
    Obstacle,
    Side,
    comparable,
    differing,
    labels,
)
from breakeven.storage.difference.speedups import (
    Difference,
    Refusal,
    Scaling,
    ScalingKind,
    ScalingObstacle,
    alone_and_together,
    devices_of,
    differences,
)
from breakeven.storage.numbers.formats import DASH, format_ratio, format_share, format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.terminal.layout import aligned_table
from breakeven.storage.terminal.parity_words import wrong_words

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
WHY: dict[Obstacle, str] = {
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


def difference_report(
    sides: Sequence[Side], scaled: tuple[Sequence[Scaling], Sequence[Refusal]] = ((), ())
) -> str:
    """The sides, the ratios of their numbers, obstacles to comparing, and differing settings.
    `scaled` is the result of `scalings`."""
    lines = [f"{side.letter}  {side.experiment_id}  {printable(side.name)}" for side in sides]
    lines += ["", *aligned_table(_speed_rows(sides, differences(sides)), 1)]
    found_scalings, refused = scaled
    if found_scalings or refused:
        rows = scaling_rows(found_scalings)
        table = aligned_table(rows, 2) if len(rows) > 1 else []
        lines += ["", *table, *scaling_notes(sides, found_scalings, refused)]
    for name in SHOWN:
        rows = number_rows(sides, name)
        if len(rows) > 1:
            lines += ["", METRICS[name].title, *aligned_table(rows, 1)]
    lines += ["", *obstacles(sides), *wrong_trainings(sides), *_doubts(sides)]
    found = differing(sides)
    if found:
        header = ["what differs", *(side.letter for side in sides)]
        rows = [list(map(printable, (f"{one.kind} {one.name}", *one.values))) for one in found]
        lines += ["", *aligned_table([header, *rows], len(header))]
    else:
        lines.append("Settings, machines, software and data are the same.")
    return "\n".join(lines)


def wrong_trainings(sides: Sequence[Side]) -> list[str]:
    """A sentence for each run whose speed does not count, because its training is wrong."""
    return [
        f"{side.letter}: {result.label} does not count: {wrong_words(result)}."
        for side in sides
        for result in side.comparison.of_all_environments
        if result.role == "backend" and result.is_wrong
    ]


def _doubts(sides: Sequence[Side]) -> list[str]:
    """The number of warnings of each side, and the command that shows them."""
    return [
        f"{side.letter}: `breakeven show {side.experiment_id}` warns of its numbers "
        f"({len(side.comparison.warnings)})."
        for side in sides
        if side.comparison.warnings
    ]


def difference_text(found: Difference | None) -> str:
    """`1.10 times (1.06 to 1.14), higher`; a dash for None."""
    if found is None:
        return DASH
    interval = "" if found.low is None else f" ({found.low:.2f} to {found.high:.2f})"
    return f"{found.ratio:.2f} times{interval}, {format_verdict(found.verdict)}"


def obstacles(sides: Sequence[Side]) -> list[str]:
    """A sentence for each side with numbers that may not be compared with the first side."""
    reference, *others = sides
    obstacles = []
    for side in others:
        found = comparable(reference, side)
        if found.obstacles:
            obstacles.append(obstacle_text(reference, side, found))
    return obstacles


def obstacle_text(reference: Side, side: Side, found: Comparable) -> str:
    """The numbers of two sides that are not compared, and why."""
    what = "losses and accuracies" if found.speed else "neither speeds nor losses"
    verb = "are not compared" if found.speed else "are compared"
    why = " and ".join(WHY[obstacle] for obstacle in found.obstacles)
    return f"{reference.letter} and {side.letter}: {what} {verb}, because {why}."


def number_rows(sides: Sequence[Side], name: str) -> list[list[str]]:
    """A row for each backend and the baseline: its number on each side that may be compared with
    the first."""
    rows = [["", *(side.letter for side in sides)]]
    for label in ["baseline", *labels(sides)]:
        cells = [
            DASH if one is None else one.text(name) for one in results_by_side(sides, label, name)
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
        parts.append("does not count")
    return ", ".join(filter(None, parts))


def may_stand_beside(reference: Side, side: Side, name: str) -> bool:
    """Whether a number of two sides may be compared as if both had the same workload."""
    found = comparable(reference, side)
    return found.learning if name in OF_LEARNING else found.speed


def _speed_rows(sides: Sequence[Side], found: Sequence[Difference]) -> list[list[str]]:
    by_place = {(one.label, one.letter): one for one in found}
    others = [f"{side.letter} over {sides[0].letter}" for side in sides[1:]]
    rows = [["speedup", *(side.letter for side in sides), *others]]
    for label in labels(sides):
        results = [side.result(label) for side in sides]
        speeds = [DASH if one is None else _speed(one) for one in results]
        quotients = [difference_text(by_place.get((label, side.letter))) for side in sides[1:]]
        rows.append([label, *speeds, *quotients])
    return rows


def efficiency_text(found: Scaling) -> str:
    """`81.3 % (79.0 % to 83.5 %)`; `81.3 %` without an interval."""
    text = format_share(found.efficiency)
    if found.low is None or found.high is None:
        return text
    return f"{text} ({format_share(found.low)} to {format_share(found.high)})"


def scaling_rows(found: Sequence[Scaling]) -> list[list[str]]:
    """A header, and a row for each run on several devices."""
    rows = [["scaling efficiency", "", "devices", "efficiency", "times one device"]]
    for one in found:
        rows.append(
            [
                one.label,
                one.letter,
                str(one.num_devices),
                efficiency_text(one),
                format_ratio(one.throughput),
            ]
        )
    return rows


def scaling_notes(
    sides: Sequence[Side], found: Sequence[Scaling], refused: Sequence[Refusal]
) -> list[str]:
    """The kind of scaling of each side, and why other sides are not compared with one device."""
    alone, together = alone_and_together(sides)
    if alone is None:
        return []
    kinds = {one.letter: one.kind for one in found}
    notes = [
        f"{side.letter} on {devices_of(side)} devices against {alone.letter} on one, "
        f"{SCALING_KINDS[kinds[side.letter]]}."
        for side in together
        if side.letter in kinds
    ]
    return notes + [
        f"{one.letter} is not compared with one device ({alone.letter}): {_why_no_scaling(one)}."
        for one in refused
    ]


def _why_no_scaling(one: Refusal) -> str:
    names = reversed(one.names) if one.obstacle == "batch" else [", ".join(one.names)]
    return WHY_NO_SCALING[one.obstacle].format(*names)
