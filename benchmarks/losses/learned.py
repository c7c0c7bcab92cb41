"""How often a simulated loss that fell is called not learned, and one at chance learned.

Run from the project's root: `.venv/bin/python -m benchmarks.losses.learned [losses]`

Each shape has two courses of the loss: one that falls by learning, and one with the same noise that
does not. Lengths are between 30 and 1,500 steps, drawn evenly on a logarithmic scale. Prints a
Markdown table with all lengths, and with at least 200 steps; a run takes about a minute.
"""

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import markdown
from breakeven.storage.statistics.outcomes import has_learned, loss_fall

NUM_LOSSES = 1000
FEWEST, MOST = 30, 1500
LONG = 200
SMALL = 0.02
"""Standard deviation of the noise of steps in shapes that have little of it, as a share of the
first loss."""

Floats = NDArray[np.float64]
Shape = Callable[[np.random.Generator, int], tuple[Floats, Floats]]
"""A loss that falls by learning, and one at chance, of so many steps."""


def _small(rng: np.random.Generator, steps: int) -> Floats:
    return rng.normal(0, SMALL, steps)


def _decay(rng: np.random.Generator, steps: int) -> Floats:
    """From 1 to a floor, as in most trainings."""
    floor = 10 ** rng.uniform(-3, -0.5)
    done = np.linspace(0, 1, steps)
    return np.asarray(floor + (1 - floor) * np.exp(-done * rng.uniform(3, 10)))


def _persistent(rng: np.random.Generator, steps: int, persistence: float) -> Floats:
    """Autoregressive noise of variance 1."""
    noise = rng.normal(0, 1, steps)
    for step in range(1, steps):
        noise[step] = persistence * noise[step - 1] + np.sqrt(1 - persistence**2) * noise[step]
    return noise


def steep(rng: np.random.Generator, steps: int) -> tuple[Floats, Floats]:
    floor = 10 ** rng.uniform(-3, -0.5)
    course = floor + (1 - floor) * np.exp(-np.arange(steps) / rng.uniform(2, 10))
    return course * (1 + 5 * _small(rng, steps)), 1 + _small(rng, steps)


def steady(rng: np.random.Generator, steps: int) -> tuple[Floats, Floats]:
    done = np.linspace(0, 1, steps)
    noise = rng.choice([0.001, 0.01, 0.05]) * rng.normal(0, 1, steps)
    return 1 - rng.uniform(0.2, 0.9) * done + _small(rng, steps), 1 - 0.02 * done + noise


def plateau(rng: np.random.Generator, steps: int) -> tuple[Floats, Floats]:
    done = np.linspace(0, 1, steps)
    late = (done - rng.uniform(0.3, 0.85)) / rng.uniform(0.01, 0.05)
    rises = 1 + rng.uniform(0.05, 1) * done
    return (
        1 - rng.uniform(0.3, 0.95) / (1 + np.exp(-late)) + _small(rng, steps),
        rises + _small(rng, steps),
    )


def outlier(rng: np.random.Generator, steps: int) -> tuple[Floats, Floats]:
    spike = np.zeros(steps)
    spike[rng.choice(np.array([0, rng.integers(steps)]))] = 10 ** rng.uniform(0, 3)
    falls = 1 - rng.uniform(0.2, 0.9) * np.linspace(0, 1, steps)
    return falls + _small(rng, steps) + spike, 1 + _small(rng, steps) + spike


def noisy(rng: np.random.Generator, steps: int) -> tuple[Floats, Floats]:
    noise = rng.uniform(0.1, 0.3) * rng.normal(0, 1, steps)
    return _decay(rng, steps) + noise, 1 + noise


def correlated(rng: np.random.Generator, steps: int) -> tuple[Floats, Floats]:
    noise = rng.uniform(0.05, 0.1) * _persistent(rng, steps, rng.uniform(0.5, 0.9))
    return _decay(rng, steps) + noise, 1 + noise


def wandering(rng: np.random.Generator, steps: int) -> tuple[Floats, Floats]:
    noise = rng.uniform(0.05, 0.1) * _persistent(rng, steps, 0.98)
    return _decay(rng, steps) + noise, 1 + noise


def sorted_samples(rng: np.random.Generator, steps: int) -> tuple[Floats, Floats]:
    done = np.linspace(0, 1, steps) * rng.uniform(2.2, 12) + rng.uniform(0, 1)
    saw = 1 + rng.uniform(0.1, 0.2) * (2 * (done % 1) - 1) * rng.choice([-1, 1])
    return _decay(rng, steps) * saw + _small(rng, steps) / 2, saw + _small(rng, steps)


def different_batches(rng: np.random.Generator, steps: int) -> tuple[Floats, Floats]:
    difficulty = rng.lognormal(-0.5, 1, steps)
    return _decay(rng, steps) * difficulty, difficulty


def rare_batches(rng: np.random.Generator, steps: int) -> tuple[Floats, Floats]:
    is_hard = rng.random(steps) < rng.uniform(0.02, 0.3)
    difficulty = np.where(is_hard, 1.1, 0.1) * (1 + _small(rng, steps))
    return _decay(rng, steps) * difficulty, difficulty


def warm_up(rng: np.random.Generator, steps: int) -> tuple[Floats, Floats]:
    done, begins = np.linspace(0, 1, steps), int(0.2 * steps)
    rise = 1 + rng.uniform(0.2, 1) * np.exp(-(((done - 0.2) / 0.08) ** 2))
    falls = np.concatenate([np.ones(begins), _decay(rng, steps - begins)])
    return rise * falls + _small(rng, steps), rise + _small(rng, steps)


def overshoot(rng: np.random.Generator, steps: int) -> tuple[Floats, Floats]:
    """An untrained model is worse than guessing for some steps."""
    excess = rng.uniform(0.05, 0.4) * np.exp(-np.arange(steps) / rng.uniform(0.5, steps / 40))
    return _decay(rng, steps) + excess + _small(rng, steps), 1 + excess + _small(rng, steps)


def stages(rng: np.random.Generator, steps: int) -> tuple[Floats, Floats]:
    done = np.linspace(0, 1, steps)
    falls = np.where(done < 0.5, 1 - 1.6 * done, 0.9 - 1.4 * (done - 0.5))
    return falls + _small(rng, steps), 1 + 0.3 * (done > 0.5) + _small(rng, steps)


def tiny(rng: np.random.Generator, steps: int) -> tuple[Floats, Floats]:
    falls, flat = steep(rng, steps)
    return 1e-8 * falls, 1e-8 * flat


SHAPES: dict[str, Shape] = {
    "steep, within ten steps; flat": steep,
    "steady fall by 20 to 90 %; drift by 2 %": steady,
    "plateau, then a fall; a rise by 5 to 100 %": plateau,
    "one outlier, often at the first step": outlier,
    "noise of 10 to 30 % from step to step": noisy,
    "noise with a persistence of 0.5 to 0.9": correlated,
    "noise with a persistence of 0.98": wandering,
    "samples sorted by difficulty, 2 to 12 epochs": sorted_samples,
    "batches of very different difficulty (log-normal)": different_batches,
    "2 to 30 % of batches eleven times as hard": rare_batches,
    "a rise during warm-up": warm_up,
    "worse than chance by 5 to 40 % in the first steps": overshoot,
    "two stages, the second one harder": stages,
    "tiny, 1e-8": tiny,
}


def errors(shape: Shape, num_losses: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Whether the falling loss was called not learned, the other one learned; and the lengths."""
    rng = np.random.default_rng(list(map(ord, shape.__name__)))
    lengths = np.round(np.exp(rng.uniform(np.log(FEWEST), np.log(MOST), num_losses))).astype(int)
    wrong = []
    for steps in lengths:
        falls, chance = shape(rng, int(steps))
        wrong.append((not _is_learned(falls), _is_learned(chance)))
    return np.array(wrong), lengths


def _is_learned(losses: Floats) -> bool:
    return has_learned(loss_fall(losses), None, None, None)


def main() -> None:
    num_losses = int(sys.argv[1]) if len(sys.argv) > 1 else NUM_LOSSES
    rows = []
    for name, shape in SHAPES.items():
        wrong, lengths = errors(shape, num_losses)
        missed, alarms = wrong.mean(axis=0)
        missed_long, alarms_long = wrong[lengths >= LONG].mean(axis=0)
        rows.append(
            {
                "shape": name,
                "a fall called not learned": f"{missed:.1%}",
                f"the same, from {LONG} steps on": f"{missed_long:.1%}",
                "chance called learned": f"{alarms:.1%}",
                f"chance, from {LONG} steps on": f"{alarms_long:.1%}",
            }
        )
    sys.stdout.write(f"{markdown(rows)}\n")


if __name__ == "__main__":
    main()
