"""The steps to a common loss, by hand: losses fall in straight lines, so that the mean of a window
is the loss in its middle."""

import math
from collections.abc import Callable

import pandas as pd
import pytest

from benchmarks.losses.outcomes import NO_EVALUATIONS
from breakeven.runner.specs.values import Margin
from breakeven.storage.statistics.as_good import outcome_of_losses
from breakeven.storage.statistics.outcomes import Trainings
from breakeven.storage.statistics.steps_to_loss import StepsToLoss, find_steps_to_loss

STEPS = 200
TENTH = 20
"""A window."""


def falls(step: int) -> float:
    """From 4 to 2."""
    return 4 - step / 100


def alternates(step: int) -> float:
    return 0.1 * (-1) ** (step // 3)


def steps_of(
    own: Callable[[int], float], noise: Callable[[int], float] = lambda step: 0.0
) -> StepsToLoss | None:
    """With a margin of 0.1; `noise`: that all trainings share, as they see the same samples."""
    equals = pd.Series([falls(step) + noise(step) for step in range(STEPS)])
    given = Trainings(
        equals=[(equals, NO_EVALUATIONS), (equals, NO_EVALUATIONS)],
        losses=pd.Series([own(step) + noise(step) for step in range(STEPS)]),
        evaluations=NO_EVALUATIONS,
        samples_per_step=1,
        learned=2.0,
        learned_accuracy=None,
    )
    by_loss = outcome_of_losses(given, Margin(0.1, is_share=False))
    assert by_loss is not None
    return find_steps_to_loss(given, by_loss)


def test_a_training_that_learns_twice_as_fast_needs_half_of_the_steps() -> None:
    """The baseline's last window has a mean of 2.105. The difference grows by 0.01 a step: in a
    window its squares sum to 665 x 0.01^2, and r = 0.85, so that its error is 0.0464 and the half
    width 1.96 x 0.0464 x sqrt(1.5) = 0.111. With the margin this is 2.316, rounded up to 2.32."""
    steps = steps_of(lambda step: 4 - step / 50)
    assert steps is not None and steps.loss == 2.32
    assert steps.expected == pytest.approx(168, abs=1)
    assert steps.steps == pytest.approx(84, abs=1)
    # At 0.02 a step 0.111 takes 5.6 steps, and the margin 5 more.
    assert (steps.low, steps.high) == pytest.approx((78.4, 89.6), abs=1.5)
    assert steps.surely == pytest.approx(94.6, abs=1.5)


@pytest.mark.parametrize("lower", [0.0, 0.05, 0.09])
def test_losses_that_are_lower_by_less_than_the_margin_are_reached_no_sooner(lower: float) -> None:
    steps = steps_of(lambda step: falls(step) - lower)
    assert steps is not None and steps.steps < steps.expected + 1 <= steps.surely + 1


def test_a_dip_reaches_nothing() -> None:
    dips = steps_of(lambda step: falls(step) - 2 * (60 <= step < 60 + 2 * TENTH))
    assert dips is not None and dips.steps >= dips.expected
    at_the_end = steps_of(lambda step: falls(step) - 0.5 * (step >= STEPS - TENTH))
    assert at_the_end is not None and at_the_end.steps > STEPS - 2 * TENTH


def test_noise_that_all_trainings_share_at_a_step_makes_the_interval_wider() -> None:
    own = steps_of(lambda step: 4 - step / 50, alternates)
    assert own is not None and own.low < own.steps - 1 and own.high > own.steps + 1


@pytest.mark.parametrize(
    "own",
    [
        lambda step: 4.0,  # It reaches nothing below its start.
        lambda step: math.nan,
        lambda step: 1.0,  # It is below from the start.
    ],
)
def test_a_loss_that_is_not_reached_on_the_way_has_no_time(own: Callable[[int], float]) -> None:
    assert steps_of(own) is None
