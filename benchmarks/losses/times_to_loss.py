"""Compares the steps to a common loss of simulated trainings that learn equally fast, or faster.

    python -m benchmarks.losses.times_to_loss [TRAININGS]

Prints for each kind of training, number of controls and pace of learning how often the interval has
the true number of steps, and how often the other training surely needs fewer. Minutes of one CPU.
"""

import sys

import numpy as np
import pandas as pd

from benchmarks.losses.outcomes import KINDS, MARGIN, NO_EVALUATIONS, STEPS, Strays
from benchmarks.tables import markdown
from breakeven.storage.statistics.as_good import outcome_of_losses
from breakeven.storage.statistics.outcomes import Trainings
from breakeven.storage.statistics.steps_to_loss import StepsToLoss, find_steps_to_loss

TRAININGS = 100
PACES = (1.0, 1.3, 2.0)
CONTROLS = (1, 6)
SHARED_NOISE = (0.0, 0.1)
"""Noise from step to step that all trainings have in common, as they see the same samples."""


def compared(
    rng: np.random.Generator, strays: Strays, controls: int, pace: float, shared: float
) -> StepsToLoss | None:
    steps = np.arange(STEPS)
    samples = shared * rng.normal(0, 1, STEPS)

    def losses(speed: float) -> pd.Series:
        """From 4 to 1.6: it falls by 0.06 over the last tenth of the steps."""
        return pd.Series(1 + 3 * (1 + speed * steps) ** -0.25 + samples + strays(rng))

    trainings = Trainings(
        equals=[(losses(1.0), NO_EVALUATIONS) for _ in range(controls + 1)],
        losses=losses(pace),
        evaluations=NO_EVALUATIONS,
        samples_per_step=8,
        learned=2.0,
        learned_accuracy=None,
    )
    by_loss = outcome_of_losses(trainings, MARGIN)
    assert by_loss is not None
    return find_steps_to_loss(trainings, by_loss)


def row(strays: Strays, controls: int, pace: float, shared: float, count: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    tried = [compared(rng, strays, controls, pace, shared) for _ in range(count)]
    reached = [steps for steps in tried if steps is not None]
    has_truth = [steps.low <= steps.expected / pace <= steps.high for steps in reached]
    return {
        "controls": controls,
        "pace": pace,
        "shared noise": shared,
        "has no common loss": f"{1 - len(reached) / count:.0%}",
        "interval has the truth": f"{np.mean(has_truth):.0%}" if reached else "",
        "surely sooner": f"{sum(steps.surely < steps.expected for steps in reached) / count:.0%}",
    }


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else TRAININGS
    rows = [
        {"trainings": kind, **row(strays, controls, pace, shared, count)}
        for kind, strays in KINDS.items()
        for controls in CONTROLS
        for shared in SHARED_NOISE
        for pace in PACES
    ]
    sys.stdout.write(f"{markdown(rows)}\n")


if __name__ == "__main__":
    main()
