"""What ranks send each other in profiled steps: how long it takes, what hides behind computing, and
how many bytes."""

from collections import defaultdict
from typing import Any

from breakeven.runner.worker.profiling.kernels import BOOKKEEPING, COMPILED_CODE
from breakeven.runner.worker.profiling.trace import Collective, Span, Trace, length, merged


def communication(trace: Trace, steps: int, *, device_works_by_itself: bool) -> dict[str, float]:
    """Seconds a step of this rank: computing, communicating, and the part of that in which nothing
    was computed."""
    if device_works_by_itself:
        computing = [
            Span(one.start, one.start + one.seconds)
            for one in trace.work
            if "nccl" not in one.name.lower()
        ]
    else:
        computing = [
            call.span
            for call in trace.calls
            if (call.category == "cpu_op" and "::" in call.name and not _is_no_work(call.name))
            or call.name.startswith(COMPILED_CODE)
        ]
    sent = merged(one.span for one in trace.collectives)
    worked = merged(computing)
    return {
        "compute_seconds": length(worked) / steps,
        "communication_seconds": length(sent) / steps,
        "exposed_seconds": (length(sent) - overlap(sent, worked)) / steps,
    }


def by_collective(trace: Trace, steps: int) -> list[dict[str, Any]]:
    """Calls, bytes and seconds a step of each kind of collective."""
    kinds: dict[str, list[Collective]] = defaultdict(list)
    for one in trace.collectives:
        kinds[one.name].append(one)
    rows = []
    for name, calls in sorted(kinds.items()):
        sizes = [one.bytes for one in calls]
        rows.append({
            "name": name,
            "calls": len(calls) / steps,
            "sent_bytes": None if None in sizes else sum(filter(None, sizes)) / steps,
            "seconds": length(merged(one.span for one in calls)) / steps,
        })  # fmt: skip
    return rows


def _is_no_work(name: str) -> bool:
    return name.startswith((*BOOKKEEPING, "c10d::", "_c10d_functional::"))


def overlap(some: list[Span], others: list[Span]) -> float:
    """Seconds that lie in both; each are `merged`."""
    total, first = 0.0, 0
    for span in some:
        while first < len(others) and others[first].end <= span.start:
            first += 1
        for other in others[first:]:
            if other.start >= span.end:
                break
            total += min(span.end, other.end) - max(span.start, other.start)
    return total
