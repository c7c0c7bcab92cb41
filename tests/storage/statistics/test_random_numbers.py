"""Random numbers of a backend: dropout that was tried on 100,000 ones, of which a tenth is to be
dropped; and steps that differ by their draws alone: which of them were compiled cannot be told."""

import math
from itertools import combinations
from typing import Any

import pytest

from breakeven.runner.specs.training import Precision
from breakeven.storage.statistics.random_numbers import find_dropout_faults, find_redraw_fault


def drawn(share: float = 0.1, scale: float = 1 / 0.9, number: int = 0, **changes: Any) -> Any:
    """What a dropout did that lets through `scale` for each one that it keeps."""
    tried = 100_000
    kept = tried - round(tried * share)
    row = {
        "number": number,
        "operation": "dropout",
        "p": 0.1,
        "tried": tried,
        "zeros": tried - kept,
        "sum": kept * scale,
        "squares": kept * scale**2,
        "backward": kept * scale**2,
    }
    return {**row, **changes}


@pytest.mark.parametrize(
    ("compiled", "what", "value", "expected"),
    [
        (drawn(0.2, 1 / 0.8), "share", 0.2, 0.1),
        (drawn(scale=1.0), "scale", 0.9, 1.0),
        # The standard error of the difference is sqrt(2 x (0.9 / 0.81 - 1) / 100,000) = 0.0015.
        (drawn(scale=0.98 / 0.9), "scale", 0.98, 1.0),
        (drawn(sum=math.nan, squares=math.nan), "scale", math.nan, 1.0),
        # Of the 90,000 that forward kept backward keeps 81,000.
        (drawn(backward=81_000 / 0.81), "backward", 0.9, 1.0),
    ],
)
def test_a_wrong_dropout_is_found(compiled: Any, what: str, value: float, expected: float) -> None:
    (fault,) = find_dropout_faults([drawn()], [compiled])
    assert (fault.what, fault.number, fault.num_dropouts, fault.p) == (what, 0, 1, 0.1)
    assert (fault.value, fault.expected) == pytest.approx((value, expected), nan_ok=True)


NOTHING = drawn(tried=0, zeros=0, sum=0.0, squares=0.0, backward=0.0)
FEW = {"tried": 20, "zeros": 2, "sum": 20.0, "squares": 22.2, "backward": 22.2}
MORE = {"tried": 20, "zeros": 4, "sum": 20.0, "squares": 25.0, "backward": 25.0}


@pytest.mark.parametrize(
    ("eager", "compiled"),
    [
        # The standard error of the difference is sqrt(2 x 0.09 / 100,000) = 0.0013.
        (drawn(), drawn(0.103)),
        # 4 of 20 for 2 of 20 lie within five standard errors of sqrt(2 x 0.15 x 0.85 / 20).
        (drawn(**FEW), drawn(**MORE)),
        # Tried on one side alone.
        (drawn(number=1), drawn(0.5)),
        (NOTHING, NOTHING),
    ],
)
def test_what_chance_explains_is_no_wrong_dropout(eager: Any, compiled: Any) -> None:
    assert find_dropout_faults([eager], [compiled]) == []


def test_the_one_dropout_of_several_that_is_wrong_is_named() -> None:
    right = [drawn(number=0), drawn(number=1), drawn(number=2)]
    (fault,) = find_dropout_faults(right, [right[0], drawn(0.2, 1 / 0.8, number=1), right[2]])
    assert (fault.number, fault.num_dropouts) == (1, 3)


def test_attention_that_decides_for_four_queries_at_once_strays_twice_as_far_by_chance() -> None:
    # Seen on an H100 of a correct backend, in bf16: 6,528 zeros of 61,440 for 5,936. As independent
    # numbers their means would differ by 5.1 standard errors of sqrt(2 x 0.111 / 61,440) = 0.0019.
    def attention(zeros: int) -> Any:
        kept, scale = 61_440 - zeros, 1 / 0.9
        return drawn(
            operation="attention",
            tried=61_440,
            zeros=zeros,
            sum=kept * scale,
            squares=kept * scale**2,
            backward=kept * scale**2,
        )

    assert find_dropout_faults([attention(5_936)], [attention(6_528)]) == []
    # A fifth more is dropped: by 0.02, where chance explains 5 x sqrt(2 x 0.09 x 4 / 61,440).
    (fault,) = find_dropout_faults([attention(6_144)], [attention(7_373)])
    assert fault.what == "share" and fault.value == pytest.approx(0.12, abs=1e-4)


def pairs(values: list[float]) -> list[float]:
    """Squared distances of changes of one number, as a journal has them."""
    return [(value - other) ** 2 for value, other in combinations(values, 2)]


def fault_of(
    eager: list[float],
    compiled: list[float],
    precision: Precision = "float32",
    beside: list[float] | None = None,
) -> Any:
    """Of a parameter `w`, and of `beside`, which both kinds changed alike."""
    distances, changes = {"w": pairs([*eager, *compiled])}, {"w": 1.0}
    if beside is not None:
        distances["beside"], changes["beside"] = pairs([*beside, *beside]), 1.0
    return find_redraw_fault(distances, changes, precision)


EVEN = [-4.0, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.0]


def test_another_direction_and_another_size_are_found_with_how_far_they_go() -> None:
    assert fault_of(EVEN, EVEN) is None
    assert fault_of(EVEN, [value + 0.1 for value in EVEN]) is None
    fault = fault_of(EVEN, [value + 100 for value in EVEN])
    # Pairs of EVEN lie 2 x 60 / 7 apart in the mean square, and pairs of both kinds
    # 100^2 + 2 x 60 / 8.
    within, between = 120 / 7, 10_000 + 15
    assert (fault.what, fault.tensor) == ("direction", None)
    assert fault.size == pytest.approx(math.sqrt((between - within) / within))
    assert fault.num_divisions == 6435  # C(16, 8) / 2
    fault = fault_of(EVEN, [10 * value for value in EVEN])
    assert (fault.what, fault.size) == ("size", pytest.approx(10))


def test_one_parameter_stands_out_among_many_that_do_not() -> None:
    large = [1000 * value for value in EVEN]
    fault = fault_of(EVEN, [value + 100 for value in EVEN], beside=large)
    assert fault.tensor == "w"


def test_what_rounding_makes_of_a_change_is_no_fault() -> None:
    eager, compiled = [1.0] * 8, [1.005] * 8
    assert fault_of(eager, compiled, "bf16") is None  # within 2 % of a change of 1
    fault = fault_of(eager, compiled, "float32")  # beyond 0.1 %
    assert fault.what == "direction"


def test_of_many_draws_some_divisions_are_enough() -> None:
    even = [*EVEN, -6.0, -5.0, 5.0, 6.0]
    fault = fault_of(even, [value + 100 for value in even])  # C(24, 12) / 2 = 1,352,078 ways
    assert fault.num_divisions == 10_000


def test_parameters_that_were_not_drawn_as_often_are_not_compared() -> None:
    """Of one there are eight draws of each kind, of the other one less."""
    often, less = [*EVEN, *(value + 100 for value in EVEN)], [*EVEN[1:], *EVEN[1:]]
    assert find_redraw_fault({"w": pairs(often)}, {"w": 1.0}, "float32") is not None
    distances = {"w": pairs(often), "v": pairs(less)}
    assert find_redraw_fault(distances, {"w": 1.0, "v": 1.0}, "float32") is None


@pytest.mark.parametrize("values", [[0.0, 100.0], [0.0, 1.0, 100.0, 101.0], [math.nan] * 16])
def test_too_little_or_nothing_finite_says_nothing(values: list[float]) -> None:
    assert find_redraw_fault({"w": pairs(values)}, {"w": 1.0}, "float32") is None
    assert find_redraw_fault({"w": [1.0] * 7}, {"w": 1.0}, "float32") is None
    assert find_redraw_fault({}, {}, "float32") is None
