"""Measuring a recorded number again from a page, and what the page then says of it."""

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import experiments
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.investigations import replay
from breakeven.views.access import permissions
from breakeven.views.access.permissions import NotAllowed
from breakeven.views.comparison import cause
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment
from tests.helpers.pages import opened, opened_run, text

SPEC = experiment_spec(num_steps=80, backends=("eager", "inductor"))
AGAIN = "20261122-093015-123456-7f3b"


@pytest.fixture(scope="module")
def recorded(kept_folder: DataDir) -> DataDir:
    record_experiment(kept_folder.runs, SPEC)
    return kept_folder


def submitted(folder: DataDir) -> dict[str, ExperimentSpec]:
    return {one.experiment_id: one.spec for one in experiments(folder)}


def test_a_replay_says_which_numbers_came_out_as_expected_and_leads_to_the_recording(
    folder: DataDir,
):
    record_experiment(folder.runs, SPEC)
    spec = replay(SPEC, EXPERIMENT_ID, "inductor")
    record_experiment(folder.runs, spec, AGAIN, backend_seconds=0.11)
    said = text(opened(experiment=AGAIN))
    assert "inductor, replicated" in said
    assert "1 of 3 numbers came out as expected, all but: speedup, step time" in said
    assert said.count("not as expected") == 2 and ">as expected" in said
    app = opened(experiment=EXPERIMENT_ID)
    assert "Replicated 1 time:" in text(app)
    (opens,) = [one for one in app.button if one.label == "inductor, 22 Nov 2026, 09:30"]
    assert opens.click().run().query_params["experiment"] == AGAIN


def test_a_button_beside_a_runs_numbers_queues_what_measures_them_again(recorded: DataDir):
    app, before = opened_run(), submitted(recorded)
    app.button(key=f"measure-again-{EXPERIMENT_ID}-inductor").click().run()
    assert not app.error, text(app)
    (queued,) = submitted(recorded).keys() - before.keys()
    assert submitted(recorded)[queued] == replay(SPEC, EXPERIMENT_ID, "inductor")


def test_beside_a_whole_experiments_numbers_one_chooses_whose(recorded: DataDir):
    app, before = opened(experiment=EXPERIMENT_ID, tab="Runs"), submitted(recorded)
    assert app.selectbox(key="measure-again-label").options == ["eager", "inductor"]
    app.button(key=f"measure-again-{EXPERIMENT_ID}-eager").click().run()
    (queued,) = submitted(recorded).keys() - before.keys()
    assert submitted(recorded)[queued].backends == ("eager",)


def test_a_replay_of_what_is_gone_says_so(folder: DataDir):
    record_experiment(folder.runs, replay(SPEC, EXPERIMENT_ID, "inductor"), AGAIN)
    assert "replicates an experiment that is not here" in text(opened(experiment=AGAIN))


def test_who_may_only_look_cannot_measure_again(recorded: DataDir, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(permissions, "may_act", lambda: False)
    for page in (opened(experiment=EXPERIMENT_ID, tab="Runs"), opened_run()):
        assert not [one for one in page.button if str(one.key).startswith("measure-again")]
    with pytest.raises(NotAllowed):
        cause.measure_again(EXPERIMENT_ID, "inductor")
