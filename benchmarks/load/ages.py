"""How old the newest step is that a page shows: by what it showed when, and the journals."""

import re
from collections.abc import Mapping, Sequence
from statistics import median

from runner.folders.run_dir import RunDir

STEP = re.compile(rb'"kind":"step","time":([0-9.]+).*?"step":(\d+)')
LOOK_SECONDS = 0.05


def ages(
    seen: Sequence[tuple[float, Sequence[int]]], runs: Sequence[RunDir], until: float
) -> list[float]:
    """Seconds, at each twentieth of one, of each run that had a step by then.

    `seen`: moments and, in the order of `runs`, the steps done that were shown from then on.
    """
    wanted = [{counts[place] for _, counts in seen if len(counts) > place}
              for place in range(len(runs))]  # fmt: skip
    written = [_written(run, those) for run, those in zip(runs, wanted, strict=True)]
    found = []
    for (moment, counts), (following, _) in zip(seen, [*seen[1:], (until, [])], strict=True):
        ticks = int((following - moment) / LOOK_SECONDS) + 1
        for count, times in zip(counts, written, strict=False):
            if count in times:
                found += [moment + tick * LOOK_SECONDS - times[count] for tick in range(ticks)]
    return found


def _written(run: RunDir, counts: set[int]) -> Mapping[int, float]:
    """When the journal had so many steps."""
    found = {}
    with run.events_file.open("rb") as file:
        for line in file:
            if (told := STEP.search(line)) and int(told[2]) + 1 in counts:
                found[int(told[2]) + 1] = float(told[1])
    return found


def summary(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {"median": float("nan"), "p95": float("nan"), "most": float("nan")}
    ordered = sorted(seconds)
    return {"median": median(ordered), "p95": ordered[int(0.95 * len(ordered))],
            "most": ordered[-1]}  # fmt: skip
