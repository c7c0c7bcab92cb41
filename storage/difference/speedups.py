"""By how much two speedups differ, with an interval and a verdict."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from breakeven.storage.difference.sides import Side, comparable, labels
from breakeven.storage.statistics.speedups import (
    MAX_MARGIN_OF_SAME,
    MIN_MARGIN,
    SIGNIFICANCE,
    Ratio,
    holm,
)

QUANTILE = 1.959964
"""Of the normal distribution, at which a 95 % interval ends."""
DifferenceVerdict = Literal["higher", "lower", "same", "unsure"]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A speedup over the speedup of the same backend in the reference."""

    label: str
    letter: str
    """Of the side that is compared with the first."""
    ratio: float
    low: float | None
    high: float | None
    p_holm: float | None
    """Corrected over everything that is compared with the reference."""
    verdict: DifferenceVerdict


def ratio_of_speedups(reference: Ratio, other: Ratio) -> tuple[float, float | None, float | None]:
    """The other speedup over the reference's, and the ends of its 95 % interval; None where one of
    them has no interval.

    The two were measured apart from each other, each has its own interval, and the interval of
    their quotient follows from those by the method of variance estimates recovery (Zou and Donner,
    2008: Construction of confidence limits about effect measures), on logarithms: with estimates
    a, b and ends l, u, it is a - b - sqrt((a - l_a)^2 + (u_b - b)^2) to
    a - b + sqrt((u_a - a)^2 + (b - l_b)^2). It asks for nothing but the two intervals, so it is the
    same for rounds of one process (bootstrap) and for several processes (Student's t).
    """
    quotient = other.median / reference.median
    if not (reference.low and reference.high and other.low and other.high):
        return quotient, None, None
    a, low_a, high_a = (math.log(x) for x in (other.median, other.low, other.high))
    b, low_b, high_b = (math.log(x) for x in (reference.median, reference.low, reference.high))
    low = a - b - math.hypot(a - low_a, high_b - b)
    high = a - b + math.hypot(high_a - a, b - low_b)
    return quotient, math.exp(low), math.exp(high)


def p_value(quotient: float, low: float | None, high: float | None) -> float | None:
    """Two-sided p-value that belongs to the interval: how far 1 lies from the quotient, in units of
    the standard error that the interval's half on that side stands for. None without an interval.
    """
    if low is None or high is None:
        return None
    distance = math.log(quotient)
    half = distance - math.log(low) if distance > 0 else math.log(high) - distance
    if half <= 0:
        return 1.0 if distance == 0 else 0.0
    return math.erfc(abs(distance) * QUANTILE / half / math.sqrt(2))


def differences(sides: Sequence[Side]) -> list[Difference]:
    """Of every backend that both the first side and another one have measured, where speeds of the
    two may be compared at all."""
    reference, *others = sides
    found = []
    for side in others:
        if not comparable(reference, side).speed:
            continue
        for label in labels(sides):
            before, after = reference.result(label), side.result(label)
            if before and after and before.speedup and after.speedup:
                margin = _margin(reference, side)
                found.append((label, side.letter, margin,
                              ratio_of_speedups(before.speedup, after.speedup)))  # fmt: skip
    corrected = holm([p_value(*ratio) for _, _, _, ratio in found])
    return [
        Difference(label=label, letter=letter, ratio=ratio[0], low=ratio[1], high=ratio[2],
                   p_holm=p, verdict=verdict(*ratio, p, margin))
        for (label, letter, margin, ratio), p in zip(found, corrected, strict=True)
    ]  # fmt: skip


def verdict(
    ratio: float, low: float | None, high: float | None, p_holm: float | None, margin: float
) -> DifferenceVerdict:
    """As of a speedup itself: higher or lower only beyond chance and margin, same only inside the
    margin, and on no machine that is noisier than that allows."""
    if low is None or high is None or p_holm is None:
        return "unsure"
    within = low >= 1 / (1 + margin) and high <= 1 + margin
    if within and margin <= MAX_MARGIN_OF_SAME:
        return "same"
    if p_holm < SIGNIFICANCE and low > 1 and ratio > 1 + margin:
        return "higher"
    if p_holm < SIGNIFICANCE and high < 1 and ratio < 1 / (1 + margin):
        return "lower"
    return "unsure"


def _margin(one: Side, other: Side) -> float:
    """What neither machine can tell apart."""
    floors = [side.comparison.noise_floor or 0.0 for side in (one, other)]
    return max(MIN_MARGIN, *floors)
