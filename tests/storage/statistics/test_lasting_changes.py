"""Where a series came to stay at another level, and where it only looks as if it had."""

import math

import numpy as np
import pytest

from breakeven.storage.statistics import lasting_changes
from breakeven.storage.statistics.lasting_changes import FEWEST, NUM_PERMUTATIONS, divide

NOISE = (0.99, 1.01, 1.0, 1.02, 0.98, 1.01, 0.99, 1.0)


def test_a_series_that_comes_to_stay_a_tenth_lower_has_one_step_where_it_does() -> None:
    levels, (step,) = divide([*NOISE, *(0.9 * value for value in NOISE)])
    assert (step.index, step.before, step.after) == (8, *levels)
    assert step.ratio == pytest.approx(0.9)
    low, high = step.ratio_interval
    assert 0.88 < low < 0.9 < high < 0.92
    # No other place, and hardly an order among all those drawn, divides it as clearly.
    assert step.p_value < 5 / (1 + NUM_PERMUTATIONS)


def test_of_fewer_values_than_the_fewest_no_step_is_told_however_clear_it_is() -> None:
    def stretches(count: int) -> list[list[float]]:
        """Series whose values from one place to another are five times as large."""
        return [
            [(5.0 if first <= place < end else 1.0) * NOISE[place % 8] for place in range(count)]
            for first in range(count)
            for end in range(first + 1, count + 1)
        ]

    assert not any(divide(values)[1] for count in range(FEWEST) for values in stretches(count))
    assert any(divide(values)[1] for values in stretches(FEWEST))


def test_the_interval_of_a_step_is_that_of_welch_and_equal_values_share_their_rank() -> None:
    """As scipy has both, to the last digit; all of its statistics would take 60 MB of memory."""
    from scipy import stats  # half a second, in whatever process collects this file

    _, (step,) = divide([*NOISE, *(0.9 * value for value in NOISE[:5])])
    logs = step.after.logs, step.before.logs
    known = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    assert step.ratio_interval == (math.exp(known.low), math.exp(known.high))


def test_each_of_two_steps_is_found_also_when_the_series_comes_back() -> None:
    values = [*NOISE, *(1.3 * value for value in NOISE), *NOISE]
    levels, steps = divide(values)
    assert [step.index for step in steps] == [8, 16]
    assert [(level.first, level.last) for level in levels] == [(0, 7), (8, 15), (16, 23)]
    assert [step.ratio for step in steps] == pytest.approx([1.3, 1 / 1.3])


def test_one_value_that_stands_out_is_no_step_but_is_not_expected() -> None:
    _, steps = divide([*NOISE, 1.8, *NOISE])
    assert not steps
    (level,), _ = divide(NOISE)
    # Geometric mean 1.0, deviation of the logarithms 0.0131, t of 99 % with 7 degrees 3.499:
    # 3.499 x 0.0131 x sqrt(1 + 1/8) = 0.0486
    assert level.expects(1.045) and level.expects(0.957)
    assert not level.expects(1.055) and not level.expects(0.945)


def test_two_values_at_the_end_are_a_step_once_enough_came_before() -> None:
    """Of n values in random order the two that stand out are the last or first two with the chance
    4 / (n (n - 1)), half of the 0.01 that are allowed from n = 29 on."""
    noise = np.exp(0.01 * np.random.default_rng(1).normal(size=40))
    assert divide([*noise[:22], 0.5, 0.5])[1] == []
    (step,) = divide([*noise, 0.5, 0.5])[1]
    assert step.index == 40


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [1.0, 2.0, 3.0], [2.0] * 50])
def test_what_is_too_short_or_never_changes_has_no_step(values: list[float]) -> None:
    levels, steps = divide(values)
    assert steps == [] and len(levels) == 1 if values else levels[0].logs == ()


def test_without_noise_a_step_has_an_exact_ratio() -> None:
    _, (step,) = divide([2.0] * 10 + [1.0] * 10)
    assert (step.index, step.ratio, step.ratio_interval) == (10, 0.5, (0.5, 0.5))


def test_a_slide_and_stairs_are_steps_too_however_much_they_make_neighbours_alike() -> None:
    """Sixty nights, each half a percent below the one before; and a stair of 1.9 % every twelve."""
    noise = np.random.default_rng(5).normal(size=60)
    nights = np.arange(60)
    slide, _ = divide(np.exp(0.01 * noise - 0.005 * nights).tolist())
    assert slide[-1].value / slide[0].value < 0.85, "of 0.74 that it comes to in all"
    stairs, steps = divide(np.exp(0.004 * noise - 0.019 * (nights // 12)).tolist())
    assert stairs[-1].value / stairs[0].value == pytest.approx(np.exp(-4 * 0.019), abs=0.01)
    assert len(steps) >= 3


def test_of_a_long_series_only_the_newest_part_has_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies further back than is looked at must not be taken for the level that came then."""
    monkeypatch.setattr(lasting_changes, "MAX_VALUES", 40)
    (level,), steps = divide([*[2.0] * 40, *[1.0, 1.01] * 20])
    assert (level.first, level.last, steps) == (40, 79, [])


def rate_of_alarms(correlation: float, count: int, num_series: int) -> float:
    """Share of series without a step, each value so much like the one before, that get one."""
    random = np.random.default_rng(3)
    alarms = 0
    for _ in range(num_series):
        noise = random.normal(size=count)
        for number in range(1, count):
            noise[number] += correlation * noise[number - 1]
        alarms += bool(divide(np.exp(0.01 * noise))[1])
    return alarms / num_series


@pytest.mark.slow
@pytest.mark.heavy  # 150 simulated series: seconds
def test_series_without_a_step_seldom_get_one_also_where_neighbours_are_alike() -> None:
    """1 % are meant: of 100 at most 4 with 99.6 % chance. With neighbours alike it is a bit more
    (docs/decisions.md), and some 40 % if they changed places one by one."""
    assert rate_of_alarms(0.0, 30, 100) <= 4 / 100
    assert rate_of_alarms(0.6, 60, 50) <= 8 / 50
