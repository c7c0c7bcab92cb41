"""How often a trend gets a step that is none, and how many nights pass until a real one is found.

Run from the project's root: `.venv/bin/python -m benchmarks.step_trials [TRIALS]`, by default 300
series of each kind, some minutes. It prints the tables of docs/decisions/steps-in-a-trend.md.
"""

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from storage.statistics.steps import divide

Noise = Callable[[np.random.Generator, int], NDArray[np.float64]]
SPREAD = 0.01
"""Standard deviation of the logarithms: 1 %."""
BEFORE, NIGHTS = 30, 30
"""Nights before a step, and those after it in which it may be found."""


def alike(correlation: float) -> Noise:
    """Values that follow the one before so much, with the same spread as independent ones."""

    def draw(random: np.random.Generator, count: int) -> NDArray[np.float64]:
        noise = random.normal(size=count)
        for number in range(1, count):
            fresh = np.sqrt(1 - correlation**2) * noise[number]
            noise[number] = correlation * noise[number - 1] + fresh
        return noise

    return draw


def heavy_tails(random: np.random.Generator, count: int) -> NDArray[np.float64]:
    noise: NDArray[np.float64] = random.standard_t(3, size=count) / np.sqrt(3)
    return noise


def bad_nights(random: np.random.Generator, count: int) -> NDArray[np.float64]:
    """One night in twenty is 8 deviations off."""
    return random.normal(size=count) - 8 * (random.random(count) < 0.05)


KINDS: dict[str, Noise] = {
    "independent": alike(0.0),
    "heavy tails (t, 3 degrees)": heavy_tails,
    "bad nights (1 in 20)": bad_nights,
    "neighbours alike (0.3)": alike(0.3),
    "neighbours alike (0.6)": alike(0.6),
}


def has_step(noise: NDArray[np.float64]) -> bool:
    return bool(divide(np.exp(SPREAD * noise).tolist())[1])


def false_alarms(noise: Noise, count: int, trials: int, seed: int) -> str:
    random = np.random.default_rng(seed)
    wrong = sum(has_step(noise(random, count)) for _ in range(trials))
    interval = binomtest(wrong, trials).proportion_ci()
    return f"{wrong / trials:.1%} ({interval.low:.1%} to {interval.high:.1%})"


def false_alarms_of_nightly_looks(noise: Noise, trials: int, seed: int) -> str:
    """Share of series of which any of 100 looks, night after night, says that there is a step."""
    random = np.random.default_rng(seed)
    wrong = 0
    for _ in range(trials):
        values = noise(random, 100)
        wrong += any(has_step(values[:count]) for count in range(4, 101))
    return f"{wrong / trials:.0%}"


def delay(noise: Noise, size: float, trials: int, seed: int) -> str:
    """Median number of nights after which a step of so many deviations is found at most one night
    from where it is, and the share of series in which it is within `NIGHTS`."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(trials):
        values = noise(random, BEFORE + NIGHTS)
        values[BEFORE:] -= size
        nights = range(1, NIGHTS + 1)
        found.append(next((n for n in nights if _finds(values[: BEFORE + n])), np.inf))
    share = np.mean(np.isfinite(found))
    return f"{np.median(found):.0f} ({share:.0%})"


def _finds(noise: NDArray[np.float64]) -> bool:
    _, steps = divide(np.exp(SPREAD * noise).tolist())
    return any(abs(step.index - BEFORE) <= 1 for step in steps)


SHAPES: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "0.1 % a night": lambda night: -0.1 * night,
    "0.5 % a night": lambda night: -0.5 * night,
    "5 stairs of 2 %": lambda night: -2.0 * (night // 12),
}
"""What is no single step, in deviations of a night, of which one is 1 %."""


def found_of_change(noise: Noise, shape: str, trials: int, seed: int) -> str:
    """Share of series of 60 nights that get any step, and how much of the change between the first
    and the last level they tell, in the median."""
    random = np.random.default_rng(seed)
    night = np.arange(60, dtype=float)
    told = []
    for _ in range(trials):
        change = SHAPES[shape](night)
        levels, _ = divide(np.exp(SPREAD * (noise(random, 60) + change)).tolist())
        told.append(np.log(levels[-1].value / levels[0].value) / (SPREAD * change[-1]))
    return f"{np.mean(np.array(told) != 0):.0%} ({np.median(told):.0%})"


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    print("| values | 12 | 30 | 100 | any of 100 nightly looks |\n|---|---|---|---|---|")  # noqa: T201
    for name, noise in KINDS.items():
        cells = [false_alarms(noise, count, trials, seed=count) for count in (12, 30, 100)]
        nightly = false_alarms_of_nightly_looks(noise, max(20, trials // 5), seed=1)
        print(f"| {name} | {' | '.join(cells)} | {nightly} |", flush=True)  # noqa: T201
    print("\n| values | 2 deviations | 3 | 5 | 10 |\n|---|---|---|---|---|")  # noqa: T201
    for name, noise in KINDS.items():
        cells = [delay(noise, size, max(20, trials // 5), seed=2) for size in (2, 3, 5, 10)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)  # noqa: T201
    print(f"\n| values | {' | '.join(SHAPES)} |\n|---|---|---|---|")  # noqa: T201
    for name, noise in KINDS.items():
        cells = [found_of_change(noise, shape, trials, seed=3) for shape in SHAPES]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
