"""A training that is made again is judged by its losses, and only where it was made again."""

import math
from typing import Any

import pytest

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.worker.investigation import repetition
from breakeven.runner.worker.investigation.repetition import Repetition
from breakeven.runner.worker.investigation.trial_outcomes import PASSES
from tests.helpers.journals import experiment_spec

pytestmark = pytest.mark.heavy
STEP = 5
BASELINE = {step: 2.0 - 0.01 * step for step in range(30)}
"""Falls by a hundredth a step; a difference of 1e-7 is less than rounding."""


def repeated(
    monkeypatch: pytest.MonkeyPatch, backend: dict[int, float], control: float = 1e-7
) -> Repetition:
    """A repetition in which the runs have these losses."""
    losses = {
        "baseline": BASELINE,
        "control": {step: loss + control for step, loss in BASELINE.items()},
        "backend": backend,
    }

    def repeat_run(spec: RunSpec, role: str, *rest: Any) -> tuple[dict[int, float], None]:
        return losses[role], None

    monkeypatch.setattr(repetition, "repeat_run", repeat_run)
    spec = experiment_spec(40)
    return Repetition(RunSpec(experiment_id="experiment", experiment=spec, arm=spec.arms[0]))


def test_losses_that_rounding_explains_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = repeated(monkeypatch, {step: loss + 1e-6 for step, loss in BASELINE.items()})
    assert runs.can_judge(STEP)
    assert runs.outcome("inductor", STEP) == PASSES


@pytest.mark.parametrize("wrong", [2.5, math.nan, math.inf])
def test_the_first_wrong_loss_is_named(wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = repeated(monkeypatch, BASELINE | {3: wrong, 4: wrong})
    outcome = runs.outcome("inductor", STEP)
    assert (outcome.kind, outcome.step, outcome.quantity) == ("differs", 3, "loss")


def test_a_training_that_ends_before_the_fault_shows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = repeated(monkeypatch, {step: BASELINE[step] for step in range(STEP)})
    with pytest.raises(WorkloadError, match="no loss at step 5"):
        runs.outcome("inductor", STEP)


def test_where_equal_trainings_part_no_loss_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not repeated(monkeypatch, BASELINE, control=0.5).can_judge(STEP)
