"""Where a second measurement should come out: hand-worked numbers, and coverage where truth is
known."""

import math

import numpy as np
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


def test_95_percent_of_second_measurements_come_out_inside_and_fewer_in_the_first_ones_interval():
    """Two experiments of a baseline, a control and a backend, each of which strays by 1 %: the
    backend's speedup in the second one, seen from the first."""
    random = np.random.default_rng(0)
    baseline, control, backend = random.normal(0, 0.01, (3, 2, 4000))
    moved = np.diff(baseline - backend, axis=0)[0]
    inside = [
        abs(move) <= _half_width(one)
        for move, one in zip(moved, (baseline - control).T, strict=True)
    ]
    assert 0.95 <= np.mean(inside) < 0.99
    as_if_known = np.abs(moved) <= 1.96 * 0.01 * math.sqrt(2)
    assert np.mean(as_if_known) < 0.87, "an interval of 95 % around the first says too much"


def _half_width(differences: np.ndarray) -> float:
    spread = Spread.pooled([[0.0, difference] for difference in differences])
    return spread.half_width(4)
