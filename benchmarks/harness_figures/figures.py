"""One time by both tools, whether they agree, and what is known of why they do not."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness_figures.gated_harness import OTHERS

NEAR = 0.03
"""Figures that differ by no more than this agree."""
SAME_KERNELS = 0.01
"""Kernels of one work differ by no more than this between two profiles."""
NAMED_CHARACTERS = 60
MOSTLY = 0.3
"""Share of what all kernels differ by from which on a single one is named."""
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
    our_way: float | None
    """Median of the harness's own clock for the same work in Breakeven's order; None where its step
    was not taken apart."""
    still: tuple[float, float] | None
    """How long the device stands still between its first and its last work in a step of the
    harness, and in our order; None likewise."""
    alternates: bool
    """Whether ours, too, has an uncompiled step before each compiled one, as it has since
    2026-11-23."""
    slower: tuple[str, float, float] | None
    """The kernel that differs most: what the compiler fused in it, and what it takes in a step of
    the harness and of ours; None in records that list none."""
    spreads: tuple[float, float]
    """Width of the middle half of single steps, relative to the median: the harness's, ours."""

    @classmethod
    def of(cls, record: dict[str, Any], kind: str) -> "Figure":
        """`kind` is one of `RUNS`."""
        runs = record["harness"]
        ours = record["ours"][RUNS[kind]]
        alone, busy = f"{kind}_alone", f"{kind}_busy"
        apart = record.get("apart") if kind == "compiled" else None
        return cls(
            harness=tuple(statistics.median(run[kind]) for run in runs),
            alone=tuple(statistics.median(run[alone]) for run in runs if alone in run),
            ours=statistics.median(ours["waited"]),
            kernels=statistics.median(ours["busy"]),
            harness_kernels=tuple(statistics.median(run[busy]) for run in runs if busy in run),
            our_way=None if apart is None else statistics.median(apart["our_way"]["seconds"]),
            still=None if apart is None else (_still(apart["harness"]), _still(apart["our_way"])),
            alternates="alternates" in record,
            slower=_slower(runs, ours) if kind == "compiled" else None,
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
    def agrees_our_way(self) -> bool:
        """Whether ours agrees with the harness's clock for the same work in our order."""
        return self.our_way is not None and abs(self.ours / self.our_way - 1) <= NEAR

    @property
    def waits_for_host(self) -> bool:
        """Whether the device stands still for part of a step, for so long that all of the
        difference may lie there."""
        longest = max(*self.harness, self.ours)
        return self.kernels < BUSY * longest and abs(self.ratio - 1) <= _host_share(self)


def reason(figure: Figure, kind: str) -> str:
    """Why two figures differ; begins with "open" where that is not known."""
    why = (
        _order_of_work(figure)
        or _restlessness(figure)
        or _same_beside_kernels(figure)
        or _by_kind(figure, kind)
    )
    return why + _other_kernels(figure)


def _order_of_work(figure: Figure) -> str | None:
    if figure.our_way is None or figure.still is None:
        return None
    if figure.agrees_alone or not figure.agrees_our_way:
        return None
    there, here = (f"{seconds * 1e3:.2f}" for seconds in figure.still)
    return (
        f"order of work: in ours its own clock says {figure.our_way * 1e3:.4g} ms; between kernels "
        f"the device stands still for {there} ms there, {here} in ours"
    )


def _restlessness(figure: Figure) -> str | None:
    if not figure.is_restless:
        return None
    return f"the harness's own runs differ by {figure.own_ratio - 1:.1%}; {_scatter(figure)}"


def _same_beside_kernels(figure: Figure) -> str | None:
    if not figure.harness_kernels or figure.slower is None:
        return None
    theirs = statistics.geometric_mean(figure.harness_kernels)
    more = figure.kernels - theirs
    beside = (figure.ours - more) / statistics.geometric_mean(figure.harness)
    if abs(more / figure.kernels) <= SAME_KERNELS or abs(beside - 1) > NEAR:
        return None
    return f"kernels: beside what those differ by, ours take {beside:.3f} of its time"


def _by_kind(figure: Figure, kind: str) -> str:
    if kind == "compiled":
        if figure.agrees_alone and not figure.alternates:
            return "alternating: by itself the harness takes as long as ours"
        beyond = statistics.geometric_mean(figure.harness) - figure.kernels
        return (
            f"open: beyond our kernels the harness takes {beyond * 1e3:.2f} ms, "
            f"ours {(figure.ours - figure.kernels) * 1e3:.2f}"
        )
    if figure.waits_for_host:
        return (
            f"the host, for which the device waits {_host_share(figure):.0%} of a step; "
            f"{_scatter(figure)}"
        )
    return f"open; {_scatter(figure)}"


def _other_kernels(figure: Figure) -> str:
    """Kernels hardly vary: where the harness's take longer, they are not the same."""
    if not figure.harness_kernels:
        return ""
    theirs = statistics.geometric_mean(figure.harness_kernels)
    ratio = theirs / figure.kernels
    if abs(ratio - 1) <= SAME_KERNELS:
        return ""
    return f"; its kernels take {ratio - 1:+.1%}{_mostly(figure, theirs - figure.kernels)}"


def _mostly(figure: Figure, more: float) -> str:
    if figure.slower is None:
        return ""
    name, there, here = figure.slower
    if (there - here) / more < MOSTLY:
        return ""
    return f", of which `{name}` takes {there * 1e3:.3g} ms there, {here * 1e3:.3g} here"


def _scatter(figure: Figure) -> str:
    there, here = (f"{spread:.0%}" for spread in figure.spreads)
    return f"middle half of single steps {there} wide there, {here} here"


def _host_share(figure: Figure) -> float:
    return 1 - figure.kernels / max(*figure.harness, figure.ours)


def _still(kind: dict[str, Any]) -> float:
    """The shorter of the profiles: what disturbs one only adds."""
    return min((idle["between"] for idle in kind.get("idle", ())), default=0.0)


def _slower(
    runs: Sequence[dict[str, Any]], ours: dict[str, Any]
) -> tuple[str, float, float] | None:
    """Of the kernels that were listed of both: the second run of the harness's comes after ours."""
    listed = [dict[str, float]() for _ in range(2)]
    for seconds, kernels in zip(
        listed, (runs[-1].get("compiled_kernels"), ours.get("kernels")), strict=True
    ):
        for name, _, one in kernels or ():
            seconds[name] = seconds.get(name, 0.0) + one
    there, here = listed
    both = there.keys() & here.keys() - {OTHERS}
    if not both:
        return None
    name = max(both, key=lambda one: abs(there[one] - here[one]))
    return _told(name), there[name], here[name]


def _told(kernel: str) -> str:
    """Names list all that was fused."""
    return kernel[:NAMED_CHARACTERS] + ("..." if len(kernel) > NAMED_CHARACTERS else "")


def _spread(seconds: Sequence[float]) -> float:
    low, middle, high = statistics.quantiles(seconds, n=4)
    return (high - low) / middle
