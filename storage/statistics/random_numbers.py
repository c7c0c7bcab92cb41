"""Judges whether a backend draws correct random numbers of its own: whole steps, and each dropout.

Compiled and uncompiled steps start from the same state with the same samples, so only their random
numbers differ. If a backend is correct, its steps are exchangeable with the others: each division
of the steps into two groups is as likely as the actual one. A permutation test therefore compares
the actual division with all others; it is exact for every distribution.

Each dropout was probed on the same known numbers with and without a compiler
(`runner.worker.correctness.own_random_numbers`), so counts and means are compared as those of two
samples.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.runner.specs.training import Precision

DEVICE_GENERATORS = ("cuda", "mps")
"""Generators from which compiled code may draw in its own way without being wrong."""

Floats = NDArray[np.float64]
What = Literal["direction", "size"]
MIN_DRAWS = 8
"""Fewest draws of each kind; with fewer, even the most extreme division is too likely."""
MAX_DIVISIONS = 10_000
"""Largest number of divisions in the permutation test."""
ROUNDING: dict[Precision, float] = {"float32": 1e-3, "tf32": 3e-3, "bf16": 2e-2, "fp16": 3e-3}
"""Largest effect of rounding on a change, relative to its size; smaller distances of draws count as
this distance."""
MIN_SHIFT = 0.1
"""Smallest squared distance of both groups' means that counts, relative to that of two draws of one
group, because rounding also shifts the means."""
MIN_LOG_RATIO = math.log(1.25)
"""Smallest difference of the logarithms of both groups' spreads that counts."""
Wrong = Literal["share", "scale", "backward"]
STANDARD_ERRORS = 5.0
"""Distance of two samples that chance alone exceeds once in two million cases."""
MIN_DIFFERENCE = 0.01
"""Tolerated difference of a share or of a scale: fused attention kernels round the share to 1/256,
and bf16 rounds the scale by 1/256."""
ALIKE = {"attention": 4}
"""Number of values that share one random number, by operation; else 1. Fused attention in half
precision decides for four queries at once: all 580 counts on an H100 were multiples of four."""


@dataclass(frozen=True, kw_only=True)
class RedrawFault:
    """A difference between compiled and uncompiled steps that random numbers do not explain."""

    what: What
    """Whether the mean of the changes differs, or their spread."""
    tensor: str | None
    """The parameter whose changes differ; None for all together."""
    size: float
    """Distance of the means, relative to that of two draws; or ratio of the spreads, compiled over
    uncompiled."""
    num_divisions: int
    """Number of divisions, of which the actual one is the most extreme."""


def find_redraw_fault(
    distances: Mapping[str, Sequence[float]], changes: Mapping[str, float], precision: Precision
) -> RedrawFault | None:
    """The clearest difference; None if there is none, or with too few draws.

    `distances` has for each parameter the squared distances between the changes of all pairs of
    steps, in the order (0, 1), (0, 2), ..., uncompiled steps first. `changes` has the mean squared
    size of the uncompiled changes. The test compares all parameters together first, then the most
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
    faults = [
        *_most_extreme("direction", shifts, names, MIN_SHIFT),
        *_most_extreme("size", ratios, names, MIN_LOG_RATIO),
    ]
    return faults[0] if faults else None


def _most_extreme(
    what: What, values: Floats, names: Sequence[str | None], least: float
) -> list[RedrawFault]:
    """Faults of tensors whose actual division, the first, is the most extreme and large enough."""
    sizes = np.abs(values)
    extremes = []
    if sizes[0, 0] >= least and _is_alone_at_the_top(sizes[0]):
        extremes.append(0)
    # Scales each parameter by its spread over the divisions, so that not only large ones count.
    spread = sizes[1:].std(axis=1, keepdims=True)
    units = np.where(sizes[1:] >= least, sizes[1:] / np.where(spread > 0, spread, 1.0), 0.0)
    if units[:, 0].any() and _is_alone_at_the_top(units.max(axis=0)):
        extremes.append(1 + int(units[:, 0].argmax()))
    count = values.shape[1]
    return [
        RedrawFault(
            what=what,
            tensor=names[place],
            size=_size(what, float(values[place, 0])),
            num_divisions=count,
        )
        for place in extremes
    ]


def _size(what: What, value: float) -> float:
    return math.sqrt(max(value, 0.0)) if what == "direction" else math.exp(value)


def _is_alone_at_the_top(sizes: Floats) -> bool:
    return bool((sizes[1:] < sizes[0]).all())


def _square(pairs: Sequence[float]) -> Floats | None:
    """The symmetric table of all pairs; None if no number of steps has this number of pairs."""
    size = round((1 + math.sqrt(1 + 8 * len(pairs))) / 2)
    if size * (size - 1) // 2 != len(pairs):
        return None
    table = np.zeros((size, size))
    table[np.triu_indices(size, 1)] = pairs
    return table + table.T


def _statistics(tables: Floats, least: Floats) -> tuple[Floats, Floats]:
    """Two arrays of (tables, divisions), with the actual division first: the squared distance of
    both groups' means minus its expectation by chance, over the mean squared distance within a
    group; and the logarithm of the second group's spread over the first one's.

    `least` has for each table the minimum of the squared distance within a group.
    """
    half = tables.shape[1] // 2
    first = _divisions(2 * half)
    in_first = np.stack([((first @ table) * first).sum(axis=1) for table in tables])
    of_first = np.stack([first @ table.sum(axis=1) for table in tables])
    in_second = tables.sum(axis=(1, 2))[:, None] - 2 * of_first + in_first
    between = (of_first - in_first) / half**2
    floor = np.maximum(least, 1e-300)[:, None]
    within_first, within_second = (
        np.maximum(group / (half * (half - 1)), floor) for group in (in_first, in_second)
    )
    within = (within_first + within_second) / 2
    shift = np.maximum(between - within, 0.0) / within
    return shift, np.log(within_second / within_first) / 2


@lru_cache(maxsize=4)
def _divisions(size: int) -> Floats:
    """Divisions of `size` steps into two equal groups, as rows with ones for the first group. The
    first row selects the first half. Above `MAX_DIVISIONS` the others are drawn at random."""
    half = size // 2
    if math.comb(size, half) // 2 <= MAX_DIVISIONS:
        every = list(combinations(range(size), half))
        chosen = np.array(every[: len(every) // 2])  # those with step 0 in the first group
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
    """A dropout that differs from the same dropout without a compiler."""

    what: Wrong
    """The wrong measure: the share of dropped numbers; their mean, which should not change; or the
    agreement of the numbers dropped in backward and forward."""
    number: int
    """Index of the call in a forward pass, from 0."""
    num_dropouts: int
    operation: str
    p: float
    value: float
    expected: float
    """The value without a compiler."""


def find_dropout_faults(
    eager: Sequence[Mapping[str, Any]], compiled: Sequence[Mapping[str, Any]]
) -> list[DropoutFault]:
    """All wrong dropouts, in the order of the calls.

    Rows have number, operation, p, tried, zeros, sum, squares, backward; rows with equal numbers
    are compared. Omits a number without rows on both sides.
    """
    expected = {row["number"]: row for row in eager}
    pairs = [(expected[row["number"]], row) for row in compiled if row["number"] in expected]
    faults = []
    for before, after in pairs:
        wrong = _wrong(before, after)
        if wrong is not None:
            faults.append(
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
    return faults


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
    """Share of zeros; mean, which is 1 if the remaining numbers are scaled up correctly; and the
    gradient over the sum of squares, which is 1 if backward and forward drop the same numbers."""
    return {
        "share": row["zeros"] / row["tried"],
        "scale": row["sum"] / row["tried"],
        "backward": row["backward"] / row["squares"] if row["squares"] else math.nan,
    }


def _error(what: Wrong, *rows: Mapping[str, Any]) -> float:
    """Standard error of the difference of both samples; accounts for shared numbers (`ALIKE`)."""
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


def draws_numbers(inputs: pd.DataFrame) -> bool:
    """Whether a script's steps draw random numbers on its device, as dropout does.

    This is so if most steps change the state of the generator; an order of samples is only drawn
    once per epoch. False if no two consecutive steps were examined.
    """
    known = inputs.sort_values("step")
    states = [(int(row.step), _where_computed(row.random)) for row in known.itertuples()]
    moves = [
        state != before
        for (step, before), (after, state) in pairwise(states)
        if after == step + 1 and before is not None
    ]
    return sum(moves) > len(moves) / 2


def draws_alike(inputs: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether two runs drew the same random numbers: their generators have equal states at all
    steps that both recorded.

    Only the CPU's generator shows this, because it draws in sequence. A device's generator counts
    draws; on an H100, Inductor drew other numbers with equal counts (docs/own-training.md).
    """
    both = inputs.merge(other, on="step", suffixes=("_one", "_other"))
    states = [[row.random_one, row.random_other] for row in both.itertuples() if row.step > 0]
    if any(set(DEVICE_GENERATORS) & {*(state or ())} for pair in states for state in pair):
        return False
    return bool(states) and all(_where_computed(a) == _where_computed(b) for a, b in states)


def _where_computed(random: Any) -> str | None:
    """The state of the device's generator."""
    if not isinstance(random, dict):
        return None
    return next((random[name] for name in (*DEVICE_GENERATORS, "torch") if name in random), None)
