"""When a trial is decided."""

import pytest

from breakeven.runner.worker.auto.trial import Trial


def trial(*ratios: float, budget: float = 1e9) -> Trial:
    made = Trial(budget)
    for ratio in ratios:
        made.add(1.0, ratio, 5)
    return made


def test_eight_pairs_in_a_row_are_sure() -> None:
    # A stake after n wins of n is (2^(n+1) - 1) / (n + 1): 31.9 after 7, 56.8 after 8; 40 decide.
    assert trial(*[0.9] * 7).decision() is None
    assert trial(*[0.9] * 8).decision() == "compiled"
    assert trial(*[1.1] * 8).decision() == "uncompiled"


def test_a_gain_below_a_percent_is_none() -> None:
    assert trial(*[0.995] * 8).decision() == "uncompiled"


@pytest.mark.parametrize(("ratio", "way"), [(0.9, "compiled"), (0.995, "uncompiled")])
def test_a_spent_budget_decides_by_the_median_of_three_pairs_at_least(
    ratio: float, way: str
) -> None:
    assert trial(ratio, ratio, budget=1.0).decision() is None
    assert trial(ratio, 2.0, ratio, budget=1.0).decision() == way
