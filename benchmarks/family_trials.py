"""How often a family of 200 changes without an effect has any that is called faster, and how often
a change that saves 5 % is found at a late place of its family.

Run from the project's root: `.venv/bin/python -m benchmarks.family_trials [FAMILIES]`

Simulates FAMILIES (400) families for each kind of noise, in numbers only, with the block times of
`benchmarks.stopping_trials`, of baseline, control and proposal; the product's statistics judge them
at its levels. Other columns leave the control out, or use the level of experiments without
a family. The power is that of 1,000 changes at a place with nothing accepted before it, and just
after an acceptance. Prints Markdown; a run takes about five minutes.
"""

import sys
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import markdown
from breakeven.runner.experiments.families import level_of
from breakeven.storage.statistics.speedups import (
    SIGNIFICANCE,
    Ratio,
    in_family,
    noise_floor,
    p_of_rounds,
    paired_ratio,
    speed_verdict,
)

USUAL_COUNT = 400
PROPOSALS = 200
CHANGES = 1000
FASTER = 1.05
PLACES = (1, 20, 100)
NOISES = ((8, 0.03, 0.0), (30, 0.03, 0.0), (30, 0.03, 0.3), (100, 0.05, 0.3))
"""Paired rounds, standard deviation of a block's time, correlation with the previous round."""
Noise = tuple[int, float, float]
Floats = NDArray[np.float64]


def block_times(random: np.random.Generator, count: int, noise: Noise) -> Floats:
    """The times of blocks of equal work, a row for each run."""
    rounds, deviation, correlation = noise
    shocks = random.standard_t(4, size=(count, rounds)) * deviation / np.sqrt(2)
    logs = shocks.copy()
    for number in range(1, rounds):
        fresh = np.sqrt(1 - correlation**2) * shocks[:, number]
        logs[:, number] = correlation * logs[:, number - 1] + fresh
    return np.asarray(np.exp(logs))


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Block times of a baseline, a control of equal work and a proposal."""

    baseline: Floats
    control: Floats
    proposal: Floats

    @cached_property
    def p_value(self) -> float:
        return p_of_rounds(np.log(self.baseline / self.proposal))

    @cached_property
    def floor(self) -> float | None:
        return noise_floor([paired_ratio(self.baseline, self.control)])

    @cached_property
    def ratio(self) -> Ratio:
        ratio = paired_ratio(self.baseline, self.proposal)
        assert ratio is not None
        return ratio

    def is_faster(self, level: float, *, has_control: bool = True) -> bool:
        """The product's verdict. Intervals take long: the p-value, without which no verdict is
        *faster*, is computed first."""
        if self.p_value >= level:
            return False
        (p_value,) = in_family([self.p_value], level)
        floor = self.floor if has_control else None
        return speed_verdict(self.ratio, p_value, floor) == "faster"


def experiments(
    random: np.random.Generator, count: int, noise: Noise, gain: float = 1.0
) -> list[Experiment]:
    baselines, controls, proposals = (block_times(random, count, noise) for _ in range(3))
    return [
        Experiment(baseline=baseline, control=control, proposal=proposal / gain)
        for baseline, control, proposal in zip(baselines, controls, proposals, strict=True)
    ]


def accepts_any(family: list[Experiment], *, has_control: bool) -> bool:
    """Whether any is called faster; up to the first one there is no acceptance."""
    return any(
        experiment.is_faster(level_of(place, []), has_control=has_control)
        for place, experiment in enumerate(family, 1)
    )


def null_row(count: int, noise: Noise) -> dict[str, object]:
    random = np.random.default_rng(0)
    families = [experiments(random, PROPOSALS, noise) for _ in range(count)]
    alone = [any(proposal.is_faster(SIGNIFICANCE) for proposal in family) for family in families]
    return described(noise) | {
        "any accepted": share([accepts_any(family, has_control=True) for family in families]),
        "without controls": share([accepts_any(family, has_control=False) for family in families]),
        "each at 0.05": share(alone),
    }


def power_row(noise: Noise) -> dict[str, object]:
    changes = experiments(np.random.default_rng(1), CHANGES, noise, FASTER)
    levels = {"at 0.05": SIGNIFICANCE}
    levels |= {f"place {place}": level_of(place, []) for place in PLACES}
    levels["place 100, after an acceptance"] = level_of(100, [99])
    return described(noise) | {
        name: share([change.is_faster(level) for change in changes])
        for name, level in levels.items()
    }


def share(answers: list[bool]) -> str:
    return f"{np.mean(answers):.1%}"


def described(noise: Noise) -> dict[str, object]:
    rounds, deviation, correlation = noise
    return {"rounds": rounds, "noise": f"{deviation:.0%}", "correlation": correlation}


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else USUAL_COUNT
    sys.stdout.write(f"{markdown([null_row(count, noise) for noise in NOISES])}\n\n")
    sys.stdout.write(f"{markdown([power_row(noise) for noise in NOISES])}\n")


if __name__ == "__main__":
    main()
