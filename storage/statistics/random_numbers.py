"""Whether a backend with random numbers of its own draws right ones: whole steps, and each dropout.

Steps under a compiler and without one start from one state and see the same samples, so only their
random numbers differ. If a backend is correct, its steps are exchangeable with the others: every
way to divide the steps into two groups is as likely as the actual one. So a permutation test
compares the actual division with all others; it is exact for every distribution.

Dropouts were tried on the same known numbers under a compiler and without one
(`runner.worker.correctness.dropout_probes`), so counts and means are compared as those of two
samples.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from breakeven.runner.specs.training import Precision

Floats = NDArray[np.float64]
What = Literal["direction", "size"]
MIN_DRAWS = 8
"""Draws of each kind below which even the rarest division is too likely."""
MAX_DIVISIONS = 10_000
"""Ways to divide the steps that the actual one is compared with at most."""
ROUNDING: dict[Precision, float] = {"float32": 1e-3, "tf32": 3e-3, "bf16": 2e-2, "fp16": 3e-3}
"""What rounding makes of a change at most, relative to its size: draws that lie no further apart
count as that far."""
MIN_SHIFT = 0.1
"""How far the means of both groups must lie apart, squared, in units of what two draws of one group
do, to count: rounding shifts them, too."""
MIN_LOG_RATIO = math.log(1.25)
"""How much more, or less, the draws of one group must stray than those of the other."""
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
class RedrawFault:
    """How compiled steps differ from those without a compiler, whatever they draw."""

    what: What
    """Whether their mean is another, or how far they stray."""
    tensor: str | None
    """The parameter whose changes tell it; None for all together."""
    size: float
    """Distance of the means, in units of how far two draws lie apart; or ratio of how far the draws
    stray, compiled over not compiled."""
    num_divisions: int
    """Ways to divide the steps, of which the actual one is the most extreme."""


def find_redraw_fault(
    distances: Mapping[str, Sequence[float]], changes: Mapping[str, float], precision: Precision
) -> RedrawFault | None:
    """The clearest difference; None if there is none, or too little was drawn.

    `distances` has by parameter the squared distances between the changes that all pairs of steps
    made, in the order (0, 1), (0, 2), ..., those without a compiler first; `changes` the mean
    squared size of the latter. The test looks at all parameters together first, then at the most
    different one.
    """
    tables = {}
    for name, pairs in distances.items():
        table = _square(pairs)
        size = changes.get(name, math.nan)
        if table is not None and np.isfinite(table).all() and math.isfinite(size) and table.any():
            tables[name] = table
    if not tables or len({table.shape for table in tables.values()}) > 1:
        return None
    every = np.stack(list(tables.values()))
    stacked = np.concatenate([every.sum(axis=0, keepdims=True), every])
    sizes = np.array([changes[name] for name in tables])
    least = ROUNDING[precision] ** 2 * np.array([sizes.sum(), *sizes])
    names = [None, *tables]
    if stacked.shape[1] < 2 * MIN_DRAWS or stacked.shape[1] % 2:
        return None
    shifts, ratios = _statistics(stacked, least)
    found = [
        *_most_extreme("direction", shifts, names, MIN_SHIFT),
        *_most_extreme("size", ratios, names, MIN_LOG_RATIO),
    ]
    return found[0] if found else None


def _most_extreme(
    what: What, values: Floats, names: Sequence[str | None], least: float
) -> list[RedrawFault]:
    """Where the actual division, the first, is the most extreme one and matters."""
    sizes = np.abs(values)
    found = []
    if sizes[0, 0] >= least and _is_alone_at_the_top(sizes[0]):
        found.append(0)
    # Each parameter in units of what it reaches by chance, so that the largest do not count alone.
    spread = sizes[1:].std(axis=1, keepdims=True)
    units = np.where(sizes[1:] >= least, sizes[1:] / np.where(spread > 0, spread, 1.0), 0.0)
    if units[:, 0].any() and _is_alone_at_the_top(units.max(axis=0)):
        found.append(1 + int(units[:, 0].argmax()))
    count = values.shape[1]
    return [
        RedrawFault(
            what=what,
            tensor=names[place],
            size=_size(what, float(values[place, 0])),
            num_divisions=count,
        )
        for place in found
    ]


def _size(what: What, value: float) -> float:
    return math.sqrt(max(value, 0.0)) if what == "direction" else math.exp(value)


def _is_alone_at_the_top(sizes: Floats) -> bool:
    return bool((sizes[1:] < sizes[0]).all())


def _square(pairs: Sequence[float]) -> Floats | None:
    """The symmetric table of all pairs; None for a number of them that no steps have."""
    size = round((1 + math.sqrt(1 + 8 * len(pairs))) / 2)
    if size * (size - 1) // 2 != len(pairs):
        return None
    table = np.zeros((size, size))
    table[np.triu_indices(size, 1)] = pairs
    return table + table.T


def _statistics(tables: Floats, least: Floats) -> tuple[Floats, Floats]:
    """Of each table and each division, the actual one first: squared distance of both means without
    what chance makes of it, over the mean squared distance within a group; and the logarithm of how
    far the second group strays over how far the first does. (tables, divisions) each.

    `least` is the squared distance within a group that each table counts with at least.
    """
    half = tables.shape[1] // 2
    first = _divisions(2 * half)
    in_first = np.stack([((first @ table) * first).sum(axis=1) for table in tables])
    of_first = np.stack([first @ table.sum(axis=1) for table in tables])
    in_second = tables.sum(axis=(1, 2))[:, None] - 2 * of_first + in_first
    between = (of_first - in_first) / half**2
    floor = np.maximum(least, 1e-300)[:, None]
    within_first, within_second = (
        np.maximum(one / (half * (half - 1)), floor) for one in (in_first, in_second)
    )
    within = (within_first + within_second) / 2
    shift = np.maximum(between - within, 0.0) / within
    return shift, np.log(within_second / within_first) / 2


@lru_cache(maxsize=4)
def _divisions(size: int) -> Floats:
    """Ways to divide so many steps in two equal groups, as ones for those of the first; the first
    way is the first half. All of them, or as many drawn at random as are enough."""
    half = size // 2
    if math.comb(size, half) // 2 <= MAX_DIVISIONS:
        every = list(combinations(range(size), half))
        chosen = np.array(every[: len(every) // 2])  # those that step 0 is in the first group of
    else:
        shuffled = np.random.default_rng(0).permuted(
            np.tile(np.arange(size), (MAX_DIVISIONS - 1, 1)), axis=1
        )
        chosen = np.vstack([np.arange(half), shuffled[:, :half]])
    divisions = np.zeros((len(chosen), size))
    np.put_along_axis(divisions, chosen, 1.0, axis=1)
    return divisions


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
    """The first fault; None if there is none, or no judgement is possible."""
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
