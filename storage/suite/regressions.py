"""Finds changes between two runs of a suite, cell by cell.

Only cells of both runs are compared. Unchanged cells are not listed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from breakeven.storage.comparison.caution import Caution
from breakeven.storage.comparison.correctness import PASS
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.speedups import Ratio, ratio_text
from breakeven.storage.suite.groups import (
    Cell,
    MeanSpeedup,
    Outcome,
    SuiteRow,
    change,
    judge_means,
    row_of,
)

Kind = Literal["accuracy", "speed", "compile", "memory"]
COMPILE_CHANGE, COMPILE_SECONDS = 0.25, 1.0
"""Compile latency has no interval: a change counts if it exceeds both this share of the earlier
latency and this number of seconds."""
MEMORY_CHANGE = 0.05
"""Share of the earlier ratio above which a change counts; allocators vary little by chance."""
HIDDEN_SLOWDOWN = 0.25
"""If the intervals of a cell could hide a slowdown of this size, there is no verdict, not even
"unchanged"."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A number or status of a cell that has clearly changed."""

    cell: Cell
    kind: Kind
    is_worse: bool
    before: str
    now: str
    doubts: tuple[Caution, ...]
    """Disturbances of the device in either run, which may be the cause instead."""


@dataclass(frozen=True, kw_only=True)
class Against:
    """A suite run, compared with an earlier one."""

    changes: tuple[Change, ...]
    """Changes, those for the worse first."""
    only_before: tuple[Cell, ...]
    """Cells that only the earlier run has."""
    only_now: tuple[Cell, ...]
    unclear: tuple[Cell, ...]
    """Cells with a speed in both runs, but too imprecise in one of them to show a large change."""
    means: dict[SuiteRow, MeanSpeedup]
    """For each row with a cell that counts in both runs, the mean over models of the later speedup
    over the earlier one."""

    @property
    def regressions(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.is_worse)


def against(now: Sequence[Outcome], before: Sequence[Outcome]) -> Against:
    """Compares a suite run with an earlier one."""
    then = {one.cell: one for one in before}
    current = {one.cell: one for one in now}
    pairs = [(one, then[one.cell]) for one in now if one.cell in then and one.is_over]
    changes = [change for pair in pairs for change in _changes(*pair)]
    return Against(
        changes=tuple(sorted(changes, key=lambda change: not change.is_worse)),
        only_before=tuple(cell for cell in then if cell not in current),
        only_now=tuple(cell for cell in current if cell not in then),
        unclear=tuple(one.cell for one, other in pairs if _is_unclear(one, other)),
        means=_mean_changes(pairs),
    )


def _mean_changes(pairs: Sequence[tuple[Outcome, Outcome]]) -> dict[SuiteRow, MeanSpeedup]:
    rows: dict[SuiteRow, dict[str, Ratio]] = {}
    controls: dict[SuiteRow, dict[str, Ratio]] = {}
    for now, before in pairs:
        row, model = row_of(now.cell), now.cell.model
        if now.counted_speedup is not None and before.counted_speedup is not None:
            rows.setdefault(row, {})[model] = change(now.counted_speedup, before.counted_speedup)
        if now.control is not None and before.control is not None:
            controls.setdefault(row, {})[model] = change(now.control, before.control)
    means = judge_means(list(rows.values()), [controls.get(row, {}) for row in rows])
    return {row: mean for row, mean in zip(rows, means, strict=True) if mean is not None}


def _is_unclear(now: Outcome, before: Outcome) -> bool:
    """Whether the intervals could hide a large slowdown."""
    if now.speedup is None or before.speedup is None or _speed(now, before) is not None:
        return False
    low = change(now.speedup, before.speedup).low
    return low is None or low < 1 / (1 + HIDDEN_SLOWDOWN)


def _changes(now: Outcome, before: Outcome) -> Iterator[Change]:
    for kind, judge in JUDGES.items():
        found = judge(now, before)
        if found is not None:
            is_worse, was, is_now = found
            doubts = () if kind == "accuracy" else (*now.doubts, *before.doubts)
            yield Change(cell=now.cell, kind=kind, is_worse=is_worse, before=was, now=is_now,
                         doubts=doubts)  # fmt: skip


Found = tuple[bool, str, str] | None
"""Whether the change is for the worse, and both values as text; None for no change."""


def _accuracy(now: Outcome, before: Outcome) -> Found:
    if now.status is None or before.status is None:
        return None
    was, passes = before.status == PASS, now.status == PASS
    return None if was == passes else (was, before.status, now.status)


def _speed(now: Outcome, before: Outcome) -> Found:
    """A change if the intervals do not overlap, or if only one run has a speed."""
    if before.speedup is None and before.speed_failure and now.speedup is not None:
        return False, before.speed_failure, ratio_text(now.speedup)
    if before.speedup is not None and now.speedup is None and now.speed_failure:
        return True, ratio_text(before.speedup), now.speed_failure
    one, other = now.speedup, before.speedup
    if one is None or other is None or None in (one.low, one.high, other.low, other.high):
        return None
    assert one.low is not None and one.high is not None
    assert other.low is not None and other.high is not None
    if one.high >= other.low and one.low <= other.high:
        return None
    return one.high < other.low, ratio_text(other), ratio_text(one)


def _compile(now: Outcome, before: Outcome) -> Found:
    one, other = now.compile_seconds, before.compile_seconds
    if one is None or other is None:
        return None
    if abs(one - other) <= max(COMPILE_SECONDS, COMPILE_CHANGE * other):
        return None
    text = METRICS["compile_seconds"].format
    return one > other, text(other), text(one)


def _memory(now: Outcome, before: Outcome) -> Found:
    one, other = now.memory_ratio, before.memory_ratio
    if one is None or other is None or abs(one / other - 1) <= MEMORY_CHANGE:
        return None
    text = METRICS["memory_ratio"].format
    return one < other, text(other), text(one)


JUDGES: dict[Kind, Callable[[Outcome, Outcome], Found]] = {
    "accuracy": _accuracy,
    "speed": _speed,
    "compile": _compile,
    "memory": _memory,
}
