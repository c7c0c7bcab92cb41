"""What an earlier attempt at a run has left in its journal, for the one that follows it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from breakeven.runner.folders.events import each_event
from breakeven.runner.folders.run_dir import RunDir


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """All attempts before this one together."""

    workload: Mapping[str, Any]
    """What was said last of what the script trains."""
    evaluations: tuple[tuple[str, int], ...]
    """Split and step of each that counts by now."""
    is_profiled: bool

    def num_evaluations(self, step: int) -> dict[str, int]:
        """Of each split, up to a step from which the script goes on."""
        return dict(Counter(split for split, at in self.evaluations if at <= step))


def read_earlier(run: RunDir) -> Earlier | None:
    """None if no attempt has made a step."""
    workload: Mapping[str, Any] | None = None
    evaluations: list[tuple[str, int]] = []
    is_profiled = False
    for event in each_event(run.events_file):
        match event["kind"]:
            case "workload":
                workload = event
            case "evaluation":
                evaluations.append((event["split"], event["step"]))
            case "profile":
                is_profiled = True
            case "resumed":
                evaluations = [one for one in evaluations if one[1] <= event["step"]]
    if workload is None:
        return None
    return Earlier(workload=workload, evaluations=tuple(evaluations), is_profiled=is_profiled)
