"""A suite run as text for the terminal: the summary, every cell, and what changed."""

from collections.abc import Callable, Sequence

import pandas as pd

from storage.correctness import PASS
from storage.formats import DASH, aligned_table
from storage.metrics import METRICS
from storage.suite import Group, Outcome, groups
from storage.suite_regressions import Against

ALL_PASS, UNFINISHED, FAILED, WORSE = 0, 1, 3, 5
DOUBTFUL = " (doubtful: the device was disturbed in one of the runs)"
NUM_TEXT_COLUMNS = 4
"""The first columns are words, aligned left; the others to the right."""


def suite_report(suite_run: str, found: Sequence[Outcome]) -> str:
    """Title, a row for each backend, precision and part, a row for each cell, and why some fail."""
    summary = [list(SUMMARY), *([cell(one) for cell in SUMMARY.values()] for one in groups(found))]
    cells = [list(CELLS), *([cell(one) for cell in CELLS.values()] for one in found)]
    reasons = [
        f"{one.cell.model}, {one.cell.precision}, {one.cell.part}, {one.cell.backend}: {reason}"
        for one in found
        if (reason := one.failure or (one.explanation and f"{one.status}; {one.explanation}"))
    ]
    lines = [f"suite run {suite_run}", "", *aligned_table(summary, NUM_TEXT_COLUMNS - 1), ""]
    return "\n".join([*lines, *aligned_table(cells, NUM_TEXT_COLUMNS), "", *reasons]).rstrip()


def against_report(earlier: str, found: Against, conditions: str = "") -> str:
    """What got worse, what got better, and what only one of the runs has; `conditions` are what
    differed beside."""
    lines = [f"against {earlier}:"]
    if conditions:
        lines.append(f"warning: made under other conditions: {conditions}")
    if found.geomean_change is not None:
        change = METRICS["speedup"].format(found.geomean_change)
        lines.append(f"speedups are {change} the earlier ones, over {found.num_paired} cells")
    lines += [
        f"{'WORSE' if change.is_worse else 'better'}  {', '.join(change.cell)}: {change.kind}: "
        f"{change.before} before, {change.now} now{DOUBTFUL if change.doubts else ''}"
        for change in found.changes
    ]
    if not found.changes:
        lines.append("no cell is clearly better or worse")
    for title, cells in (("earlier", found.only_before), ("later", found.only_now)):
        lines += [f"only in the {title} run: {', '.join(cell)}" for cell in cells]
    return "\n".join(lines)


def other_conditions(runs: pd.DataFrame, suite_run: str, earlier: str) -> str:
    """What differed where the two suite runs were made, which may be the cause of every change;
    empty for nothing. `runs` as `storage.queries.list_suite_runs` has them."""
    known = runs.set_index("suite_run")[["device_name", "torch_version"]].astype(object)
    now, then = known.loc[suite_run], known.loc[earlier]
    said = [
        f"{name} {then[column]} before, {now[column]} now"
        for column, name in (("device_name", "device"), ("torch_version", "torch"))
        if pd.notna(then[column]) and pd.notna(now[column]) and then[column] != now[column]
    ]
    return "; ".join(said)


def exit_status(found: Sequence[Outcome], compared: Against | None) -> int:
    """5 if something got worse, 3 if a cell failed, 1 if one is not over, else 0."""
    if compared is not None and compared.regressions:
        return WORSE
    if any(one.failure or one.status not in (None, PASS) for one in found):
        return FAILED
    return ALL_PASS if all(one.is_over for one in found) else UNFINISHED


def share_text(group: Group) -> str:
    """`95 % (19 of 20)`; a dash without a check."""
    rate = METRICS["pass_rate"].format(group.pass_rate)
    return f"{rate} ({group.num_passed} of {group.num_checked})" if group.num_checked else DASH


def speedup_text(outcome: Outcome) -> str:
    """With its interval; a dash where there is none."""
    if outcome.speedup is None:
        return DASH
    text = METRICS["speedup"].format(outcome.speedup.median)
    if outcome.speedup.low is None:
        return text
    return f"{text} ({outcome.speedup.low:.2f} to {outcome.speedup.high:.2f})"


SUMMARY: dict[str, Callable[[Group], str]] = {
    "backend": lambda one: one.backend,
    "precision": lambda one: one.precision,
    "part": lambda one: one.part,
    "models": lambda one: str(len(one.outcomes)),
    "pass rate": share_text,
    "geomean speedup": lambda one: METRICS["geomean_speedup"].format(one.geomean_speedup),
    "over": lambda one: str(len(one.speedups)),
    "failed": lambda one: str(len(one.failures)),
    "mean compile": lambda one: METRICS["mean_compile_seconds"].format(one.mean_compile_seconds),
    "memory ratio": lambda one: METRICS["memory_ratio"].format(one.memory_ratio),
    "caches save": lambda one: METRICS["compile_time_saved"].format(one.compile_time_saved),
    "not over": lambda one: str(one.num_open),
}
CELLS: dict[str, Callable[[Outcome], str]] = {
    "model": lambda one: one.cell.model,
    "precision": lambda one: one.cell.precision,
    "part": lambda one: one.cell.part,
    "backend": lambda one: one.cell.backend,
    "accuracy": lambda one: one.status or DASH,
    "speedup (95 %)": speedup_text,
    "speed": lambda one: one.speed_verdict or DASH,
    "compile": lambda one: METRICS["compile_seconds"].format(one.compile_seconds),
    "memory ratio": lambda one: METRICS["memory_ratio"].format(one.memory_ratio),
    "cold": lambda one: METRICS["cold_compile_seconds"].format(one.cold_seconds),
    "warm": lambda one: METRICS["warm_compile_seconds"].format(one.warm_seconds),
}
