"""Steps that differ by their random numbers alone: which of them were compiled cannot be told."""

import math
from itertools import combinations

import pytest

from breakeven.runner.specs.training import Precision
from breakeven.storage.statistics.random_numbers import RedrawFault, find_redraw_fault


def pairs(values: list[float]) -> list[float]:
    """Squared distances of changes of one number, as a journal has them."""
    return [(one - other) ** 2 for one, other in combinations(values, 2)]


def fault_of(
    eager: list[float],
    compiled: list[float],
    precision: Precision = "float32",
    beside: list[float] | None = None,
) -> RedrawFault | None:
    """Of a parameter `w`, and of `beside`, which both kinds changed alike."""
    distances, changes = {"w": pairs([*eager, *compiled])}, {"w": 1.0}
    if beside is not None:
        distances["beside"], changes["beside"] = pairs([*beside, *beside]), 1.0
    return find_redraw_fault(distances, changes, precision)


EVEN = [-4.0, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.0]


def test_draws_that_nothing_tells_apart_show_no_fault() -> None:
    assert fault_of(EVEN, EVEN) is None
    assert fault_of(EVEN, [one + 0.1 for one in EVEN]) is None


def test_another_direction_is_found_with_its_distance() -> None:
    found = fault_of(EVEN, [one + 100 for one in EVEN])
    # Pairs of EVEN lie 2 x 60 / 7 apart in the mean square, and pairs of both kinds
    # 100^2 + 2 x 60 / 8.
    within, between = 120 / 7, 10_000 + 15
    assert found is not None and found.what == "direction" and found.tensor is None
    assert found.size == pytest.approx(math.sqrt((between - within) / within))
    assert found.num_divisions == 6435  # C(16, 8) / 2


def test_draws_that_stray_further_are_found_with_their_ratio() -> None:
    found = fault_of(EVEN, [10 * one for one in EVEN])
    assert found is not None and found.what == "size"
    assert found.size == pytest.approx(10)


def test_one_parameter_stands_out_among_many_that_do_not() -> None:
    large = [1000 * one for one in EVEN]
    found = fault_of(EVEN, [one + 100 for one in EVEN], beside=large)
    assert found is not None and found.tensor == "w"


def test_what_rounding_makes_of_a_change_is_no_fault() -> None:
    eager, compiled = [1.0] * 8, [1.005] * 8
    assert fault_of(eager, compiled, "bf16") is None  # within 2 % of a change of 1
    found = fault_of(eager, compiled, "float32")  # beyond 0.1 %
    assert found is not None and found.what == "direction"


def test_of_many_draws_some_divisions_are_enough() -> None:
    even = [*EVEN, -6.0, -5.0, 5.0, 6.0]
    found = fault_of(even, [one + 100 for one in even])  # C(24, 12) / 2 = 1,352,078 ways
    assert found is not None and found.num_divisions == 10_000


@pytest.mark.parametrize("values", [[0.0, 100.0], [0.0, 1.0, 100.0, 101.0], [math.nan] * 16])
def test_too_little_or_nothing_finite_says_nothing(values: list[float]) -> None:
    assert find_redraw_fault({"w": pairs(values)}, {"w": 1.0}, "float32") is None
    assert find_redraw_fault({"w": [1.0] * 7}, {"w": 1.0}, "float32") is None
    assert find_redraw_fault({}, {}, "float32") is None
