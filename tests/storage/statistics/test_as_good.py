"""Verdicts about another training by its outcome, against intervals worked out by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import pytest

from breakeven.runner.specs.values import Margin
from breakeven.storage.statistics.as_good import (
    Outcome,
    find_outcome,
    first_losses,
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
        (0.021, "not decided"),  # worse than both, but other equal trainings may end there
        (-0.009, "as good"),
        (-0.021, "not decided"),  # A lower training loss alone shows no better training.
        (math.nan, "worse"),
        (15.0, "not decided"),  # It is not known what was learned.
    ],
)
def test_a_loss_at_the_end_is_judged_by_interval_and_margin(excess: float, verdict: str) -> None:
    outcome = outcome_of(trainings([2.0 + excess] * 100))
    assert (outcome.quantity, outcome.step, outcome.num_controls) == ("loss", 100, 1)
    assert (outcome.expected, outcome.margin) == (pytest.approx(2.0), pytest.approx(0.02))
    assert outcome.interval == pytest.approx(HALF_WIDTH, rel=1e-3)
    assert outcome.verdict == verdict
    assert outcome.is_too_low == (excess == -0.021)
    assert outcome.seems_worse == (excess > 0.0205 or math.isnan(excess))


def test_arms_that_are_judged_together_share_the_chance_of_an_error() -> None:
    """Of twenty, each has 1 - 0.05 / 20: 3.023 standard errors instead of 1.960."""
    outcome = outcome_of(replace(trainings([2.009] * 100), num_judged=20))
    assert outcome.interval == pytest.approx(HALF_WIDTH * 3.0233 / 1.9600, rel=1e-3)
    assert outcome.high > outcome.margin and outcome.verdict == "not decided"


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


@pytest.mark.parametrize(
    ("num_controls", "excess", "verdict"),
    [
        # The margin is 0.02. With six controls z x 0.00447 x sqrt(8 / 7) is about 0.0096.
        (5, 0.03, "not decided"),
        (6, 0.03, "worse"),
        (6, 0.019, "not decided"),
    ],
)
def test_an_arm_is_worse_if_none_of_six_controls_ends_like_it(
    num_controls: int, excess: float, verdict: str
) -> None:
    equals = [UP, DOWN] * 4
    outcome = outcome_of(trainings([2.0 + excess] * 100, equals[: num_controls + 1]))
    assert (outcome.verdict, outcome.num_controls) == (verdict, num_controls)


@pytest.mark.parametrize(("excess", "verdict"), [(1.9, "not decided"), (2.1, "worse")])
def test_a_loss_above_twice_what_was_learned_is_worse_beside_a_single_control(
    excess: float, verdict: str
) -> None:
    judged = replace(trainings([2.0 + excess] * 100), learned=1.0)
    assert outcome_of(judged).verdict == verdict


def test_an_error_of_its_own_grows_with_the_likeness_of_neighbours() -> None:
    """Ten differences of 0.05 in turns of five: their sum of squares is 0.025, that of neighbours
    (8 - 1) x 0.0025, so r = 0.7, and the error 0.01667 x sqrt(1.7 / 0.3)."""
    outcome = outcome_of(trainings([*[2.0] * 90, *[2.05] * 5, *[1.95] * 5]))
    assert outcome.interval == pytest.approx(
        1.96 * 0.016667 * math.sqrt(1.7 / 0.3) * math.sqrt(1.5), rel=0.05
    )


def test_without_a_control_there_is_no_outcome() -> None:
    assert find_outcome(trainings(UP, [UP]), PERCENT, 100) is None


@pytest.mark.parametrize(
    ("accuracy", "verdict"),
    # sqrt(0.94 x 0.06 / 40,000) = 0.001187; 1.960 x sqrt(1.5) times this is 0.00285.
    [
        (0.94, "as good"),
        (0.9383, "as good"),
        (0.9375, "not decided"),  # perhaps lower by 0.00535
        (0.9340, "not decided"),  # seems worse, beside a single control
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
    assert (outcome.quantity, outcome.verdict) == ("evaluation loss", "not decided")
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
    known = first_losses(trainings([first, *falls[1:]], [falls, falls]))
    assert known is not None
    assert (known.is_of_another_measure, known.expected) == (differs, 4.0)


@pytest.mark.parametrize(("first", "differs"), [(4.00007, False), (3.99993, False), (3.9999, True)])
def test_another_first_loss_is_that_of_another_function(first: float, differs: bool) -> None:
    """Two hundred-thousandths of 4 are 0.00008."""
    falls = [4.0, *[2.0] * 99]
    known = first_losses(trainings([first, *falls[1:]], [falls, falls]))
    assert known is not None and known.is_of_another_function == differs
