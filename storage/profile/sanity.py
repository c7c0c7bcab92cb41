"""Whether a profile can be true: its parts are no longer than the step that they are parts of."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from breakeven.runner.folders.records import MAX_TIME

SLACK = 1.10
"""Parts may add up to so much of their step."""
PACE = 1.5
"""Times that a profiled step may take of a timed one, and the other way round, where the CPUs are
the device. The profiler itself costs 0.5 us a call, some per cent of a step; what is beyond that
was taken by other processes, which slow operators and Python unlike."""

Kind = Literal["times", "sum", "pace"]


@dataclass(frozen=True)
class Misfit:
    """Why a profile is not believed."""

    kind: Kind
    seconds: float = math.nan
    """Of the parts together; where the pace does not fit, of a profiled step."""
    step_seconds: float = math.nan
    """That they should come to."""


def misfit(
    kernels: pd.Series, turn: pd.Series, step_seconds: float | None, *, works_by_itself: bool
) -> Misfit | None:
    """Whether anything speaks against a profiled turn.

    `kernels`: seconds a step of each kernel. `turn`: the row of the turn, as `queries.profiles`
    gives it, its `seconds` those of a profiled step. `step_seconds`: of a timed one, if any was.
    """
    host = host_seconds(turn).values()
    parts = [one for one in (turn.get("underfilled_seconds"), *host) if not pd.isna(one)]
    times = [*kernels, *parts]
    if not all(map(_is_time, times)):
        return Misfit("times")
    total, profiled = float(kernels.sum()), float(turn["seconds"])
    longest = max(total, float(turn["busy_seconds"]), *times)
    if longest > SLACK * profiled:
        return Misfit("sum", longest, profiled)
    if not total / SLACK <= turn["busy_seconds"] <= total * SLACK:
        return Misfit("sum", total, float(turn["busy_seconds"]))
    if step_seconds is None:
        return None
    if works_by_itself:
        return Misfit("sum", total, step_seconds) if total > SLACK * step_seconds else None
    fits = 1 / PACE <= profiled / step_seconds <= PACE
    return None if fits else Misfit("pace", profiled, step_seconds)


def host_seconds(turn: pd.Series) -> dict[str, Any]:
    """What the host did in a profiled turn, by name; empty where the journal does not say."""
    told = turn.get("host_seconds")
    return told if isinstance(told, dict) else {}


def _is_time(seconds: Any) -> bool:
    """Whether a run can have measured this: a journal may come from anywhere."""
    return isinstance(seconds, int | float) and 0 <= seconds < MAX_TIME
