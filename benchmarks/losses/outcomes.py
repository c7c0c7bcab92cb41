"""Judges simulated trainings by outcome: planted losses of a share of the margin, and none.

    python -m benchmarks.losses.outcomes [TRAININGS]

Prints for each kind of training, number of controls and planted loss how many of the trainings
are called worse, as good or not decided. Losses are simulated, so it takes minutes of one CPU.
"""

import sys
from collections import Counter
from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.tables import markdown
from breakeven.runner.more_controls import Training
from breakeven.runner.open_outcomes import is_open
from breakeven.runner.specs.experiment_fields import CONTROLS_FOR_WORSE
from breakeven.runner.specs.values import Margin
from breakeven.storage.statistics.as_good import find_outcome
from breakeven.storage.statistics.outcomes import Trainings

Floats = NDArray[np.float64]
MARGIN = Margin(0.01, is_share=True)
STEPS = 600
END = 2.0
"""The loss at the end, so that the margin is 0.02."""
PLANTED = (0.0, 0.5, 1.0, 2.0)
"""Planted losses in units of the margin, from a third of the steps on."""
CONTROLS = (1, 6, 0)
TRAININGS = 200
NO_EVALUATIONS = pd.DataFrame(
    {name: [] for name in ("loss", "accuracy", "num_samples")}, dtype=float
)
Strays = Callable[[np.random.Generator], Floats]
"""How far one of several equal trainings is from the loss that all share, by step."""


def _persistent(rng: np.random.Generator, persistence: float) -> Floats:
    """Noise of deviation 1 that resembles that of the step before."""
    noise = rng.normal(0, 1, STEPS)
    for step in range(1, STEPS):
        noise[step] = persistence * noise[step - 1] + np.sqrt(1 - persistence**2) * noise[step]
    return noise


def quiet(rng: np.random.Generator) -> Floats:
    return 0.005 * rng.normal(0, 1, STEPS)


def noisy(rng: np.random.Generator) -> Floats:
    return 0.05 * rng.normal(0, 1, STEPS)


def persistent(rng: np.random.Generator) -> Floats:
    return 0.01 * _persistent(rng, 0.9)


def wandering(rng: np.random.Generator) -> Floats:
    return 0.005 * _persistent(rng, 0.99)


def ends_apart(rng: np.random.Generator) -> Floats:
    """Each training ends at a loss of its own, a fifth of the margin apart."""
    return 0.01 * rng.normal(0, 1, STEPS) + 0.004 * rng.normal() * np.linspace(0, 1, STEPS)


def two_states(rng: np.random.Generator) -> Floats:
    """Half of the trainings end higher by five margins."""
    late = np.arange(STEPS) > STEPS / 2
    return 0.01 * rng.normal(0, 1, STEPS) + 0.1 * (rng.random() < 0.5) * late


def rare_state(rng: np.random.Generator) -> Floats:
    """One training in five ends higher by five margins."""
    late = np.arange(STEPS) > STEPS / 2
    return 0.01 * rng.normal(0, 1, STEPS) + 0.1 * (rng.random() < 0.2) * late


def grows_late(rng: np.random.Generator) -> Floats:
    """Equal trainings diverge only towards the end."""
    return 0.02 * np.linspace(0, 1, STEPS) ** 3 * _persistent(rng, 0.5)


KINDS: dict[str, Strays] = {
    "quiet": quiet,
    "noise of 2.5 margins from step to step": noisy,
    "noise with a persistence of 0.9": persistent,
    "noise with a persistence of 0.99": wandering,
    "trainings end a fifth of the margin apart": ends_apart,
    "half end in a state five margins worse": two_states,
    "a fifth end in a state five margins worse": rare_state,
    "trainings diverge towards the end": grows_late,
}


def simulated(
    rng: np.random.Generator, strays: Strays, planted: float
) -> tuple[Floats, Callable[[], Floats]]:
    """The losses of a training with a planted loss, and what makes those of an equal training."""
    steps = np.arange(STEPS)
    shared = END + 2 * np.exp(-steps / 100) + 0.1 * rng.normal(0, 1, STEPS)
    excess = planted * MARGIN.amount * END * (steps >= STEPS / 3)
    return shared + strays(rng) + excess, lambda: shared + strays(rng)


def judged(rng: np.random.Generator, strays: Strays, controls: int, planted: float) -> str:
    """The verdict about one more training with this loss planted. No controls: they are added as
    long as `is_open` asks for one."""
    own, equal = simulated(rng, strays, planted)
    equals = [equal() for _ in range((controls or 1) + 1)]
    while not controls and len(equals) <= CONTROLS_FOR_WORSE:
        if not is_open([*map(journal, equals)], journal(own), MARGIN):
            break
        equals.append(equal())
    trainings = Trainings(
        equals=[(pd.Series(losses), NO_EVALUATIONS) for losses in equals],
        losses=pd.Series(own),
        evaluations=NO_EVALUATIONS,
        samples_per_step=8,
        learned=2.0,
        learned_accuracy=None,
    )
    outcome = find_outcome(trainings, MARGIN, STEPS)
    assert outcome is not None
    NUM_CONTROLS.append(len(equals) - 1)
    return outcome.verdict


def journal(losses: Floats) -> Training:
    return Training(dict(enumerate(losses.tolist())), seconds=1.0, precision=None, evaluations={})


NUM_CONTROLS: list[int] = []


def main() -> None:
    trainings = int(sys.argv[1]) if len(sys.argv) > 1 else TRAININGS
    rows = []
    for kind, strays in KINDS.items():
        for controls in CONTROLS:
            for planted in PLANTED:
                rng = np.random.default_rng(0)
                NUM_CONTROLS.clear()
                counts = Counter(judged(rng, strays, controls, planted) for _ in range(trainings))
                verdicts = ("worse", "as good", "not decided")
                shares = {verdict: f"{counts[verdict] / trainings:.1%}" for verdict in verdicts}
                used = controls if controls else f"{np.mean(NUM_CONTROLS):.1f} on demand"
                where = {"trainings": kind, "controls": used, "planted, in margins": planted}
                rows.append({**where, **shares})
    sys.stdout.write(f"{markdown(rows)}\n")


if __name__ == "__main__":
    main()
