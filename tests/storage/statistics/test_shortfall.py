"""When a training ended materially worse than equal ones, against limits worked out by hand."""

import math
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from breakeven.storage.comparison.shortfall import find_shortfall

LEARNS = [2.0] * 25 + [1.0] * 20
"""A loss that falls by 1; a training has 5 more steps, by which its end is judged."""
QUIET = [1.0] * 5
RESTLESS = [1.1, 0.9, 1.1, 0.9, 1.0]
"""Neighbours differ by 0.2, 0.2, 0.2 and 0.1, so the mean's error is sqrt(0.0325 / 2 / 5) = 0.057,
and three of these are 0.171."""


def training(end: list[float], **last_evaluation: float) -> Any:
    """What is read of a training that ends with these losses."""
    evaluations = pd.DataFrame([last_evaluation], index=[50]) if last_evaluation else pd.DataFrame()
    return SimpleNamespace(
        learning=SimpleNamespace(
            losses=pd.Series(LEARNS + end),
            evaluations=evaluations.reindex(columns=["accuracy", "loss"]),
        ),
        batch_times=1,
        workload={"majority_share": 0.5},
        last_evaluation=last_evaluation.get,
    )


@pytest.mark.parametrize(
    ("baseline", "control", "limit"),
    [
        (QUIET, QUIET, 1.05),  # a twentieth of what was learned
        (RESTLESS, QUIET, 1.171),
        (QUIET, RESTLESS, 1.05),  # a control has no part in the noise
        # The mean is 1.02, and each of the two is 0.04 from the other: 2.5 times that is 0.1.
        (QUIET, [1.04] * 5, 1.12),
    ],
)
def test_a_loss_at_the_end_is_worse_beyond_noise_spread_and_a_share_of_what_was_learned(
    baseline: list[float], control: list[float], limit: float
) -> None:
    def ends_at(loss: float) -> Any:
        return find_shortfall(training(baseline), [training(control)], training([loss] * 5))

    assert ends_at(limit - 0.005) is None
    worse = ends_at(limit + 0.005)
    assert worse.quantity == "final_loss" and worse.value == pytest.approx(limit + 0.005)
    assert math.isnan(ends_at(math.nan).value), "a training that diverged"


@pytest.mark.parametrize(
    ("further", "limit"),
    [
        ({}, 0.725),  # a quarter of the 0.3 above guessing
        # (0.8 x 98 + 1) / 100 = 0.794; 3 x sqrt(2 x 0.794 x 0.206 / 98) = 0.173
        ({"num_samples": 98.0}, 0.627),
    ],
)
def test_an_accuracy_is_worse_beyond_its_own_noise(further: dict[str, float], limit: float) -> None:
    equal = training(QUIET, accuracy=0.8, **further)

    def reaches(accuracy: float) -> Any:
        return find_shortfall(equal, [equal], training(QUIET, accuracy=accuracy, **further))

    assert reaches(limit + 0.005) is None
    assert (reaches(limit - 0.005).quantity, reaches(limit - 0.005).expected) == ("accuracy", 0.8)


def test_the_loss_of_an_evaluation_is_worse_from_a_twentieth_of_what_was_learned() -> None:
    equal = training(QUIET, loss=1.0)
    assert find_shortfall(equal, [equal], training(QUIET, loss=1.045)) is None
    worse = find_shortfall(equal, [equal], training(QUIET, loss=1.055))
    assert worse is not None and worse.quantity == "eval_loss"


def test_a_training_of_one_step_is_worse_by_its_only_loss() -> None:
    """One loss shows no noise, and nothing was learned: a twentieth of the loss of 2 is 0.1."""

    def lost(loss: float) -> Any:
        run = training([])
        run.learning.losses = pd.Series([loss])
        return run

    assert find_shortfall(lost(2.0), [lost(2.0)], lost(2.09)) is None
    worse = find_shortfall(lost(2.0), [lost(2.0)], lost(2.11))
    assert worse is not None and (worse.quantity, worse.value) == ("final_loss", 2.11)
