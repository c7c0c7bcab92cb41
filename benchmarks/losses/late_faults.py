"""Error rates of parity's coarse instrument in simulated trainings with known truth.

Run from the project's root: `.venv/bin/python -m benchmarks.losses.late_faults [trials]`

Equal trainings share the course of the losses and each batch's difficulty; each has an
autoregressive noise of its own, from independent steps (0) to almost constant (0.98), which may
grow until the end. A fault shifts the losses, from a random step on, by three times the range of
five equal trainings' final losses. Prints a Markdown table; a run takes about a minute.
"""

import sys

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.tables import markdown
from breakeven.storage.statistics.outcomes import (
    Trainings,
    learned_by_loss,
    loss_fall,
    readings,
    without_spikes,
)

NUM_TRIALS = 500
NUM_STEPS = 300
NOISES = ((0.0, 1.0), (0.5, 1.0), (0.9, 1.0), (0.98, 1.0), (0.9, 8.0), (0.98, 8.0))
"""Persistence from step to step, and how many times as large the noise is at the end."""
NUMBERS_OF_CONTROLS = (1, 2, 3)
STRAYING = 0.05
SPREADS = 3.0
NO_EVALUATIONS = pd.DataFrame({"loss": [], "accuracy": [], "num_samples": []}, dtype=float)

Floats = NDArray[np.float64]


def equal_trainings(
    rng: np.random.Generator, count: int, persistence: float, growth: float
) -> Floats:
    """Losses of `count` equal trainings by step: (count, steps)."""
    course = 0.5 + np.exp(-np.arange(NUM_STEPS) / 60) + rng.normal(0, 0.2, NUM_STEPS)
    noise = rng.normal(0, STRAYING, (count, NUM_STEPS))
    strayed = np.empty_like(noise)
    strayed[:, 0] = noise[:, 0]
    for step in range(1, NUM_STEPS):
        keeps = np.sqrt(1 - persistence**2)
        strayed[:, step] = persistence * strayed[:, step - 1] + keeps * noise[:, step]
    return course + strayed * growth ** np.linspace(0, 1, NUM_STEPS)


def is_broken(equals: Floats, backend: Floats, after: int = 0) -> bool:
    """Whether readings of the losses from step `after` on stay outside."""
    series = [pd.Series(losses) for losses in equals]
    trainings = Trainings(
        equals=[(curve, NO_EVALUATIONS) for curve in series],
        losses=pd.Series(backend),
        evaluations=NO_EVALUATIONS,
        samples_per_step=16,
        learned=learned_by_loss(loss_fall(equals[0]), series),
        learned_accuracy=None,
    )
    return bool(without_spikes(readings(trainings, after), lambda reading: reading.is_outside))


def rates(
    num_trials: int, persistence: float, growth: float, num_controls: int
) -> tuple[float, float]:
    """Shares of correct backends, and of faults, that parity calls broken."""
    rng = np.random.default_rng([round(100 * persistence), num_controls])
    alarms = caught = 0
    for _ in range(num_trials):
        losses = equal_trainings(rng, 6, persistence, growth)
        equals, backend = losses[: num_controls + 1], losses[5]
        alarms += is_broken(equals, backend)
        finals = losses[:5, -NUM_STEPS // 10 :].mean(axis=1)
        begins = round(rng.uniform(0.1, 0.9) * NUM_STEPS)
        shift = SPREADS * float(np.ptp(finals)) * rng.choice([-1, 1])
        caught += is_broken(equals, backend + shift * (np.arange(NUM_STEPS) >= begins))
    return alarms / num_trials, caught / num_trials


def main() -> None:
    num_trials = int(sys.argv[1]) if len(sys.argv) > 1 else NUM_TRIALS
    rows = []
    for persistence, growth in NOISES:
        for num_controls in NUMBERS_OF_CONTROLS:
            alarms, caught = rates(num_trials, persistence, growth, num_controls)
            rows.append(
                {
                    "persistence": persistence,
                    "growth": growth,
                    "controls": num_controls,
                    "correct called broken": f"{alarms:.1%}",
                    "faults called broken": f"{caught:.1%}",
                }
            )
    sys.stdout.write(f"{markdown(rows)}\n")


if __name__ == "__main__":
    main()
