"""Which outcomes take another control, by hand."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner import open_outcomes
from breakeven.runner.more_controls import Training
from breakeven.runner.open_outcomes import is_open, why_outcome_open
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.values import Margin
from tests.helpers.journals import Recording, experiment_spec, falling_losses

PERCENT = Margin(0.01, is_share=True)
HALF_PERCENT = Margin(0.005, is_share=False)


def training(values: list[float], evaluations: Mapping[int, dict[str, float]] = {}) -> Training:
    return Training(dict(enumerate(values)), 1.0, None, dict(evaluations))


FALL = [4.0 - 0.2 * step for step in range(10)]
UP, DOWN = (training([*FALL, *turns * 45]) for turns in ([2.01, 1.99], [1.99, 2.01]))
"""The half width is 1.960 x 0.00447 x sqrt(1.5) = 0.0107 for two of them, as the means of windows
agree (`tests/storage/statistics/test_as_good.py`)."""


@pytest.mark.parametrize(
    ("excess", "asks"),
    [
        (0.0, False),
        (0.009, False),  # at most 0.0197, of a margin of 0.02
        (0.0095, True),
        (0.021, True),  # It seems worse; an equal training may end there.
        (-0.009, False),
        (-0.021, False),  # A lower training loss shows nothing, whatever the controls.
        (3.0, True),
        (4.5, False),  # more than twice the 2 that were learned
        (math.nan, False),
    ],
)
def test_an_outcome_near_the_margin_or_worse_is_open(excess: float, asks: bool) -> None:
    assert is_open([UP, DOWN], training([*FALL, *[2.0 + excess] * 90]), PERCENT) == asks


def test_arms_that_are_judged_together_share_the_chance_of_an_error() -> None:
    """Of twenty, the half width is 3.023 instead of 1.960 errors, 0.0166."""
    for excess, asks in ((0.003, False), (0.004, True)):
        own = training([*FALL, *[2.0 + excess] * 90])
        assert is_open([UP, DOWN], own, PERCENT, num_judged=20) == asks


def test_equal_trainings_that_end_apart_leave_open_what_they_surround() -> None:
    higher = training([loss + 0.1 for loss in UP.losses.values()])
    assert is_open([UP, higher], training([*FALL, *[2.05] * 90]), PERCENT)


@pytest.mark.parametrize(("excess", "asks"), [(0.002, False), (0.004, True)])
def test_a_training_inside_the_band_is_open_if_its_loss_is_higher_by_more_than_the_margin(
    excess: float, asks: bool
) -> None:
    """The mean of the two equal trainings is 2.0005, a margin of 0.1 % of it is 0.002, and their
    spread leaves either loss undecided. The band is 0.01 wide."""
    higher = training([loss + 0.001 for loss in UP.losses.values()])
    own = training([loss + excess for loss in UP.losses.values()])
    margin = Margin(0.001, is_share=True)
    assert is_open([UP, higher], own, margin)
    assert is_open([UP, higher], own, margin, band_in="float32") == asks


@pytest.mark.parametrize(
    ("step", "margin", "value", "asks"),
    [
        # Two accuracies 0.001 apart: 11.3 x 0.001 / sqrt(2) x sqrt(1.5) = 0.0098.
        (100, HALF_PERCENT, {"accuracy": 0.94}, True),
        (100, HALF_PERCENT, {"accuracy": 0.96}, False),  # better
        (100, PERCENT, {"accuracy": 0.2, "loss": 1.0}, False),  # A share is one of the loss.
        (90, HALF_PERCENT, {"accuracy": 0.2}, False),  # long before the end
    ],
)
def test_an_evaluation_at_the_end_decides(
    step: int, margin: Margin, value: dict[str, float], asks: bool
) -> None:
    equals = [
        training([*FALL, *[2.0] * 90], {step: {"accuracy": accuracy, "loss": 1.0}})
        for accuracy in (0.94, 0.941)
    ]
    assert is_open(equals, training([*FALL, *[2.0] * 90], {step: value}), margin) == asks


@pytest.mark.parametrize(
    ("changes", "most_seconds", "asks"),
    [
        ({}, 600, True),
        ({"same": "steps"}, 600, False),
        ({"backends": ("inductor",)}, 600, False),
        ({"backends": ("inductor",), "same": "outcome"}, 600, True),
        ({"controls": 6}, 600, False),
        ({}, 30, False),  # Each training takes 40 s.
    ],
)
def test_an_open_outcome_takes_up_to_six_controls(
    data_dir: DataDir,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    most_seconds: int,
    asks: bool,
) -> None:
    monkeypatch.setattr(open_outcomes, "MAX_SECONDS", most_seconds)
    spec = replace(experiment_spec(num_steps=200, backends=("none:tf32=true",)), **changes)
    finished = []
    for arm in spec.arms:
        higher = {"baseline": 0.0, "control": 1e-5, "backend": 0.02}[arm.role]
        losses = [loss + higher for loss in falling_losses(200)]
        run = Recording(data_dir.runs, arm.label, spec).claim().start()
        run.blocks([0.2] * 20, losses).end()
        finished.append((run.run, arm))
    why = why_outcome_open(spec, None, finished)
    assert (why is not None) == asks
    if why is not None:
        label = spec.arms[-1].label
        assert f"takes about 40 s: what {label} learned is too near to the margin" in why
