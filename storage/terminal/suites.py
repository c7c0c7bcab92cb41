"""Texts of a suite run for the terminal: the summary, all cells, and changes."""

from collections.abc import Callable, Sequence

from breakeven.storage.comparison.correctness import PASS
from breakeven.storage.numbers.formats import DASH, format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.suite_runs.groups import Group, Outcome, SuiteChanges, groups
from breakeven.storage.terminal.layout import aligned_table
from breakeven.storage.words.suites import UNCLEAR, change_text, compile_text, rests_on, share_text

ALL_PASS, UNFINISHED, FAILED, WORSE = 0, 1, 3, 5
DOUBTFUL = " (doubtful: the device was disturbed in one of the runs)"
NUM_TEXT_COLUMNS = 4
"""Number of first columns with words, aligned to the left; the others are aligned to the right."""


def suite_report(suite_run: str, outcomes: Sequence[Outcome]) -> str:
    """Title, a row for each backend, precision and part, a row for each cell, and failures."""
    rows = groups(outcomes)
    summary = [list(SUMMARY), *([cell(group) for cell in SUMMARY.values()] for group in rows)]
    cells = [list(CELLS), *([cell(outcome) for cell in CELLS.values()] for outcome in outcomes)]
    reasons = [
        f"{', '.join(outcome.cell)}: {reason}"
        for outcome in outcomes
        if (
            reason := outcome.failure
            or (outcome.explanation and f"{outcome.status}; {outcome.explanation}")
        )
    ]
    lines = [f"suite run {suite_run}", "", *aligned_table(summary, NUM_TEXT_COLUMNS - 1), ""]
    lines += [
        f"{', '.join(group.row)}: {rest}" for group in rows if (rest := rests_on(group.mean)).parts
    ]
    return "\n".join([*lines, "", *aligned_table(cells, NUM_TEXT_COLUMNS), "", *reasons]).rstrip()


def against_report(earlier: str, compared: SuiteChanges, conditions: str = "") -> str:
    """Numbers that became worse or better, and cells of only one of the suite runs; `conditions`
    are differences in conditions."""
    lines = [f"against {earlier}:"]
    if conditions:
        lines.append(f"warning: made under other conditions: {conditions}")
    for row, mean in compared.means.items():
        lines.append(f"{', '.join(row)}: {change_text(mean)}")
    lines += [
        f"{'WORSE' if change.is_worse else 'better'}  {', '.join(change.cell)}: {change.kind}: "
        f"{change.before} before, {change.now} now{DOUBTFUL if change.warnings else ''}"
        for change in compared.changes
    ]
    if not compared.changes:
        lines.append("no cell is clearly better or worse")
    lines += [f"cannot tell  {', '.join(cell)}: {UNCLEAR}" for cell in compared.unclear]
    for title, cells in (("earlier", compared.only_before), ("later", compared.only_now)):
        lines += [f"only in the {title} run: {', '.join(cell)}" for cell in cells]
    return "\n".join(lines)


def exit_status(outcomes: Sequence[Outcome], compared: SuiteChanges | None) -> int:
    """5 if a cell became worse, 3 if one failed, 1 if one is unknown or too imprecise to compare,
    else 0."""
    if compared is not None and compared.regressions:
        return WORSE
    if any(outcome.failure or outcome.status not in (None, PASS) for outcome in outcomes):
        return FAILED
    unclear = compared is not None and compared.unclear
    return ALL_PASS if all(outcome.is_known for outcome in outcomes) and not unclear else UNFINISHED


SUMMARY: dict[str, Callable[[Group], str]] = {
    "backend": lambda group: group.row.backend,
    "precision": lambda group: group.row.precision,
    "part": lambda group: group.row.part,
    "models": lambda group: str(len(group.outcomes)),
    "pass rate": share_text,
    "geomean speedup (95 %)": lambda group: ratio_text(group.speedup),
    "verdict": lambda group: format_verdict(group.mean and group.mean.verdict),
    "over": lambda group: str(group.num_counted),
    "failed": lambda group: str(len(group.failures)),
    "mean compile": compile_text,
    "memory ratio (95 %)": lambda group: ratio_text(group.memory),
    "caches save": lambda group: METRICS["compile_time_saved"].format(group.compile_time_saved),
    "not over": lambda group: str(group.num_open),
}
CELLS: dict[str, Callable[[Outcome], str]] = {
    "model": lambda outcome: outcome.cell.model,
    "precision": lambda outcome: outcome.cell.precision,
    "part": lambda outcome: outcome.cell.part,
    "backend": lambda outcome: outcome.cell.backend,
    "accuracy": lambda outcome: outcome.status or DASH,
    "speedup (95 %)": lambda outcome: ratio_text(outcome.speedup),
    "verdict": lambda outcome: format_verdict(outcome.speed_verdict),
    "compile": lambda outcome: METRICS["compile_seconds"].format(outcome.compile_seconds),
    "memory ratio": lambda outcome: METRICS["memory_ratio"].format(outcome.memory_ratio),
    "cold": lambda outcome: METRICS["cold_compile_seconds"].format(outcome.cold_seconds),
    "warm": lambda outcome: METRICS["warm_compile_seconds"].format(outcome.warm_seconds),
}
