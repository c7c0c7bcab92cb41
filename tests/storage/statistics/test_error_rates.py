"""How often verdicts are wrong where the truth is known, by simulation."""

import numpy as np
import pytest

from benchmarks.repeat_trials import trials
from benchmarks.stopping_trials import SPEED, simulate
from benchmarks.suite_mean_trials import CASES, row
from breakeven.storage.statistics.speedups import holm, noise_floor, paired_ratio, speed_verdict

pytestmark = pytest.mark.heavy


def test_on_which_side_of_one_a_speedup_lies_makes_no_difference() -> None:
    for trial in simulate(20, 0.02, 0.0):
        mirrored = type(trial)(baseline=trial.other, other=trial.baseline)
        slower = type(trial)(baseline=trial.baseline, other=1.5 * trial.other)
        assert len({simulated.rounds_by_width() for simulated in (trial, mirrored, slower)}) == 1


def test_ending_by_width_makes_no_false_positives_and_ending_at_significance_makes_many() -> None:
    trials = simulate(1000, 0.02, 0.0)
    rounds = [trial.rounds_by_width() for trial in trials]
    assert len(set(rounds)) > 3 and max(rounds) < SPEED.max_rounds
    ends = zip(trials, rounds, strict=True)
    assert sum(trial.is_significant(n) for trial, n in ends) <= 70
    assert sum(trial.is_significant_at_some_look() for trial in trials[:200]) > 40


def test_the_interval_holds_the_truth_where_processes_differ_and_that_of_rounds_does_not() -> None:
    product, rounds = zip(*trials(150, 3, 0.01), strict=True)
    assert 0.91 <= np.mean(product) <= 0.99
    assert np.mean(rounds) < 0.7


@pytest.mark.parametrize("case", CASES[:6], ids=lambda case: case.title)
def test_the_interval_holds_the_truth_of_simulated_suites(case: object) -> None:
    """Of 200 suites at 95 % fewer than 181 hold it once in a hundred times."""
    rates = row(case, 5, 200)  # type: ignore[arg-type]
    assert float(str(rates["interval holds the truth"]).rstrip("%")) >= 90.5


def drifting(chance: np.random.Generator, correlation: float, shape: tuple[int, int]) -> np.ndarray:
    """Logarithms that stray by 5 %, each round's as much like the one before as asked."""
    values = chance.normal(0, 0.05, shape)
    for place in range(1, shape[1]):
        values[:, place] += correlation * values[:, place - 1]
    return values


@pytest.mark.parametrize(("num_rounds", "correlation"), [(6, 0.3), (7, 0.0)])
def test_four_equal_backends_are_seldom_told_apart(num_rounds: int, correlation: float) -> None:
    """Noise that drifts from round to round makes every test of so few rounds too sure; the floor,
    which a control makes that drifts as much, is what keeps verdicts from it."""
    chance, wrong = np.random.default_rng(3), 0
    for _ in range(200):
        baseline, *others = np.exp(drifting(chance, correlation, (6, num_rounds)))
        control, *backends = [paired_ratio(baseline, times) for times in others]
        p_holm = holm([speedup.p_value for speedup in backends if speedup])
        floor = noise_floor([control])
        verdicts = [
            speed_verdict(speedup, p, floor)
            for speedup, p in zip(backends, p_holm, strict=True)
            if speedup
        ]
        wrong += any(verdict in ("faster", "slower") for verdict in verdicts)
    assert wrong <= 17  # more come of 5 % in one of fifty
