"""Run, Compare and Live show how a training went on, what it answered, and what it recorded."""

import pandas as pd
import pytest

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
from tests.helpers.pages import cards, charts, opened, opened_run, table, text
from tests.helpers.pages_journals import INDUCTOR, LOSSES, evaluate, predict, recording


def others(folder: DataDir, spec: ExperimentSpec | None = None) -> None:
    """Baseline and control, so that the experiment is whole."""
    for label in ("baseline", "control"):
        recording(folder, label, spec).blocks([0.2] * 4, LOSSES).evaluation(0.8).end()


def test_a_run_says_where_it_was_resumed_and_marks_it_in_its_charts(folder: DataDir):
    run = recording(folder, "inductor").blocks([0.1] * 2, LOSSES[:20])
    run.checkpoint(value=0.5).resume(20).blocks([0.1] * 2, LOSSES[20:]).end()
    others(folder)
    app = opened_run()
    assert "resumed at step 20" in text(app)
    assert charts(app).count('"text":"resumed"') == 2, "in step times and losses"
    assert '"x0":19.5' in charts(app)
    assert '"text":"inductor resumed"' in charts(opened(experiment=EXPERIMENT_ID, tab="Learning"))


def test_a_run_says_where_and_why_it_stopped_early(folder: DataDir):
    recording(folder, "inductor").blocks([0.1] * 2, LOSSES[:20]).stop("accuracy is enough").end()
    others(folder)
    app = opened_run()
    assert "Stopped early after 20 steps: accuracy is enough" in text(app)
    live = text(opened("experiment", experiment=EXPERIMENT_ID))
    assert "**inductor** stopped early after 20 steps: accuracy is enough" in live


def test_checkpoints_are_listed_newest_first_with_size_value_and_whether_they_are_kept(
    folder: DataDir,
):
    spec = experiment_spec(checkpoints=CheckpointSpec(every=20, unit="steps"),
                           evaluation=EvaluationSpec(metric="accuracy"))  # fmt: skip
    run = recording(folder, "inductor", spec).blocks([0.1] * 2, LOSSES[:20])
    run.checkpoint(value=0.25).blocks([0.1] * 2, LOSSES[20:])
    run.checkpoint(value=0.75, removed=[20]).end()
    others(folder, spec)
    shown = table(opened_run(part="Checkpoints"), "Kept")
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
def test_what_was_not_asked_for_says_how_to_ask(folder: DataDir, tab: str, said: str):
    recording(folder, "inductor").blocks([0.1] * 4, LOSSES).end()
    others(folder)
    assert said in text(opened_run(part=tab))


def test_terms_of_the_loss_and_own_values_are_charted(folder: DataDir):
    run = recording(folder, "inductor")
    for step in range(2):
        run.log.append("step", step=step, epoch=0, round=0, loss=3.0, seconds=0.1, compiled=False,
                       losses={"model": 1.0, "MSELoss": 4.0})  # fmt: skip
        run.log.append("value", step=step, name="weight norm", value=5.0 + step)
    run.end()
    others(folder)
    app = opened_run()
    assert {"Terms of the loss", "weight norm"} <= set(cards(app))
    assert '"name":"MSELoss"' in charts(app)


def test_of_many_own_values_those_are_charted_that_are_picked(folder: DataDir):
    run = recording(folder, "inductor").blocks([0.1] * 4, LOSSES)
    for number in range(9):
        run.log.append("value", step=1, name=f"v{number}", value=1.0)
    run.end()
    others(folder)
    app = opened_run()
    assert {title for title in cards(app) if title.startswith("v")} == {f"v{n}" for n in range(6)}
    app.multiselect(key="values").set_value(["v8"]).run()
    assert [title for title in cards(app) if title.startswith("v")] == ["v8"]


def test_a_run_lists_each_graph_break_once_with_the_persons_line_and_counts_it(folder: DataDir):
    run = recording(folder, "inductor").blocks([0.1] * 4, LOSSES, 3.0)
    for step, line, count in ((0, 7, 2), (0, 9, 1), (30, 7, 1)):
        run.log.append("graph_break", step=step, phase="training", reason="print",
                       location=f"mine.py:{line}", stopped_at="torch/x.py:1",
                       count=count)  # fmt: skip
    for step, reason in ((0, None), (30, "0/0: size mismatch, expected 2, actual 3")):
        run.log.append("compile_metrics", step=step, phase="training", compile_id="0/0",
                       function="forward", file="mine.py", line=3, guards=4,
                       recompile_reason=reason)  # fmt: skip
    run.end()
    others(folder)
    app = opened_run(part="Compiling")
    breaks = table(app, "Location")
    assert list(breaks["Location"]) == ["mine.py:7", "mine.py:9"]
    assert (list(breaks["Times"]), list(breaks["Step"])) == ([3, 1], [0, 0])
    again = table(app, "Failed guard")
    assert list(again["Failed guard"]) == ["0/0: size mismatch, expected 2, actual 3"]
    assert list(again["Step"]) == [30] and list(again["File"]) == ["mine.py:3"]
    assert "Graph breaks 4 · Distinct graph breaks 2" in text(app)
    assert "Guards 8" in text(app)
    steps = charts(opened_run())
    assert steps.count('"name":"recompiled"') == 2, "in step times and losses"
    assert "mine.py:7, mine.py:9" in steps


def test_gradients_are_charted_by_parameter(folder: DataDir):
    run = recording(folder, "inductor").blocks([0.1] * 4, LOSSES)
    tensor = {"mean": 0.0, "deviation": 0.1, "largest": 0.5, "zeros": 0.0}
    for step in (0, 10):
        run.log.append("gradient_statistics", step=step, tensors=[
            {"name": "layer.weight", "norm": 10.0, **tensor}])  # fmt: skip
    run.end()
    others(folder)
    app = opened_run(part="Gradients")
    assert "Gradients by parameter" in cards(app)
    assert "layer.weight" in charts(app)


def test_evaluations_of_all_splits_are_charted_by_number_and_epochs_count_from_one(folder: DataDir):
    run = recording(folder, "inductor").blocks([0.1] * 4, LOSSES)
    for split in ("validation", "test"):
        for compiled in (False, True):
            evaluate(run, 40, split, compiled, loss=0.5, accuracy=0.75, f1=0.5)
    run.end()
    others(folder)
    app = opened_run(part="Scores")
    assert {"Evaluation loss", "Accuracy", "F1"} <= set(cards(app))
    shown = table(app, "F1")
    assert list(shown["Epoch"]) == [1] * 4
    assert list(shown["Split"]) == ["validation", "validation", "test", "test"]
    assert list(shown["Compiled"]) == [False, True] * 2
    assert list(shown["Samples"]) == [50] * 4


@pytest.fixture
def predicted(folder: DataDir) -> DataDir:
    """The control differs from the baseline in one answer, inductor in two, and once from its
    own weights."""
    spec = experiment_spec(evaluation=EvaluationSpec(predictions=("validation",)))
    for label, answers, compiled in (
        ("baseline", [0, 0, 1, 1], None),
        ("control", [0, 1, 1, 1], None),
        ("inductor", [1, 0, 0, 1], [1, 1, 0, 1]),
    ):
        run = recording(folder, label, spec).blocks([0.1] * 4, LOSSES)
        predict(run, answers, compiled)
        run.end()
    return folder


def test_a_run_shows_its_confusions_by_name_and_where_its_compiled_model_differs(
    predicted: DataDir,
):
    app = opened_run(part="Scores")
    assert "Confusion, validation" in cards(app)
    assert '"y":["bad","good"]' in charts(app)
    assert "Answered differently by the compiled model, validation: 1 of 4 samples" in cards(app)
    assert list(table(app, "Compiled prediction")["Sample"]) == [1]


def test_compare_counts_and_lists_the_samples_on_which_runs_disagree(predicted: DataDir):
    app = opened(experiment=EXPERIMENT_ID, tab="Learning")
    counts = table(app, "Unlike the baseline").set_index("Run")
    assert list(counts.index) == ["control", "inductor"]
    assert list(counts["Unlike the baseline"]) == [1, 2]
    assert counts.loc["inductor", "Compiled unlike its own weights"] == 1
    samples = table(app, "Margin of inductor")
    assert list(samples["Sample"]) == [0, 1, 2]
    assert list(samples["True label"]) == ["bad", "bad", "good"], "names, not numbers"
    assert list(samples["Predicted by inductor"]) == ["good", "bad", "bad"]


def test_predictions_that_are_numbers_are_not_counted_as_right_or_wrong(folder: DataDir):
    spec = experiment_spec(evaluation=EvaluationSpec(predictions=("validation",)))
    for label in ("baseline", "control", "inductor"):
        run = recording(folder, label, spec).blocks([0.1] * 4, LOSSES)
        predict(run, [0, 0, 1, 1], [0, 0, 1, 1])
        file = run.run.artifacts / "predictions-validation.parquet"
        pd.read_parquet(file).astype({"label": float, "prediction": float}).to_parquet(file)
        run.end()
    scores = opened_run(part="Scores")
    assert "samples are numbers, not classes" in text(scores)
    assert "Answered differently" not in text(scores)
    assert "so answers cannot be compared" in text(opened(tab="Learning"))


def test_a_prediction_file_that_cannot_be_read_is_said(predicted: DataDir):
    file = predicted.run_dir(INDUCTOR).path / "artifacts/predictions-validation.parquet"
    file.write_text("torn")
    assert "is no file of predictions" in text(opened(tab="Learning"))
    assert "is no file of predictions" in text(opened_run(part="Scores"))


def test_own_code_is_shown_as_it_ran_and_nothing_outside_the_run_folder(folder: DataDir):
    spec = experiment_spec(callbacks=("/a/hooks.py:Mine",))
    run = recording(folder, "inductor", spec).blocks([0.1] * 4, LOSSES)
    copy = run.run.artifacts / "sources" / "hooks.py"
    copy.parent.mkdir(parents=True)
    copy.write_text("class Mine: ...")
    (folder.path / "secret.py").write_text("class Secret: ...")
    for file in ("artifacts/sources/hooks.py", "../../secret.py"):
        run.log.append("source", source="/a/hooks.py:Mine", file=file, sha256="ab12")
    run.end()
    others(folder, spec)
    app = opened_run(part="Settings")
    assert "add `--allow-code` with the folder of its files" in text(app)
    assert list(table(app, "Sha256")["Sha256"]) == ["ab12", "ab12"]
    assert "class Mine" in text(app)
    assert "Secret" not in text(app)


def test_where_the_data_folder_lies_is_told_to_those_alone_who_act(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
):
    recording(folder, "inductor").blocks([0.1] * 4, LOSSES).end()
    others(folder)
    run = folder.run_dir(INDUCTOR)
    where = str(folder.path)
    for may_act in (True, False):
        monkeypatch.setattr(permissions, "may_act", lambda: may_act)  # noqa: B023
        run.output_file.unlink(missing_ok=True)
        run.output_file.write_text("well")
        told = text(opened_run(part="Log"))
        assert (f"{where}/runs/{INDUCTOR}/output.log" in told) == may_act
        assert (f"the data folder/runs/{INDUCTOR}/output.log" in told) != may_act
        run.output_file.unlink()
        run.output_file.symlink_to("/etc/hostname")  # What cannot be read is named, too.
        app = opened_run(part="Log")
        (problem,) = [one.value for one in app.error]
        assert (where in problem) == may_act and INDUCTOR in problem


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


def test_what_finished_or_has_no_checkpoint_offers_no_resumption(folder: DataDir):
    recording(folder, "inductor").blocks([0.1] * 2, LOSSES[:20]).end(RunState.CANCELLED)
    others(folder)
    assert not [button for button in opened().button if "resume" in button.key]


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
