"""Whether dropout under a compiler drops as much as without one, and lets through what it should.

Both were tried on the same known numbers (`runner.worker.randomness.dropout_probes`), each with its
own random ones, so counts and means are compared as those of two samples.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Wrong = Literal["share", "scale", "backward"]
STANDARD_ERRORS = 5.0
"""How far apart chance alone does not bring two samples: once in two million."""
MIN_DIFFERENCE = 0.01
"""What does not matter, of a share or relative to a scale: attention's fused kernels round the
share to 1/256, and bf16 the scale by 1/256."""

ALIKE = {"attention": 4}
"""How many numbers share one random number, by operation, else 1. Fused attention in half precision
decides for four queries at once: each of 580 counts on an H100 was a multiple of four."""


@dataclass(frozen=True, kw_only=True)
class DropoutFault:
    """A dropout that does something else than without a compiler."""

    what: Wrong
    """The share of numbers that it drops; what it makes of their mean, which it should leave as it
    is; or whether backward drops the numbers that forward dropped."""
    number: int
    """Counted from 0 in the order of the calls of a forward."""
    num_dropouts: int
    operation: str
    p: float
    value: float
    expected: float
    """The same without a compiler."""


def find_dropout_faults(
    eager: Sequence[Mapping[str, Any]], compiled: Sequence[Mapping[str, Any]]
) -> list[DropoutFault]:
    """Every dropout that is wrong, in the order of the calls.

    Rows have number, operation, p, tried, zeros, sum, squares, backward; those of one number are
    compared. A number that was not tried on both sides is left out.
    """
    expected = {row["number"]: row for row in eager}
    pairs = [(expected[row["number"]], row) for row in compiled if row["number"] in expected]
    found = []
    for before, after in pairs:
        wrong = _wrong(before, after)
        if wrong is not None:
            found.append(
                DropoutFault(
                    what=wrong,
                    number=int(after["number"]),
                    num_dropouts=len(pairs),
                    operation=str(after["operation"]),
                    p=float(after["p"]),
                    value=_measures(after)[wrong],
                    expected=_measures(before)[wrong],
                )
            )
    return found


def _wrong(eager: Mapping[str, Any], compiled: Mapping[str, Any]) -> Wrong | None:
    """What is wrong first of all; None if nothing is or nothing can be said."""
    if not eager["tried"] or not compiled["tried"] or not eager["squares"]:
        return None
    before, after = _measures(eager), _measures(compiled)
    for what in before:
        allowed = max(MIN_DIFFERENCE, STANDARD_ERRORS * _error(what, eager, compiled))
        if not abs(after[what] - before[what]) <= allowed:
            return what
    return None


def _measures(row: Mapping[str, Any]) -> dict[Wrong, float]:
    """Share of zeros; mean, which is 1 if what is let through is scaled up; and the gradient over
    the sum of squares, which are equal if backward and forward drop the same numbers."""
    return {
        "share": row["zeros"] / row["tried"],
        "scale": row["sum"] / row["tried"],
        "backward": row["backward"] / row["squares"] if row["squares"] else math.nan,
    }


def _error(what: Wrong, *rows: Mapping[str, Any]) -> float:
    """Standard error of the difference of both samples, of numbers that are `ALIKE`."""
    if what == "backward":
        return 0.0  # the same numbers, dropped twice
    variance = 0.0
    for row in rows:
        share = (row["zeros"] + 1) / (row["tried"] + 2)
        mean = row["sum"] / row["tried"]
        spread = max(0.0, row["squares"] / row["tried"] - mean**2)
        alike = ALIKE.get(row["operation"], 1)
        variance += (share * (1 - share) if what == "share" else spread) * alike / row["tried"]
    return math.sqrt(variance)
