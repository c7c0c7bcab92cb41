"""The button that times an inconclusive experiment further."""

from dataclasses import replace
from importlib.metadata import version

import pytest

from breakeven.runner.experiments.continuing import plan_to_continue
from breakeven.runner.experiments.queue import find_experiment
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import PlanSpec
from breakeven.views.access import permissions
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
)
from tests.helpers.pages import opened, text

ENVIRONMENT = {"versions": {"torch": version("torch")}}
BUTTON = f"continue-{EXPERIMENT_ID}"


def record(
    folder: DataDir, spec: ExperimentSpec, backend: list[float], experiment_id: str = EXPERIMENT_ID
) -> None:
    """Step times of `inductor` in eight blocks; all other runs take 0.1 s."""
    for arm in spec.arms:
        recording = Recording(folder.runs, arm.label, spec, experiment_id).claim()
        recording.start(environment=ENVIRONMENT)
        seconds = backend if arm.label == "inductor" else [0.1] * 8
        recording.blocks(seconds, falling_losses(80)).end()


def offered(experiment_id: str = EXPERIMENT_ID) -> bool:
    keys = [str(button.key) for button in opened(experiment=experiment_id).button]
    return f"continue-{experiment_id}" in keys


SPEC = experiment_spec(num_steps=80, backends=("inductor",))
RESTLESS = [0.1, 0.08, 0.13, 0.09, 0.08, 0.12, 0.09, 0.08]
"""Perhaps faster by chance: some 50 more rounds would decide."""
EQUAL = [0.1, 0.08, 0.13, 0.1, 0.08, 0.13, 0.1, 0.08]
"""The median equals the baseline's: ten times the rounds would not decide."""


def test_the_button_of_an_inconclusive_experiment_starts_its_runs_again(folder: DataDir):
    """For ten minutes, and for the length of the training that the page plans with."""
    record(folder, SPEC, RESTLESS)
    app = opened(experiment=EXPERIMENT_ID, plan="5000")
    assert app.button(key=BUTTON).label == "Continue for 10 minutes"
    app.button(key=BUTTON).click().run()
    assert not app.error, text(app)
    runs = find_experiment(folder, EXPERIMENT_ID).runs
    assert {(run.state, run.attempt) for run in runs} == {(RunState.QUEUED, 2)}
    assert [plan_to_continue(run) for run in runs] == [PlanSpec(steps=5000, max_seconds=600.0)] * 3
    app = opened(experiment=EXPERIMENT_ID)
    assert not app.exception and not app.error
    assert "Is timed further" in text(app)


def test_what_is_decided_has_no_button_and_none_is_there_for_who_may_only_look(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
):
    decided = "20261122-093015-123456-7f3a"
    record(folder, SPEC, RESTLESS)
    record(folder, SPEC, [0.05] * 8, decided)
    assert offered() and not offered(decided)
    # The next step is one: to use what is decided.
    app = opened(experiment=decided)
    assert "Use it" in [shown.proto.popover.label for shown in app.get("popover")]
    equal = "20261122-093015-123456-7f3c"
    record(folder, SPEC, EQUAL, equal)
    assert not offered(equal)
    monkeypatch.setattr(permissions, "may_act", lambda: False)
    assert not offered()


def test_an_experiment_that_cannot_be_continued_has_the_reason_instead(folder: DataDir):
    record(folder, replace(SPEC, schedule="sequential"), RESTLESS)
    app = opened(experiment=EXPERIMENT_ID)
    assert BUTTON not in [str(button.key) for button in app.button]
    assert "do not take turns, so that it has no rounds. Run it again with more" in text(app)
    equal = "20261122-093015-123456-7f3d"
    record(folder, replace(SPEC, schedule="sequential"), EQUAL, equal)
    assert "do not take turns, so that" not in text(opened(experiment=equal))
