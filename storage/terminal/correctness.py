"""What the commands print about the correctness of compiled models (scenario `accuracy`)."""

from collections.abc import Sequence

from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.texts import printable
from breakeven.storage.comparison.correctness import PASS, Check
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.terminal.layout import aligned_table

ALL_PASS, UNFINISHED, REFUSED = 0, 1, 3
HEADER = ("run", "part", "status", "tensors", "failed", "tolerance")


def correctness_report(spec: ExperimentSpec, checks: Sequence[Check]) -> str:
    """Title, table, reasons for checks that did not pass, and notes."""
    title = (
        f"{spec.name}: {spec.model.source} on {spec.data.source}, {spec.training.precision}, "
        f"{spec.device}, {spec.accuracy.iterations} iterations against double precision"
    )
    if spec.suite_run and spec.trains:
        title += f", optimizer {spec.training.optimizer}"
    table = aligned_table([list(HEADER), *map(_check_cells, checks)], len(HEADER))
    lines = [printable(title, len(title)), "", *table, ""]
    lines += [
        f"{check.label}, {check.part}: {check.status}; {printable(check.explanation)}"
        for check in checks
        if check.status != PASS and check.explanation
    ]
    notes = {note: None for check in checks for note in check.notes}
    return "\n".join([*lines, *(f"note: {printable(note)}" for note in notes)])


def checks_exit_status(checks: Sequence[Check]) -> int:
    """3 if a check does not pass, 1 if one is missing, else 0."""
    if any(check.status not in (PASS, None) for check in checks):
        return REFUSED
    unfinished = any(c.status is None or c.state != RunState.FINISHED for c in checks)
    return UNFINISHED if unfinished else ALL_PASS


def _check_cells(check: Check) -> list[str]:
    counts = (str(check.num_tensors), str(check.num_failed)) if check.num_tensors else (DASH, DASH)
    status = check.status or DASH
    tolerance = DASH if check.tolerance is None else f"{check.tolerance:g}"  # set, not measured
    return [check.label, check.part, status, *counts, tolerance]
