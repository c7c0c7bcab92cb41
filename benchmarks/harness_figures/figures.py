"""One time by both tools, whether they agree, and what is known of why they do not."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

NEAR = 0.03
"""Figures that differ by no more than this agree."""
BUSY = 0.9
"""A device that works for less than this share of a step waits for the host."""
RUNS = {"compiled": "inductor", "uncompiled": "baseline"}
"""What the harness calls a time, and the run of Breakeven's that has it."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """All in seconds."""

    harness: tuple[float, ...]
    """Medians of its two runs, before and after ours."""
    alone: tuple[float, ...]
    """The same of steps of one kind in a row; empty in records that have none."""
    ours: float
    """Median of the steps that were waited for."""
    kernels: float
    """What the device works in a step of ours."""
    harness_kernels: tuple[float, ...]
    """The same of the harness's two runs; empty in records that have none."""
    spreads: tuple[float, float]
    """Width of the middle half of single steps, relative to the median: the harness's, ours."""

    @classmethod
    def of(cls, record: dict[str, Any], kind: str) -> "Figure":
        """`kind` is one of `RUNS`."""
        runs = record["harness"]
        ours = record["ours"][RUNS[kind]]
        alone, busy = f"{kind}_alone", f"{kind}_busy"
        return cls(
            harness=tuple(statistics.median(run[kind]) for run in runs),
            alone=tuple(statistics.median(run[alone]) for run in runs if alone in run),
            ours=statistics.median(ours["waited"]),
            kernels=statistics.median(ours["busy"]),
            harness_kernels=tuple(statistics.median(run[busy]) for run in runs if busy in run),
            spreads=(max(_spread(run[kind]) for run in runs), _spread(ours["waited"])),
        )

    @property
    def ratio(self) -> float:
        """Ours to the harness's."""
        return self.ours / statistics.geometric_mean(self.harness)

    @property
    def agrees(self) -> bool:
        return abs(self.ratio - 1) <= NEAR

    @property
    def own_ratio(self) -> float:
        """Of the harness's two runs to each other, at least 1."""
        return max(self.harness) / min(self.harness)

    @property
    def is_restless(self) -> bool:
        """Whether the harness does not agree with itself."""
        return self.own_ratio > 1 + NEAR

    @property
    def ratio_alone(self) -> float:
        """Ours to the harness's steps of one kind in a row."""
        return self.ours / statistics.geometric_mean(self.alone)

    @property
    def agrees_alone(self) -> bool:
        """Whether ours agrees with the harness's steps of one kind in a row."""
        if not self.alone:
            return False
        near = abs(self.ratio_alone - 1) <= NEAR
        return near or min(self.alone) <= self.ours <= max(self.alone)

    @property
    def waits_for_host(self) -> bool:
        """Whether the device stands still for part of a step, for so long that all of the
        difference may lie there."""
        longest = max(*self.harness, self.ours)
        return self.kernels < BUSY * longest and abs(self.ratio - 1) <= _host_share(self)


def reason(figure: Figure, kind: str) -> str:
    """Why two figures differ; begins with "open" where that is not known."""
    there, here = (f"{spread:.0%}" for spread in figure.spreads)
    scatter = f"middle half of single steps {there} wide there, {here} here"
    if figure.is_restless:
        return f"the harness's own runs differ by {figure.own_ratio - 1:.1%}; {scatter}"
    if kind == "compiled":
        if figure.agrees_alone:
            return "alternating: by itself the harness takes as long as ours"
        beyond = statistics.geometric_mean(figure.harness) - figure.kernels
        return (
            f"open: beyond our kernels the harness takes {beyond * 1e3:.2f} ms, "
            f"ours {(figure.ours - figure.kernels) * 1e3:.2f}"
        )
    if figure.waits_for_host:
        return (
            f"the host, for which the device waits {_host_share(figure):.0%} of a step; {scatter}"
        )
    return f"open; {scatter}"


def _host_share(figure: Figure) -> float:
    return 1 - figure.kernels / max(*figure.harness, figure.ours)


def _spread(seconds: Sequence[float]) -> float:
    low, middle, high = statistics.quantiles(seconds, n=4)
    return (high - low) / middle
