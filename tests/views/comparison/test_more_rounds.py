"""The buttons that add rounds to an inconclusive experiment, and that measure a recorded number
again."""

from dataclasses import replace
from importlib.metadata import version

import pytest

from breakeven.runner.experiments.added_rounds import rounds_to_add
from breakeven.runner.experiments.queue import find_experiment
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import AddedRounds
from breakeven.views.access import permissions
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)
from tests.helpers.pages import opened, text

ENVIRONMENT = {"versions": {"torch": version("torch")}}
BUTTON = f"add-rounds-{EXPERIMENT_ID}"


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
    return f"add-rounds-{experiment_id}" in keys


SPEC = experiment_spec(num_steps=80, backends=("inductor",))
RESTLESS = [0.1, 0.08, 0.13, 0.09, 0.08, 0.12, 0.09, 0.08]
"""Perhaps faster by chance: some 50 more rounds would decide."""
EQUAL = [0.1, 0.08, 0.13, 0.1, 0.08, 0.13, 0.1, 0.08]
"""The median equals the baseline's: ten times the rounds would not decide."""


def test_the_button_of_an_inconclusive_experiment_starts_its_runs_again(folder: DataDir):
    record(folder, SPEC, RESTLESS)
    app = opened(experiment=EXPERIMENT_ID)
    assert "A round" in text(app) and "two processes of the same program differ" in text(app)
    app.number_input(key="added-processes").set_value(2)
    app.number_input(key="added-minutes").set_value(5)
    app.button(key=BUTTON).click().run()
    assert not app.error, text(app)
    runs = find_experiment(folder, EXPERIMENT_ID).runs
    assert {(run.state, run.attempt) for run in runs} == {(RunState.QUEUED, 2)}
    expected = AddedRounds(processes=2, target_width=0.02, max_seconds=300.0)
    assert [rounds_to_add(run) for run in runs] == [expected] * 3
    app = opened(experiment=EXPERIMENT_ID)
    assert not app.exception and not app.error
    assert "Adds rounds in" in text(app) and "2 processes" in text(app)


def test_what_is_decided_has_no_button_and_none_is_there_for_who_may_only_look(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
):
    decided = "20261122-093015-123456-7f3a"
    record(folder, SPEC, RESTLESS)
    record(folder, SPEC, [0.05] * 8, decided)
    assert offered() and not offered(decided)
    equal = "20261122-093015-123456-7f3c"
    record(folder, SPEC, EQUAL, equal)
    assert not offered(equal)
    monkeypatch.setattr(permissions, "may_act", lambda: False)
    assert not offered()


def test_an_experiment_that_cannot_have_rounds_added_has_the_reason_instead(folder: DataDir):
    record(folder, replace(SPEC, schedule="sequential"), RESTLESS)
    app = opened(experiment=EXPERIMENT_ID)
    assert BUTTON not in [str(button.key) for button in app.button]
    assert "do not take turns, so that it has no rounds. Run it again with more" in text(app)
    equal = "20261122-093015-123456-7f3d"
    record(folder, replace(SPEC, schedule="sequential"), EQUAL, equal)
    assert "do not take turns, so that" not in text(opened(experiment=equal))


RECORDED = experiment_spec(num_steps=80, backends=("eager", "inductor"))
AGAIN = "20261122-093015-123456-7f3b"


@pytest.fixture(scope="module")
def measured(kept_folder: DataDir) -> DataDir:
    record_experiment(kept_folder.runs, RECORDED)
    return kept_folder
