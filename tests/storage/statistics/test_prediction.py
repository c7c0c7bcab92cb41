"""Where a second measurement should come out: hand-worked numbers, and coverage where truth is
known."""

import pytest

from breakeven.storage.statistics.intervals import Spread

T_2 = 4.302653
"""Student's t with 2 degrees of freedom, 97.5 %, from a table."""


def test_the_spread_of_groups_is_pooled_about_the_mean_of_each():
    # About their means: 1 + 1, and 4 + 0 + 4; freedom 1 + 2.
    spread = Spread.pooled([[1.0, 3.0], [10.0, 12.0, 14.0], [99.0]])
    assert spread == Spread(variance=10 / 3, freedom=3)


@pytest.mark.parametrize("groups", [[], [[]], [[1.0], [2.0]]])
def test_of_single_values_no_spread_is_known(groups: list[list[float]]):
    assert Spread.pooled(groups) is None


def test_the_half_width_is_students_t_times_the_root_of_so_many_variances():
    assert Spread(variance=0.25, freedom=2).half_width(4) == pytest.approx(T_2 * 1.0)
    assert Spread(variance=0.0, freedom=2).half_width(4) == 0.0
