"""Run, Compare and Live show how a training went on, what it answered, and what it recorded."""

from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import find_experiment
from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.experiment import (
    CheckpointSpec,
    EvaluationSpec,
    ExperimentSpec,
    TrainingSpec,
)
from breakeven.views.access import permissions
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec
from tests.helpers.pages import cards, charts, opened, table, text
from tests.helpers.pages_journals import LOSSES, evaluate, predict, record_rich, recording

RICH, PLAIN, TERMS, NUMBERS, TORN = (f"2026112{day}-093015-123456-7f3a" for day in range(1, 6))


def record_others(folder: DataDir, experiment_id: str, spec: ExperimentSpec) -> None:
    """Baseline and control, so that the experiment is whole."""
    for label in ("baseline", "control"):
        recording(folder, label, spec, experiment_id).blocks([0.2] * 4, LOSSES).evaluation(
            0.8
        ).end()


def page(experiment_id: str, **query: Any) -> AppTest:
    """The page of inductor's run, or a part of that page."""
    run = f"{experiment_id}.inductor"
    return opened("experiment", tab="Runs", experiment=experiment_id, run=run, **query)


@pytest.fixture(scope="module")
def recorded(kept_folder: DataDir) -> DataDir:
    record_rich(kept_folder, RICH)
    record_plain(kept_folder)
    record_terms(kept_folder)
    predicting = experiment_spec(evaluation=EvaluationSpec(predictions=("validation",)))
    for experiment_id in (NUMBERS, TORN):
        for label in ("baseline", "control", "inductor"):
            run = recording(kept_folder, label, predicting, experiment_id)
            run.blocks([0.1] * 2, LOSSES[:20])
            if label == "inductor":
                run.checkpoint(value=0.5).resume(20)
            run.blocks([0.1] * 2, LOSSES[20:])
            predict(run, [0, 0, 1, 1], [0, 0, 1, 1])
            file = run.run.artifacts / "predictions-validation.parquet"
            if experiment_id == NUMBERS:
                numbers = pd.read_parquet(file).astype({"label": float, "prediction": float})
                numbers.to_parquet(file)
            elif label == "inductor":
                file.write_text("torn")
            run.end()
    return kept_folder


def record_plain(folder: DataDir) -> None:
    """Nothing was asked for; the script recorded nine values, and the run stopped early."""
    run = recording(folder, "inductor", experiment_spec(), PLAIN).blocks([0.1] * 2, LOSSES[:20])
    for number in range(9):
        run.log.append("value", step=1, name=f"v{number}", value=1.0)
    run.stop("accuracy is enough").end()
    record_others(folder, PLAIN, experiment_spec())


def record_terms(folder: DataDir) -> None:
    """Two steps of a loss of two terms; the run was stopped and left no checkpoint."""
    run = recording(folder, "inductor", experiment_spec(), TERMS)
    for step in range(2):
        run.log.append("step", step=step, epoch=0, round=0, loss=3.0, seconds=0.1, compiled=False,
                       losses={"model": 1.0, "MSELoss": 4.0})  # fmt: skip
        run.log.append("value", step=step, name="weight norm", value=5.0 + step)
    run.end(RunState.CANCELLED)
    record_others(folder, TERMS, experiment_spec())


def test_a_run_says_where_it_was_resumed_and_marks_it_in_its_charts(recorded: DataDir):
    app = page(NUMBERS)
    assert "resumed at step 20" in text(app)
    assert charts(app).count('"text":"resumed"') == 2, "in step times and losses"
    assert '"x0":19.5' in charts(app)
    assert '"text":"inductor resumed"' in charts(opened(experiment=NUMBERS, tab="Learning"))


def test_a_run_says_where_and_why_it_stopped_early_and_charts_the_values_that_are_picked(
    recorded: DataDir,
):
    app = page(PLAIN)
    assert "Stopped early after 20 steps: accuracy is enough" in text(app)
    assert {title for title in cards(app) if title.startswith("v")} == {f"v{n}" for n in range(6)}
    app.multiselect(key="values").set_value(["v8"]).run()
    assert [title for title in cards(app) if title.startswith("v")] == ["v8"]
    verdict = text(opened("experiment", experiment=PLAIN))
    assert "**inductor** stopped early after 20 steps: accuracy is enough" in verdict


def test_checkpoints_are_listed_newest_first_with_size_value_and_whether_they_are_kept(
    recorded: DataDir,
):
    shown = table(page(RICH, part="Checkpoints"), "Kept")
    assert list(shown["Step"]) == [40, 20]
    assert list(shown["Kept"]) == ["yes", "no"]
    assert list(shown["Accuracy"]) == [0.75, 0.25]
    assert (shown["Size"] == 1000).all(), "a number, whatever it is written as"


@pytest.mark.parametrize(
    ("tab", "said"),
    [
        ("Gradients", "--gradient-statistics-every"),
        ("Checkpoints", "--checkpoint-every"),
        ("Scores", "--predictions"),
    ],
)
def test_what_was_not_asked_for_says_how_to_ask(recorded: DataDir, tab: str, said: str):
    assert said in text(page(PLAIN, part=tab))


def test_terms_of_the_loss_and_own_values_are_charted(recorded: DataDir):
    app = page(TERMS)
    assert {"Terms of the loss", "weight norm"} <= set(cards(app))
    assert '"name":"MSELoss"' in charts(app)


def test_a_run_lists_each_graph_break_once_with_the_persons_line_and_counts_it(recorded: DataDir):
    app = page(RICH, part="Compiling")
    breaks = table(app, "Location")
    assert list(breaks["Location"]) == ["mine.py:7", "mine.py:9"]
    assert (list(breaks["Times"]), list(breaks["Step"])) == ([3, 1], [0, 0])
    again = table(app, "Failed guard")
    assert list(again["Failed guard"]) == ["0/0: size mismatch, expected 2, actual 3"]
    assert list(again["Step"]) == [30] and list(again["File"]) == ["mine.py:3"]
    assert "Graph breaks 4 · Distinct graph breaks 2" in text(app)
    assert "Guards 8" in text(app)
    steps = charts(page(RICH))
    assert steps.count('"name":"recompiled"') == 2, "in step times and losses"
    assert "mine.py:7, mine.py:9" in steps


def test_gradients_are_charted_by_parameter(recorded: DataDir):
    app = page(RICH, part="Gradients")
    assert "Gradients by parameter" in cards(app)
    assert "layer.weight" in charts(app)


def test_scores_have_evaluations_confusions_and_answers_of_the_compiled_model(recorded: DataDir):
    app = page(RICH, part="Scores")
    assert {"Evaluation loss", "Accuracy", "F1", "Confusion, validation"} <= set(cards(app))
    shown = table(app, "F1")
    assert list(shown["Epoch"]) == [1] * 4
    assert list(shown["Split"]) == ["validation", "validation", "test", "test"]
    assert list(shown["Compiled"]) == [False, True] * 2
    assert list(shown["Samples"]) == [50] * 4
    assert '"y":["bad","good"]' in charts(app)
    assert "Answered differently by the compiled model, validation: 1 of 4 samples" in cards(app)
    assert list(table(app, "Compiled prediction")["Sample"]) == [1]


def test_compare_counts_and_lists_the_samples_on_which_runs_disagree(recorded: DataDir):
    app = opened(experiment=RICH, tab="Learning")
    counts = table(app, "Unlike the baseline").set_index("Run")
    assert list(counts.index) == ["control", "inductor"]
    assert list(counts["Unlike the baseline"]) == [1, 2]
    assert counts.loc["inductor", "Compiled unlike its own weights"] == 1
    samples = table(app, "Margin of inductor")
    assert list(samples["Sample"]) == [0, 1, 2]
    assert list(samples["True label"]) == ["bad", "bad", "good"], "names, not numbers"
    assert list(samples["Predicted by inductor"]) == ["good", "bad", "bad"]


def test_predictions_that_are_numbers_are_not_counted_as_right_or_wrong(recorded: DataDir):
    scores = page(NUMBERS, part="Scores")
    assert "samples are numbers, not classes" in text(scores)
    assert "Answered differently" not in text(scores)
    assert "so answers cannot be compared" in text(opened(experiment=NUMBERS, tab="Learning"))


def test_a_prediction_file_that_cannot_be_read_is_said(recorded: DataDir):
    assert "is no file of predictions" in text(opened(experiment=TORN, tab="Learning"))
    assert "is no file of predictions" in text(page(TORN, part="Scores"))


def test_own_code_is_shown_as_it_ran_and_nothing_outside_the_run_folder(recorded: DataDir):
    app = page(RICH, part="Settings")
    assert "add `--allow-code` with the folder of its files" in text(app)
    assert list(table(app, "Sha256")["Sha256"]) == ["ab12", "ab12"]
    assert "class Mine" in text(app)
    assert "Secret" not in text(app)


def test_where_the_data_folder_lies_is_told_to_those_alone_who_act(
    recorded: DataDir, monkeypatch: pytest.MonkeyPatch
):
    run = recorded.run_dir(f"{PLAIN}.inductor")
    where = str(recorded.path)
    for may_act in (True, False):
        monkeypatch.setattr(permissions, "may_act", lambda: may_act)  # noqa: B023
        run.output_file.unlink(missing_ok=True)
        run.output_file.write_text("well")
        told = text(page(PLAIN, part="Log"))
        assert (f"{where}/runs/{run.run_id}/output.log" in told) == may_act
        assert (f"the data folder/runs/{run.run_id}/output.log" in told) != may_act
        run.output_file.unlink()
        run.output_file.symlink_to("/etc/hostname")  # What cannot be read is named, too.
        (problem,) = [one.value for one in page(PLAIN, part="Log").error]
        assert (where in problem) == may_act and run.run_id in problem


def stopped_experiment(folder: DataDir) -> None:
    """Stopped on request after 20 of 40 steps; inductor alone left a checkpoint."""
    spec = experiment_spec(checkpoints=CheckpointSpec(every=20, unit="steps"))
    for label in ("baseline", "control", "inductor"):
        run = recording(folder, label, spec).blocks([0.1] * 2, LOSSES[:20])
        if label == "inductor":
            run.checkpoint()
            run.run.checkpoints.mkdir(parents=True)
            (run.run.checkpoints / "step-00000020.pt").touch()
        run.end(RunState.CANCELLED, "stopped on request")


def test_runs_that_left_a_checkpoint_go_on_with_one_click(folder: DataDir):
    stopped_experiment(folder)
    app = opened(experiment=EXPERIMENT_ID)
    button = app.button(key=f"resume-{EXPERIMENT_ID}")
    assert button.help == "Goes on from the latest checkpoint: inductor."
    button.click().run()
    states = [run.state for run in find_experiment(folder, EXPERIMENT_ID).runs]
    assert states == [RunState.CANCELLED, RunState.CANCELLED, RunState.QUEUED]
    assert app.query_params["experiment"] == EXPERIMENT_ID


def test_what_finished_or_has_no_checkpoint_offers_no_resumption(recorded: DataDir):
    for experiment_id in (RICH, TERMS):
        app = opened(experiment=experiment_id)
        assert not [button for button in app.button if "resume" in button.key]


def test_compare_shows_what_the_task_is_judged_by_and_what_is_worked_through(folder: DataDir):
    spec = experiment_spec(training=TrainingSpec(batch_size=8))
    for label in ("baseline", "control", "inductor"):
        run = Recording(folder.runs, label, spec).claim()
        run.start(tokens_per_step=1000, padding_share=0.5, flops_per_step=10**9)
        run.blocks([0.1] * 4, LOSSES)
        evaluate(run, 40, "validation", False, loss=0.5, perplexity=8.0)
        run.end()
    app = opened(experiment=EXPERIMENT_ID, tab="Runs")
    bodies = [entry.proto.body for entry in app.get("html")]
    (table_html,) = [body for body in bodies if body.startswith('<div class="leaderboard"')]
    assert ">Perplexity</a>" in table_html and "<td>8.000</td>" in table_html
    assert "Accuracy" not in table_html
    assert "Perplexity" in cards(opened(experiment=EXPERIMENT_ID, tab="Learning"))
    offered = next(one for one in app.get("button_group") if one.key == "tokens_per_second")
    assert offered.options == ["Tokens", "Without padding", "FLOP"]
