"""Whether the interval of a mean speedup over models contains the truth.

Run from the project's root: `.venv/bin/python -m benchmarks.suite_mean_trials [COUNT]`

Simulates COUNT (2000) suite runs for each row, in numbers only. A model's true speedup is drawn
from a population whose geometric mean is 1. A cell's measurement deviates from it by the cell's
standard error, which the cell's interval knows to about a quarter (as with ten degrees of freedom).
Prints Markdown.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import markdown
from breakeven.storage.statistics.speedups import Ratio
from breakeven.storage.suite_runs.groups import judge_means

USUAL_COUNT = 2000
COUNTS = (3, 5, 10, 40)
FREEDOM = 10
"""Degrees of freedom of a cell interval's own error."""
OUTLIER = math.log(3.0)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A population of models: the logarithms of their true speedups, and the precision of cells."""

    title: str
    draw: Callable[[np.random.Generator, int], Floats]
    errors: tuple[float, float] = (0.002, 0.08)
    """Smallest and largest standard error of a cell, log-uniform between them."""
    without_interval: float = 0.0
    """Share of the cells that have no interval."""


def differing(random: np.random.Generator, count: int) -> Floats:
    return random.normal(0, 0.2, count)


def alike(random: np.random.Generator, count: int) -> Floats:
    return np.zeros(count)


def one_outlier(random: np.random.Generator, count: int) -> Floats:
    """Exactly one model of each suite is three times as fast as the others."""
    logs = random.normal(0, 0.05, count)
    logs[random.integers(count)] += OUTLIER
    centred: Floats = logs - OUTLIER / count
    return centred


def rare_outliers(random: np.random.Generator, count: int) -> Floats:
    """One model in ten is three times as fast, so few models seldom include one."""
    logs = random.normal(0, 0.05, count) + OUTLIER * (random.random(count) < 0.1)
    centred: Floats = logs - OUTLIER * 0.1
    return centred


def skewed(random: np.random.Generator, count: int) -> Floats:
    """Most gain little, some gain much: exponential."""
    return random.exponential(0.2, count) - 0.2


CASES = (
    Case("differ by 20 %, cells by 0.2 to 8 %", differing),
    Case("the same, a third without interval", differing, without_interval=1 / 3),
    Case("the same, all without interval", differing, without_interval=1.0),
    Case("all alike, cells by 0.2 to 8 %", alike),
    Case("all alike, cells by 1 %", alike, errors=(0.01, 0.01)),
    Case("all alike, all without interval", alike, without_interval=1.0),
    Case("skewed", skewed),
    Case("one outlier in each suite", one_outlier),
    Case("one model in ten an outlier", rare_outliers),
)


def simulate(case: Case, random: np.random.Generator, count: int) -> tuple[Floats, Floats]:
    """Measured logarithms, and the errors of their intervals, NaN without an interval."""
    low, high = np.log(case.errors)
    errors = np.exp(random.uniform(low, high, count))
    values = case.draw(random, count) + random.normal(size=count) * errors
    known = errors * np.sqrt(random.chisquare(FREEDOM, count) / FREEDOM)
    return values, np.where(random.random(count) < case.without_interval, np.nan, known)


def as_ratio(value: float, error: float) -> Ratio:
    if np.isnan(error):
        return Ratio(median=np.exp(value), low=None, high=None, p_value=None, n=3)
    low, high = np.exp([value - 1.96 * error, value + 1.96 * error])
    return Ratio(median=np.exp(value), low=low, high=high, p_value=None, n=30)


def row(case: Case, models: int, count: int) -> dict[str, object]:
    """Shares of suite runs."""
    random = np.random.default_rng([CASES.index(case), models])
    widths, held, called = [], 0, 0
    for _ in range(count):
        measured = zip(*simulate(case, random, models), strict=True)
        cells = {str(at): as_ratio(*cell) for at, cell in enumerate(measured)}
        (mean,) = judge_means([cells], [{}])
        assert mean is not None and mean.ratio.low is not None and mean.ratio.high is not None
        held += mean.ratio.low <= 1 <= mean.ratio.high
        widths.append(mean.ratio.high / mean.ratio.low - 1)
        called += mean.verdict in ("faster", "slower")
    return {
        "models": case.title,
        "n": models,
        "interval holds the truth": f"{held / count:.1%}",
        "width (median)": f"{np.median(widths):.0%}",
        "called faster or slower": f"{called / count:.1%}",
    }


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else USUAL_COUNT
    rows = [row(case, models, count) for case in CASES for models in COUNTS]
    sys.stdout.write(f"{markdown(rows)}\n")


if __name__ == "__main__":
    main()
