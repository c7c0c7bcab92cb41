"""What `breakeven diff` prints about several experiments."""

from collections.abc import Sequence

from breakeven.runner.texts import printable
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.side_by_side.ratios import Refusal, Scaling, differences
from breakeven.storage.side_by_side.sides import Side, differing
from breakeven.storage.terminal.layout import aligned_table
from breakeven.storage.words.side_by_side import (
    SHOWN,
    number_rows,
    obstacles,
    scaling_notes,
    scaling_rows,
    speed_rows,
    wrong_trainings,
)


def difference_report(
    sides: Sequence[Side], scaled: tuple[Sequence[Scaling], Sequence[Refusal]] = ((), ())
) -> str:
    """The sides, the ratios of their numbers, obstacles to comparing, and differing settings.
    `scaled` is the result of `scalings`."""
    lines = [f"{side.letter}  {side.experiment_id}  {printable(side.name)}" for side in sides]
    lines += ["", *aligned_table(speed_rows(sides, differences(sides)), 1)]
    found_scalings, refused = scaled
    if found_scalings or refused:
        rows = scaling_rows(found_scalings)
        table = aligned_table(rows, 2) if len(rows) > 1 else []
        lines += ["", *table, *scaling_notes(sides, found_scalings, refused)]
    for name in SHOWN:
        rows = number_rows(sides, name)
        if len(rows) > 1:
            lines += ["", METRICS[name].title, *aligned_table(rows, 1)]
    lines += ["", *obstacles(sides), *wrong_trainings(sides), *_warnings(sides)]
    rows_that_differ = differing(sides)
    if rows_that_differ:
        header = ["what differs", *(side.letter for side in sides)]
        rows = [
            list(map(printable, (f"{difference.kind} {difference.name}", *difference.values)))
            for difference in rows_that_differ
        ]
        lines += ["", *aligned_table([header, *rows], len(header))]
    else:
        lines.append("Settings, machines, software and data are the same.")
    return "\n".join(lines)


def _warnings(sides: Sequence[Side]) -> list[str]:
    """The number of warnings of each side, and the command that shows them."""
    return [
        f"{side.letter}: `breakeven show {side.experiment_id}` warns of its numbers "
        f"({len(side.comparison.serious_warnings)})."
        for side in sides
        if side.comparison.serious_warnings
    ]
