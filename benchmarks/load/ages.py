"""How late a page is: by what it showed when, and the journals."""

import re
from collections.abc import Sequence
from statistics import median

from runner.folders.run_dir import RunDir

STEP = re.compile(rb'"kind":"step","time":([0-9.]+).*?"step":(\d+)')
LOOK_SECONDS = 0.05
Shown = tuple[float, Sequence[int]]
"""A moment, and the steps done that were shown from then on, run by run."""


def ages(seen: Sequence[Shown], runs: Sequence[RunDir], until: float) -> list[float]:
    """Seconds since the first step that a page should have shown and did not, 0 if it showed all:
    at each twentieth of a second, of each run that has written."""
    written = [_written(run) for run in runs]
    found = []
    for (moment, counts), (following, _) in zip(seen, [*seen[1:], (until, [])], strict=True):
        ticks = int((following - moment) / LOOK_SECONDS + 1e-3) + 1
        for count, times in zip(counts, written, strict=False):
            # The first step that is later than what was shown; steps of an attempt that went on.
            first = times[count] if count < len(times) else float("inf")
            found += [max(0.0, moment + tick * LOOK_SECONDS - first) for tick in range(ticks)]
    return found


def _written(run: RunDir) -> list[float]:
    """When each step was written, in their order."""
    found: list[float] = []
    with run.open(run.events_file.name) as file:
        for line in file:
            if told := STEP.search(line):
                del found[int(told[2]) :]
                found.append(float(told[1]))
    return found


def summary(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {"median": float("nan"), "p95": float("nan"), "most": float("nan")}
    ordered = sorted(seconds)
    return {"median": median(ordered), "p95": ordered[int(0.95 * len(ordered))],
            "most": ordered[-1]}  # fmt: skip
