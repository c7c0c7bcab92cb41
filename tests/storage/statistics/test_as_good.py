"""Verdicts about another training by its outcome, against intervals worked out by hand."""

import math
from collections.abc import Sequence

import pandas as pd
import pytest

from breakeven.runner.specs.values import Margin
from breakeven.storage.statistics.as_good import (
    Outcome,
    find_outcome,
    measures_another_loss,
    on_one_scale,
)
from breakeven.storage.statistics.outcomes import Trainings

PERCENT = Margin(0.01, is_share=True)
HALF_PERCENT = Margin(0.005, is_share=False)
NONE = pd.DataFrame({name: [] for name in ("loss", "accuracy", "num_samples")}, dtype=float)
UP = [2.01, 1.99] * 50
DOWN = [1.99, 2.01] * 50
"""Two equal trainings of 100 steps whose losses lie 0.01 beside their mean, in turns above and
below. In each window of ten steps the variance is 2 x 0.01^2, so the error of a mean is
0.01 x sqrt(2 / 10) = 0.00447; the means agree. The half width is 1.960 x 0.00447 x sqrt(1.5)."""
HALF_WIDTH = 0.010735


def trainings(
    own: Sequence[float],
    equals: Sequence[Sequence[float]] = (UP, DOWN),
    evaluations: Sequence[pd.DataFrame] = (),
) -> Trainings:
    *of_equals, of_own = evaluations or [NONE] * (len(equals) + 1)
    return Trainings(
        equals=[
            (pd.Series(losses), frame) for losses, frame in zip(equals, of_equals, strict=True)
        ],
        losses=pd.Series(list(own)),
        evaluations=of_own,
        samples_per_step=8,
        learned=None,
        learned_accuracy=None,
    )


def evaluated(step: int, **values: float) -> pd.DataFrame:
    usual = {"loss": math.nan, "accuracy": math.nan, "num_samples": math.nan}
    return pd.DataFrame([{**usual, **values}], index=[step])


def outcome_of(judged: Trainings, margin: Margin = PERCENT, num_steps: int = 100) -> Outcome:
    outcome = find_outcome(judged, margin, num_steps)
    assert outcome is not None
    return outcome


@pytest.mark.parametrize(
    ("excess", "verdict"),
    [
        (0.0, "as good"),
        (0.009, "as good"),  # at most 0.0197, of a margin of 0.02
        (0.0095, "not decided"),  # perhaps 0.0202
        (0.0195, "not decided"),  # surely above 0, but not above the margin
        (0.021, "worse"),
        (-0.009, "as good"),
        (-0.021, "not decided"),  # A lower training loss alone shows no better training.
        (math.nan, "worse"),
        (15.0, "worse"),
    ],
)
def test_a_loss_at_the_end_is_judged_by_interval_and_margin(excess: float, verdict: str) -> None:
    outcome = outcome_of(trainings([2.0 + excess] * 100))
    assert (outcome.quantity, outcome.step) == ("loss", 100)
    assert (outcome.expected, outcome.margin) == (pytest.approx(2.0), pytest.approx(0.02))
    assert outcome.interval == pytest.approx(HALF_WIDTH, rel=1e-3)
    assert outcome.verdict == verdict
    assert outcome.is_too_low == (excess == -0.021)


def test_a_training_that_varies_more_than_equal_ones_has_a_wider_interval() -> None:
    """Its last ten losses lie 0.05 beside the mean: 0.05 x sqrt(10 / 9) / sqrt(10) = 0.01667 is
    3.727 times 0.00447."""
    outcome = outcome_of(trainings([2.05, 1.95] * 50))
    assert outcome.interval == pytest.approx(3.727 * HALF_WIDTH, rel=1e-3)
    assert outcome.verdict == "not decided"


def test_trainings_that_end_apart_decide_nothing_about_one_between_them() -> None:
    """The means of the two are 0.1 apart in all windows, which count as one: 12.7 x 0.1 / sqrt(2)
    x sqrt(1.5) is the half width."""
    higher = [loss + 0.1 for loss in DOWN]
    outcome = outcome_of(trainings([2.15] * 100, [UP, higher]))
    assert outcome.interval == pytest.approx(12.706 * 0.1 / math.sqrt(2) * math.sqrt(1.5), rel=0.01)
    assert outcome.verdict == "not decided"
    assert outcome_of(trainings(UP, [UP, higher])).excess == 0, "the baseline's training, exactly"


def test_without_a_control_there_is_no_outcome() -> None:
    assert find_outcome(trainings(UP, [UP]), PERCENT, 100) is None


@pytest.mark.parametrize(
    ("accuracy", "verdict"),
    # sqrt(0.94 x 0.06 / 40,000) = 0.001187; 1.960 x sqrt(1.5) times this is 0.00285.
    [
        (0.94, "as good"),
        (0.9383, "as good"),
        (0.9375, "not decided"),  # perhaps lower by 0.00535
        (0.9340, "worse"),
        (0.9460, "better"),
    ],
)
def test_a_number_is_a_margin_of_accuracy(accuracy: float, verdict: str) -> None:
    equal = evaluated(100, accuracy=0.94, num_samples=40_000)
    own = evaluated(100, accuracy=accuracy, num_samples=40_000)
    outcome = outcome_of(trainings(UP, evaluations=[equal, equal, own]), HALF_PERCENT)
    assert (outcome.quantity, outcome.verdict) == ("accuracy", verdict)
    assert outcome.interval == pytest.approx(0.00285, rel=0.01)


def test_a_share_is_a_margin_of_the_evaluated_loss_also_without_a_number_of_samples() -> None:
    """The evaluations of two equal trainings differ by 0.001: Student's t of one degree of freedom
    times 0.001 / sqrt(2) x sqrt(1.5) is 0.0156; that of the training loss is narrower."""
    first, second = evaluated(100, loss=1.0), evaluated(100, loss=1.001)
    own = evaluated(100, loss=1.02)
    outcome = outcome_of(trainings(UP, evaluations=[first, second, own]))
    assert (outcome.quantity, outcome.verdict) == ("evaluation loss", "worse")
    assert outcome.interval == pytest.approx(12.706 * 0.001 * math.sqrt(0.75), rel=1e-3)
    assert outcome.margin == pytest.approx(0.010005)


def test_an_evaluation_long_before_the_end_is_not_the_outcome() -> None:
    early = [evaluated(90, loss=1.0), evaluated(90, loss=1.001), evaluated(90, loss=1.0)]
    assert outcome_of(trainings([2.0] * 100, evaluations=early)).quantity == "loss"


def test_losses_are_compared_after_as_many_samples() -> None:
    baseline = pd.Series([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    (equal,), own = on_one_scale(baseline, [], pd.Series([1.0, 3.0, math.nan]), 2.0)
    assert equal.to_dict() == {0: 1.5, 2: 3.5, 4: 5.5}
    assert own.loc[:2].to_dict() == {0: 1.0, 2: 3.0} and math.isnan(own.loc[4])
    (equal,), own = on_one_scale(baseline, [], pd.Series([2.0, 4.0, 6.0, 8.0]), 0.5)
    assert equal.equals(baseline)
    assert own.to_dict() == {0: 3.0, 1: 7.0}


@pytest.mark.parametrize(
    ("first", "differs"), [(3.9, False), (3.7, True), (2.0, True), (4.3, True), (math.nan, False)]
)
def test_another_first_loss_is_another_measure_of_loss(first: float, differs: bool) -> None:
    """A twentieth of 4 is 0.2; the first losses of the baseline hardly vary."""
    falls = [4.0, 3.99, 3.98, 3.97, 3.96] + [2.0] * 95
    values = measures_another_loss(trainings([first, *falls[1:]], [falls, falls]))
    assert values == ((first, 4.0) if differs else None)
