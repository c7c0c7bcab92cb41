"""Statistics of speed and of a second measurement, against numbers worked out by hand."""

import math

import numpy as np
import pytest

from breakeven.storage.statistics import intervals
from breakeven.storage.statistics.intervals import (
    _small,
    block_length,
    median_interval,
    typical,
)
from breakeven.storage.statistics.speedups import (
    Ratio,
    holm,
    noise_floor,
    paired_ratio,
    rounds_missing,
    sign_test_p,
    speed_doubt,
    speed_verdict,
)


def ratio(median: float, low: float | None, high: float | None, p: float | None = 0.01) -> Ratio:
    return Ratio(median=median, low=low, high=high, p_value=p, n=10)


@pytest.mark.parametrize("count", [6, 2**15, 2**15 + 1, 2**16])
def test_a_place_among_many_rounds_fits_the_numbers_that_hold_it(count: int) -> None:
    assert np.iinfo(_small(count)).max >= count - 1


def test_the_speedup_is_the_median_of_the_paired_ratios() -> None:
    # 2.2/2, 2.4/2, 2.6/2, 2.8/2, 3/2, 3.2/2 = 1.1 ... 1.6: median 1.35.
    speedup = paired_ratio([2.2, 2.4, 2.6, 2.8, 3.0, 3.2], [2, 2, 2, 2, 2, 2])
    assert speedup.median == pytest.approx(1.35)
    assert speedup.n == 6
    # All six ratios above 1: of the 2^6 sign patterns two are as extreme, p = 2/64. Student's t of
    # their logarithms, mean 0.29267 and deviation 0.14006, is 5.118 with 5 degrees of freedom.
    assert speedup.p_value == pytest.approx(0.0037, abs=1e-4)
    assert 1.1 <= speedup.low < 1.35 < speedup.high <= 1.6


@pytest.mark.parametrize(
    ("baseline", "other", "median", "p"),
    [
        # The machine slows down tenfold, but within each round the other run takes half the time.
        ([2, 4, 6, 8, 10, 20], [1, 2, 3, 4, 5, 10], 2.0, 0.0),
        ([1.0] * 8, [1.0] * 8, 1.0, 1.0),
        # Nine rounds at 3 % and one at a tenth of the speed, when something else had the processor:
        # splits of 9 to 1 or worse are (1 + 10 + 10 + 1) / 2^10 of all. By size the one weighs 10
        # of 55 ranks, p = 0.08.
        ([1.03] * 9 + [1.0], [1.0] * 9 + [10.0], 1.03, 22 / 1024),
        # How far rounds lie counts only where all of a few agree.
        ([3.0] * 6 + [0.999], [1.0] * 7, 3.0, 16 / 128),
        (np.linspace(1.4, 1.6, 10), [1.0] * 10, 1.5, 2 / 1024),
    ],
)
def test_rounds_are_paired_and_their_signs_tested(
    baseline: list[float], other: list[float], median: float, p: float
) -> None:
    speedup = paired_ratio(baseline, other)
    assert speedup.median == pytest.approx(median)
    assert speedup.p_value == pytest.approx(p)
    mirrored = paired_ratio(other, baseline)
    assert mirrored.p_value == pytest.approx(p)


@pytest.mark.parametrize(
    ("middle", "spread", "num_tested", "missing"),
    [
        # Four backends take 8 rounds, however clear they are; seven are there.
        (1.5, 1.05, 4, 1),
        # Reach ln(1.2 / 0.9) / 3.92 x 2.802 = 0.2056, effect ln 1.08: 7 x (0.2056 / 0.0770)^2 - 7.
        (1.08, None, 4, 43),
        # Effect ln 1.04: 186 rounds, which are more than ten times seven.
        (1.04, None, 4, None),
        (1.5, 1.05, 1, None),
    ],
)
def test_rounds_that_are_missing_follow_from_what_rounds_tell(
    middle: float, spread: float | None, num_tested: int, missing: int | None
) -> None:
    low, high = (middle / spread, middle * spread) if spread else (0.9, 1.2)
    so_far = Ratio(median=middle, low=low, high=high, p_value=0.02, n=7)
    assert rounds_missing(so_far, num_tested) == missing


def test_fewer_than_six_pairs_claim_nothing() -> None:
    speedup = paired_ratio([2, 2, 2, 2, 2], [1, 1, 1, 1, 1])
    assert speedup == Ratio(median=2.0, low=None, high=None, p_value=None, n=5)
    assert speed_verdict(speedup, None, 0.0) == "unsure"
    assert paired_ratio([], []) is None


def test_rounds_that_persist_are_resampled_together() -> None:
    # Above the median or not: 0 0 1 1 0 0 1 1 0 0 1 1, less the mean of 1/2 all squares are 1/4.
    # Of 11 pairs of neighbours 6 agree and 5 differ: (6 - 5) / 12 = 1/12.
    values = np.array([1.0, 2.0, 8.0, 9.0] * 3)
    assert intervals.persistence(values) == pytest.approx(1 / 12)
    # (2.449 / 12 / (1 - 1/144))^(2/3) x 12^(1/3) = 0.348 x 2.289 = 0.80, so 1.
    assert block_length(values) == 1
    # 0 x 12 and 1 x 12: 22 of 23 pairs agree, (22 - 1) / 24 = 0.875; (2.449 x 0.875 / 0.2344)^(2/3)
    # x 24^(1/3) = 4.374 x 2.884 = 12.6, cut at a third of 24.
    assert block_length(np.repeat([1.0, 2.0], 12)) == 8
    # Alternating rounds and equal ones are resampled one by one.
    assert block_length(np.array([1.0, 2.0] * 6)) == 1
    assert block_length(np.ones(12)) == 1


def test_the_effect_size_weighs_the_ranks_for_against_those_against() -> None:
    # Ratios 1.1 ... 1.5 and 1 / 1.05, the smallest change: ranks 2 + 3 + 4 + 5 + 6 = 20 above,
    # 1 below, 21 in all: 19 / 21.
    faster = paired_ratio([1.1, 1.2, 1.0, 1.3, 1.4, 1.5], [1, 1, 1.05, 1, 1, 1])
    assert faster.effect_size == pytest.approx(19 / 21)
    slower = paired_ratio([1.0] * 6, [2.0] * 6)
    assert slower.effect_size == -1.0
    equal = paired_ratio([1.0] * 6, [1.0] * 6)
    assert equal.effect_size == 0.0


def test_the_detectable_effect_is_2_8_standard_errors() -> None:
    # An interval from e^-0.0196 to e^0.0196 is 2 x 1.96 errors of 0.01 wide: e^0.02802 - 1.
    speedup = ratio(1.0, math.exp(-0.0196), math.exp(0.0196))
    assert speedup.detectable_effect == pytest.approx(0.028416, abs=1e-6)
    assert ratio(1.0, None, None).detectable_effect is None


def test_holm_multiplies_and_keeps_the_order() -> None:
    # Sorted 0.01, 0.03, 0.04, times 3, 2, 1: 0.03, 0.06, 0.04; no smaller than before: 0.06.
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    # Two tested: 0.2 x 2 = 0.4 and 0.9 x 1 = 0.9; the untested one does not count.
    assert holm([0.9, None, 0.2]) == [0.9, None, 0.4]
    # 0.7 x 2 = 1.4 is cut at 1, and 0.8 follows it.
    assert holm([0.7, 0.8]) == [1.0, 1.0]
    assert holm([None]) == [None]


def test_the_noise_floor_is_the_median_of_the_farther_ends_of_the_controls_intervals() -> None:
    assert noise_floor([ratio(1.0, 0.97, 1.01)]) == pytest.approx(0.03)
    for none in ([ratio(1.0, None, None)], [None], []):
        assert noise_floor(none) is None
    reaches = [ratio(1.0, 0.97, 1.01), ratio(1.0, 0.8, 1.01), None, ratio(1.0, 0.99, 1.04)]
    assert noise_floor(reaches) == pytest.approx(0.04)  # of 0.03, 0.2 and 0.04


@pytest.mark.parametrize(
    ("speedup", "p", "floor", "expected"),
    [
        (ratio(1.30, 1.25, 1.35), 0.01, None, "faster"),
        (ratio(0.70, 0.65, 0.75), 0.01, None, "slower"),
        # Not significant after correction.
        (ratio(1.30, 1.25, 1.35), 0.05, None, "unsure"),
        # The interval reaches 1.
        (ratio(1.30, 0.99, 1.60), 0.01, None, "unsure"),
        # Clearly above 1, but by less than the margin of 2 %; the interval lies inside of it.
        (ratio(1.010, 1.005, 1.015), 0.001, None, "same"),
        (ratio(0.990, 0.985, 0.995), 0.001, None, "same"),
        # 1 / 1.02 = 0.980: an interval down to 0.979 is not inside the margin.
        (ratio(0.990, 0.979, 1.000), 0.2, None, "unsure"),
        # The control differed by 10 %: 8 % faster is not told from noise.
        (ratio(1.08, 1.06, 1.09), 0.01, 0.10, "unsure"),
        # With 4 % of noise 3 % are the same; with 10 % of noise not even 0 % are.
        (ratio(1.03, 1.02, 1.035), 0.01, 0.04, "same"),
        (ratio(1.00, 0.99, 1.01), 0.9, 0.10, "unsure"),
        (ratio(1.12, 1.06, 1.20), 0.01, 0.10, "faster"),
        # 1 / 1.1 = 0.909
        (ratio(0.92, 0.90, 0.94), 0.01, 0.10, "unsure"),
        (ratio(0.90, 0.88, 0.95), 0.01, 0.10, "slower"),
    ],
)
def test_speed_verdicts(speedup: Ratio, p: float, floor: float | None, expected: str) -> None:
    assert speed_verdict(speedup, p, floor) == expected


def test_the_sign_test_is_that_of_the_library_for_every_split() -> None:
    from scipy.stats import binomtest

    for total in (1, 2, 5, 6, 17, 100, 999):
        for above in {0, 1, total // 3, total // 2, total - 1, total}:
            differences = np.array([1.0] * above + [-1.0] * (total - above))
            expected = binomtest(above, total).pvalue
            assert sign_test_p(differences) == pytest.approx(expected, rel=1e-12)
    assert sign_test_p(np.zeros(3)) == 1.0


@pytest.mark.parametrize("count", [6, 7, 99, 100])
@pytest.mark.parametrize("shape", ["independent", "neighbours alike", "few different values"])
def test_the_interval_is_that_of_the_medians_of_all_resamples(count: int, shape: str) -> None:
    """Written as the definition has it, without anything that makes it fast."""
    values = np.random.default_rng(count).normal(1, 0.1, count)
    values = np.sort(values) if shape == "neighbours alike" else values
    values = values.round(1) if shape == "few different values" else values
    length, random = block_length(values), np.random.default_rng(0)
    chunk = min(2000, 1_000_000 // count)
    medians = []
    for starts in random.integers(count, size=(chunk, math.ceil(count / length))):
        picked = [values[(start + after) % count] for start in starts for after in range(length)]
        medians.append(np.median(picked[:count]))
    assert chunk == 2000
    assert median_interval(values) == tuple(np.quantile(medians, [0.025, 0.975]))


def test_two_processes_are_two_observations() -> None:
    """Medians of 1 and 3 have the mean 2 with a standard error of 1. Student's t of one degree of
    freedom is Cauchy's distribution: p = 1 - 2 atan(2) / pi = 0.295."""
    values, processes = [1.0] * 6 + [3.0] * 6, [1] * 6 + [2] * 6
    assert intervals.p_of_processes(values, processes) == pytest.approx(
        1 - 2 * math.atan(2) / math.pi
    )
    assert intervals.p_of_processes(values[:6], processes[:6]) == 0.0


def test_a_process_with_few_rounds_counts_only_if_no_other_has_enough() -> None:
    assert intervals.middle([1.0] * 6 + [9.0], [1] * 6 + [2]) == 1.0
    assert intervals.middle([1.0, 5.0], [1, 2]) == 3.0


def test_the_interval_of_several_processes_is_as_wide_as_their_rounds_demand() -> None:
    """Two processes with equal medians: only the intervals of their rounds have a width."""
    rounds = [0.9, 1.1, 0.95, 1.05, 0.9, 1.1, 0.95, 1.05]
    low, high = median_interval(np.array(rounds))
    assert low is not None and high is not None
    usual, least, most = typical(rounds * 2, [1] * 8 + [2] * 8)
    half = (high - low) / 2 / math.sqrt(2)  # The error of a mean of two is smaller by the root.
    assert (usual, least, most) == pytest.approx((1.0, 1.0 - half, 1.0 + half))


@pytest.mark.parametrize("lacking", ["low", "high", "p"])
def test_a_speed_without_an_interval_had_too_few_rounds(lacking: str) -> None:
    complete = {"low": 0.9, "high": 1.2, "p": 0.5}
    assert speed_doubt(ratio(1.0, complete["low"], complete["high"]), complete["p"]) == "chance"
    given = complete | {lacking: None}
    assert speed_doubt(ratio(1.0, given["low"], given["high"]), given["p"]) == "few"


T_2 = 4.302653
"""Student's t with 2 degrees of freedom, 97.5 %, from a table."""
