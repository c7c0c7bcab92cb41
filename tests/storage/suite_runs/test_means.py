"""Means over models: intervals, verdicts and what they rest on, worked out by hand."""

import math

import numpy as np
import pytest

from breakeven.storage.statistics.intervals import half_width, p_of_mean
from breakeven.storage.statistics.speedups import Ratio
from breakeven.storage.suite_runs.groups import MeanSpeedup, change, judge_means, mean_ratio


def exact(speedup: float) -> Ratio:
    return Ratio(median=speedup, low=speedup, high=speedup, p_value=0.001, n=30)


def known_to(speedup: float, error: float) -> Ratio:
    """With an interval of 1.96 standard errors of the logarithm to both sides."""
    low, high = speedup * math.exp(-1.96 * error), speedup * math.exp(1.96 * error)
    return Ratio(median=speedup, low=low, high=high, p_value=0.001, n=30)


def judged(speedups: dict[str, float], controls: dict[str, float] | None = None) -> MeanSpeedup:
    (mean,) = judge_means(
        [{model: exact(speedup) for model, speedup in speedups.items()}],
        [{model: exact(speedup) for model, speedup in (controls or {}).items()}],
    )
    assert mean is not None
    return mean


def test_the_interval_holds_what_models_differ_by() -> None:
    mean = mean_ratio([exact(math.exp(log)) for log in (0.1, 0.2, 0.3)])
    assert mean is not None and mean.low is not None and mean.high is not None
    # Standard deviation 0.1, of the mean 0.1 / sqrt(3) = 0.05774; t of 2 degrees at 97.5 %: 4.3027.
    assert mean.median == pytest.approx(math.exp(0.2))
    assert math.log(mean.high) == pytest.approx(0.2 + 4.3027 * 0.05774, abs=1e-4)
    assert math.log(mean.low) == pytest.approx(0.2 - 4.3027 * 0.05774, abs=1e-4)
    # t = 0.2 / 0.05774 = 3.464; two-sided p with 2 degrees: 1 - t / sqrt(t^2 + 2) = 0.0742.
    assert mean.p_value == pytest.approx(0.0742, abs=1e-4)
    assert mean.n == 3


def test_models_that_agree_by_luck_are_known_no_better_than_their_own_cells() -> None:
    mean = mean_ratio([known_to(1.1, 0.06) for _ in range(4)])
    # sqrt(4 x 0.06^2) / 4 = 0.03
    assert math.log(mean.high / mean.median) == pytest.approx(1.96 * 0.03)


def test_the_p_value_is_below_one_in_twenty_exactly_where_the_interval_leaves_nothing_out() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        values = random.normal(0.1, 0.1, 5)
        own = float(random.uniform(0, 0.1))
        outside = abs(values.mean()) > half_width(values, own)
        assert outside == (p_of_mean(values, own) < 0.05)


@pytest.mark.parametrize("count", [1, 2])
def test_of_few_models_no_interval_is_claimed(count: int) -> None:
    mean = judged({str(number): 2.0 for number in range(count)})
    assert (mean.ratio.median, mean.ratio.low, mean.ratio.high) == (2.0, None, None)
    assert (mean.verdict, mean.p_holm) == ("unsure", None)


@pytest.mark.parametrize(
    ("speedups", "verdict"),
    [
        ((1.30, 1.32, 1.28, 1.31), "faster"),
        ((0.70, 0.72, 0.68, 0.71), "slower"),
        ((1.001, 0.999, 1.002, 0.998), "same"),
        ((1.9, 0.4, 1.2, 0.7), "unsure"),
        ((1.012, 1.011, 1.013, 1.012), "same"),  # sure to be faster, by less than the margin
    ],
)
def test_the_verdict_is_that_of_a_single_speedup(speedups: tuple[float, ...], verdict: str) -> None:
    assert judged(dict(zip("ABCD", speedups, strict=True))).verdict == verdict


def test_no_slowdown_is_clipped() -> None:
    assert judged({"A": 2.0, "B": 0.25, "C": 1.0}).ratio.median == pytest.approx(0.5 ** (1 / 3))


def test_what_equal_runs_differ_by_on_average_is_the_margin() -> None:
    speedups = dict(zip("ABCD", (1.05, 1.052, 1.048, 1.05), strict=True))
    calm = dict.fromkeys("ABCD", 1.0)
    restless = dict(zip("ABCD", (1.10, 0.9, 1.1, 0.92), strict=True))
    assert judged(speedups, calm).verdict == "faster"
    assert judged(speedups, restless).verdict == "unsure"


def test_p_values_are_corrected_over_all_rows() -> None:
    speedups = {"A": exact(1.1), "B": exact(1.2), "C": exact(1.3)}
    alone, *_ = judge_means([speedups], [{}])
    first, second = judge_means([speedups, speedups], [{}, {}])
    assert first.p_holm == second.p_holm == pytest.approx(2 * alone.p_holm)


def test_the_model_that_makes_a_mean_unsure_is_named() -> None:
    judged_mean = judged({"A": 2.0, "B": 2.02, "C": 1.98, "D": 2.0, "Odd": 0.2})
    assert judged_mean.verdict == "unsure"
    ((model, mean, verdict),) = judged_mean.deciding
    assert (model, verdict) == ("Odd", "faster")
    assert mean == pytest.approx((2.0 * 2.02 * 1.98 * 2.0) ** 0.25)
    assert judged_mean.left_out[0].model == "Odd"


def test_a_mean_that_rests_on_no_single_model_says_which_moves_it_most() -> None:
    mean = judged({"A": 1.30, "B": 1.32, "C": 1.28, "D": 1.31, "E": 1.40})
    assert (mean.verdict, mean.deciding) == ("faster", ())
    assert mean.left_out[0].model == "E"


def test_with_three_models_none_can_be_left_out() -> None:
    mean = judged({"A": 1.30, "B": 1.32, "C": 1.28})
    assert mean.deciding == ()
    assert {omission.verdict for omission in mean.left_out} == {None}
    assert judged({"A": 1.3}).left_out == ()


def test_what_two_suite_runs_know_of_a_change_adds_up() -> None:
    of_means = change(known_to(1.5, 0.03), known_to(2.0, 0.04))
    assert of_means.median == pytest.approx(0.75)
    # sqrt(0.03^2 + 0.04^2) = 0.05
    assert math.log(of_means.high / of_means.low) == pytest.approx(2 * 1.96 * 0.05)
    bare = Ratio(median=1.5, low=None, high=None, p_value=None, n=3)
    assert change(bare, known_to(2.0, 0.04)).low is None
