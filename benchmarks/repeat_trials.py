"""Whether a speedup's interval contains the truth if processes of the same run differ.

Run from the project's root: `.venv/bin/python -m benchmarks.repeat_trials [COUNT]`

Simulates COUNT (500) experiments for each row, in numbers only: repeats of 30 rounds, whose ratios
vary by 2 % (Student's t with 4 degrees of freedom) around a typical ratio. Each repeat has its own
typical ratio: normal, with a known deviation around a true speedup of 1.1. The table also has an
interval that treats all rounds as those of one process. Prints Markdown.
"""

import math
import sys

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import markdown
from breakeven.storage.statistics.intervals import typical
from breakeven.storage.statistics.speedups import paired_ratio

USUAL_COUNT = 500
SPEEDUP = 1.1
NUM_ROUNDS = 30
NOISE = 0.02
CASES = ((3, 0.0), (3, 0.01), (5, 0.0), (5, 0.01), (10, 0.01))
"""Repeats, and standard deviation of their typical ratios."""
Floats = NDArray[np.float64]


def simulate(
    random: np.random.Generator, repeats: int, deviation: float
) -> tuple[Floats, NDArray[np.int64]]:
    """Ratios of all rounds, and the process that each belongs to."""
    processes = np.repeat(np.arange(repeats), NUM_ROUNDS)
    shifts = random.normal(0, deviation, repeats)[processes] if deviation else 0.0
    rounds = random.standard_t(4, len(processes)) * NOISE / math.sqrt(2)
    return SPEEDUP * np.exp(shifts + rounds), processes


def holds(ends: tuple[float | None, float | None]) -> bool:
    low, high = ends
    assert low is not None and high is not None
    return low <= SPEEDUP <= high


def trials(count: int, repeats: int, deviation: float) -> list[tuple[bool, bool]]:
    """Whether the product's interval contains the truth, and whether that of pooled rounds does."""
    random = np.random.default_rng(0)
    hits = []
    for _ in range(count):
        ratios, processes = simulate(random, repeats, deviation)
        ratio = paired_ratio(ratios, np.ones_like(ratios), processes)
        assert ratio is not None
        _, *pooled = typical(ratios)
        hits.append((holds((ratio.low, ratio.high)), holds((pooled[0], pooled[1]))))
    return hits


def row(count: int, repeats: int, deviation: float) -> dict[str, object]:
    product, pooled = zip(*trials(count, repeats, deviation), strict=True)
    return {
        "repeats": repeats,
        "processes differ by": f"{deviation:.0%}",
        "interval holds the truth": f"{np.mean(product):.1%}",
        "rounds taken for one process's": f"{np.mean(pooled):.1%}",
    }


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else USUAL_COUNT
    sys.stdout.write(f"{markdown([row(count, *case) for case in CASES])}\n")


if __name__ == "__main__":
    main()
