"""Whether the interval of a mean speedup over models contains the truth.

Run from the project's root: `.venv/bin/python -m benchmarks.suite_mean_trials [COUNT]`

Simulates COUNT (2000) suite runs for each row, in numbers only. A model's true speedup is drawn
from a population whose geometric mean is 1. A cell's measurement deviates from it by the cell's
standard error, which the cell's interval knows to about a quarter (as with ten degrees of freedom).
The table compares the product's interval with these alternatives:

* *cells alone*: the cells' own errors, as if there were no other models (a fixed effect)
* *random effects*: weights by DerSimonian and Laird (1986), normal quantiles
* *Hartung-Knapp*: the same weights, Student's t and their variance (Hartung and Knapp 2001)
* *bootstrap*: models drawn with replacement and each by its own error, percentiles of 500

Prints Markdown.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from benchmarks.tables import markdown
from breakeven.storage.statistics.speedups import Ratio
from breakeven.storage.suite.groups import judge_means

USUAL_COUNT = 2000
COUNTS = (3, 5, 10, 40)
NUM_RESAMPLES = 500
FREEDOM = 10
"""Degrees of freedom of a cell interval's own error."""
OUTLIER = math.log(3.0)
Floats = NDArray[np.float64]
Interval = tuple[float, float]


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


def cells_alone(values: Floats, errors: Floats, random: np.random.Generator) -> Interval:
    half = 1.96 * np.sqrt((errors**2).sum()) / len(values)
    return values.mean() - half, values.mean() + half


def _random_effects(values: Floats, errors: Floats) -> tuple[float, Floats]:
    """Weighted mean and the weights."""
    weights = 1 / errors**2
    fixed = (weights * values).sum() / weights.sum()
    excess = (weights * (values - fixed) ** 2).sum() - (len(values) - 1)
    scale = weights.sum() - (weights**2).sum() / weights.sum()
    weights = 1 / (errors**2 + max(0.0, excess / scale))
    return float((weights * values).sum() / weights.sum()), weights


def random_effects(values: Floats, errors: Floats, random: np.random.Generator) -> Interval:
    mean, weights = _random_effects(values, errors)
    half = 1.96 / np.sqrt(weights.sum())
    return mean - half, mean + half


def hartung_knapp(values: Floats, errors: Floats, random: np.random.Generator) -> Interval:
    mean, weights = _random_effects(values, errors)
    freedom = len(values) - 1
    variance = (weights * (values - mean) ** 2).sum() / weights.sum() / freedom
    half = stdtrit(freedom, 0.975) * np.sqrt(variance)
    return mean - half, mean + half


def bootstrap(values: Floats, errors: Floats, random: np.random.Generator) -> Interval:
    picks = random.integers(len(values), size=(NUM_RESAMPLES, len(values)))
    means = (values[picks] + random.normal(size=picks.shape) * errors[picks]).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return low, high


OTHERS = {
    "cells alone": cells_alone,
    "random effects": random_effects,
    "Hartung-Knapp": hartung_knapp,
    "bootstrap": bootstrap,
}


def simulate(case: Case, random: np.random.Generator, count: int) -> tuple[Floats, Floats, Floats]:
    """Measured logarithms, the cells' errors, and the errors of their intervals, NaN without an
    interval."""
    low, high = np.log(case.errors)
    errors = np.exp(random.uniform(low, high, count))
    values = case.draw(random, count) + random.normal(size=count) * errors
    known = errors * np.sqrt(random.chisquare(FREEDOM, count) / FREEDOM)
    return values, known, np.where(random.random(count) < case.without_interval, np.nan, known)


def as_ratio(value: float, error: float) -> Ratio:
    if np.isnan(error):
        return Ratio(median=np.exp(value), low=None, high=None, p_value=None, n=3)
    low, high = np.exp([value - 1.96 * error, value + 1.96 * error])
    return Ratio(median=np.exp(value), low=low, high=high, p_value=None, n=30)


def row(case: Case, models: int, count: int) -> dict[str, object]:
    """Shares of suite runs; the other methods get every cell's error, also those that the product
    does not get."""
    random = np.random.default_rng([CASES.index(case), models])
    held = dict.fromkeys(["product", *OTHERS], 0)
    widths, called = [], 0
    for _ in range(count):
        values, known, told = simulate(case, random, models)
        cells = {str(at): as_ratio(*cell) for at, cell in enumerate(zip(values, told, strict=True))}
        (mean,) = judge_means([cells], [{}])
        assert mean is not None and mean.ratio.low is not None and mean.ratio.high is not None
        held["product"] += mean.ratio.low <= 1 <= mean.ratio.high
        widths.append(mean.ratio.high / mean.ratio.low - 1)
        called += mean.verdict in ("faster", "slower")
        for name, method in OTHERS.items():
            low, high = method(values, known, random)
            held[name] += low <= 0 <= high
    return {
        "models": case.title,
        "n": models,
        "interval holds the truth": f"{held.pop('product') / count:.1%}",
        **{name: f"{holds / count:.1%}" for name, holds in held.items()},
        "width (median)": f"{np.median(widths):.0%}",
        "called faster or slower": f"{called / count:.1%}",
    }


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else USUAL_COUNT
    rows = [row(case, models, count) for case in CASES for models in COUNTS]
    sys.stdout.write(f"{markdown(rows)}\n")


if __name__ == "__main__":
    main()
