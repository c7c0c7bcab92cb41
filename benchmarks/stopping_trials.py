"""Whether ending a speed experiment by the width of its intervals makes false positives.

Run from the project's root: `.venv/bin/python -m benchmarks.stopping_trials [COUNT]`

Simulates COUNT (1000) experiments for each kind of noise, in numbers only: a baseline and a run of
equal work. Their block times vary by Student's t with 4 degrees of freedom, each round independent
of the others or correlated with the previous one. The product's stopping rule ends them and the
product's statistics judge them. On the same numbers, the table also has the naive rule, which ends
an experiment once the difference is significant. Prints Markdown.
"""

import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import markdown
from breakeven.runner.specs.experiment import SpeedSpec
from breakeven.runner.supervision.stopping_rule import LOOK_GROWTH, StoppingRule
from breakeven.storage.statistics.speedups import (
    SIGNIFICANCE,
    Ratio,
    paired_ratio,
    sign_test_p,
    speed_verdict,
)

USUAL_COUNT = 1000
SPEED = SpeedSpec(max_rounds=400, target_width=0.02)
NOISES = ((0.01, 0.0), (0.03, 0.0), (0.03, 0.3))
"""Standard deviation of a block's time, and correlation with the previous round."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Block times of two runs of equal work, up to the budget."""

    baseline: Floats
    other: Floats

    def rounds_by_width(self) -> int:
        """Number of rounds after which the product's rule ends the experiment."""
        rule = StoppingRule(SPEED, {"one": "baseline", "two": "backend"}, float("inf"))
        times = zip(self.baseline.tolist(), self.other.tolist(), strict=True)
        for number, (first, second) in enumerate(times, 1):
            rule.add("one", number, first)
            rule.add("two", number, second)
            if rule.ending(["one", "two"]):
                return min(number + 1, SPEED.max_rounds)
        return SPEED.max_rounds

    def is_significant(self, num_rounds: int) -> bool:
        logs = np.log(self.baseline[:num_rounds] / self.other[:num_rounds])
        return sign_test_p(logs) < SIGNIFICANCE

    def is_significant_at_some_look(self) -> bool:
        """The report of the naive rule, with the same looks."""
        look = SPEED.min_rounds
        while look <= SPEED.max_rounds:
            if self.is_significant(look):
                return True
            look = int(np.ceil(LOOK_GROWTH * look))
        return False

    def judged(self, num_rounds: int) -> Ratio:
        ratio = paired_ratio(self.baseline[:num_rounds], self.other[:num_rounds])
        assert ratio is not None
        return ratio


def simulate(count: int, deviation: float, correlation: float, seed: int = 0) -> list[Trial]:
    random = np.random.default_rng(seed)

    def times() -> Floats:
        shocks = random.standard_t(4, size=SPEED.max_rounds) * deviation / np.sqrt(2)
        logs = [shocks[0]]
        for shock in shocks[1:]:
            logs.append(correlation * logs[-1] + np.sqrt(1 - correlation**2) * shock)
        return np.exp(logs)

    return [Trial(baseline=times(), other=times()) for _ in range(count)]


def row(count: int, deviation: float, correlation: float) -> dict[str, object]:
    trials = simulate(count, deviation, correlation)
    rounds = [trial.rounds_by_width() for trial in trials]
    ends = list(zip(trials, rounds, strict=True))
    ratios = [trial.judged(n) for trial, n in ends]
    return {
        "noise": f"{deviation:.0%}",
        "correlation": correlation,
        "rounds (5 %, median, 95 %)": ", ".join(
            f"{n:.0f}" for n in np.percentile(rounds, [5, 50, 95])
        ),
        "p < 0.05, by width": share([trial.is_significant(n) for trial, n in ends]),
        "until significant": share([trial.is_significant_at_some_look() for trial in trials]),
        "called faster or slower": share([is_called_different(ratio) for ratio in ratios]),
    }


def is_called_different(ratio: Ratio) -> bool:
    """Whether the product's verdict is faster or slower, on a machine without a noise floor."""
    return speed_verdict(ratio, ratio.p_value, None) in ("faster", "slower")


def share(answers: list[bool]) -> str:
    return f"{np.mean(answers):.1%}"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else USUAL_COUNT
    rows = [row(count, deviation, correlation) for deviation, correlation in NOISES]
    sys.stdout.write(f"{markdown(rows)}\n")


if __name__ == "__main__":
    main()
