"""Error rates of parity's coarse instrument in simulated trainings with known truth.

Run from the project's root: `.venv/bin/python -m benchmarks.late_simulation [trials]`

Equal trainings share the course of the losses and each batch's difficulty; each has an
autoregressive noise of its own, from independent steps (0) to almost constant (0.98). A fault
shifts the losses, from a random step on, by three times the range of five equal trainings' final
losses. Prints a Markdown table; a run takes about two minutes.
"""

import sys

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.tables import markdown
from breakeven.storage.statistics.outcomes import Trainings, readings, without_spikes

NUM_TRIALS = 500
NUM_STEPS = 300
PERSISTENCE = (0.0, 0.5, 0.9, 0.98)
NUMBERS_OF_CONTROLS = (1, 2, 3)
STRAYING = 0.05
SPREADS = 3.0
NO_EVALUATIONS = pd.DataFrame({"loss": [], "accuracy": [], "num_samples": []}, dtype=float)

Floats = NDArray[np.float64]


def equal_trainings(rng: np.random.Generator, count: int, persistence: float) -> Floats:
    """Losses of `count` equal trainings by step: (count, steps)."""
    course = 0.5 + np.exp(-np.arange(NUM_STEPS) / 60) + rng.normal(0, 0.2, NUM_STEPS)
    noise = rng.normal(0, STRAYING, (count, NUM_STEPS))
    strayed = np.empty_like(noise)
    strayed[:, 0] = noise[:, 0]
    for step in range(1, NUM_STEPS):
        keeps = np.sqrt(1 - persistence**2)
        strayed[:, step] = persistence * strayed[:, step - 1] + keeps * noise[:, step]
    return course + strayed


def is_broken(equals: Floats, backend: Floats) -> bool:
    """Whether readings of the losses stay outside."""
    trainings = Trainings(
        equals=[(pd.Series(losses), NO_EVALUATIONS) for losses in equals],
        losses=pd.Series(backend),
        evaluations=NO_EVALUATIONS,
        samples_per_step=16,
        learned=None,
        learned_accuracy=None,
    )
    return bool(without_spikes(readings(trainings, after=0), lambda one: one.is_outside))


def rates(num_trials: int, persistence: float, num_controls: int) -> tuple[float, float]:
    """Shares of correct backends, and of faults, that parity calls broken."""
    rng = np.random.default_rng([round(100 * persistence), num_controls])
    alarms = caught = 0
    for _ in range(num_trials):
        losses = equal_trainings(rng, 6, persistence)
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
    for persistence in PERSISTENCE:
        for num_controls in NUMBERS_OF_CONTROLS:
            alarms, caught = rates(num_trials, persistence, num_controls)
            rows.append(
                {
                    "persistence": persistence,
                    "controls": num_controls,
                    "correct called broken": f"{alarms:.1%}",
                    "faults called broken": f"{caught:.1%}",
                }
            )
    sys.stdout.write(f"{markdown(rows)}\n")


if __name__ == "__main__":
    main()
