"""The checks of the scenario `accuracy` as text for the terminal, and what they come to."""

from collections.abc import Sequence

from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.correctness import PASS, Check
from breakeven.storage.numbers.formats import DASH

ALL_PASS, UNFINISHED, REFUSED = 0, 1, 3
HEADER = ("run", "part", "status", "tensors", "failed", "tolerance")


def correctness_report(spec: ExperimentSpec, found: Sequence[Check]) -> str:
    """Title, table, why checks did not pass, and notes."""
    title = (
        f"{spec.name}: {spec.model.source} on {spec.data.source}, {spec.training.precision}, "
        f"{spec.device}, {spec.accuracy.iterations} iterations against double precision"
    )
    lines = [title, "", *_table(found), ""]
    lines += [
        f"{check.label}, {check.part}: {check.status}; {check.explanation}"
        for check in found
        if check.status != PASS and check.explanation
    ]
    notes = {note: None for check in found for note in check.notes}
    return "\n".join([*lines, *(f"note: {note}" for note in notes)])


def exit_status(found: Sequence[Check]) -> int:
    """3 if a check does not pass, 1 if one was never made, else 0."""
    if any(check.status not in (PASS, None) for check in found):
        return REFUSED
    unfinished = any(c.status is None or c.state != RunState.FINISHED for c in found)
    return UNFINISHED if unfinished else ALL_PASS


def _table(found: Sequence[Check]) -> list[str]:
    rows = [HEADER, *map(_row, found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    rows.insert(1, tuple("-" * width for width in widths))
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _row(check: Check) -> tuple[str, ...]:
    counts = (str(check.num_tensors), str(check.num_failed)) if check.num_tensors else (DASH, DASH)
    status = check.status or DASH
    tolerance = DASH if check.tolerance is None else f"{check.tolerance:g}"  # set, not measured
    return (check.label, check.part, status, *counts, tolerance)
