"""The pages of experiments and runs show how a training went, what it answered, and what it
recorded; and the parts of a run about compiling and the device."""

import os
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from breakeven.runner.experiments.queue import find_experiment
from breakeven.runner.machine.cpus import CpuAllowance
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import (
    CheckpointSpec,
    EvaluationSpec,
    SpeedSpec,
    TrainingSpec,
)
from breakeven.views.access import permissions
from breakeven.views.charts.across_experiments import device_series
from breakeven.views.parts.progress import before_launch
from breakeven.views.shared.inert import JOINER
from breakeven.views.tabs.compiling import frames
from tests.helpers.device_journals import ON_CUDA, OTHER, SAMPLE
from tests.helpers.device_journals import record as record_device
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec
from tests.helpers.pages import cards, charts, opened, opened_run, table, text, without_links
from tests.helpers.pages_journals import INDUCTOR, LOSSES, evaluate, predict, record_rich, recording

RICH, PLAIN, TERMS, NUMBERS, TORN = (f"2026112{day}-093015-123456-7f3a" for day in range(1, 6))


def record_others(folder: DataDir, experiment_id: str) -> None:
    """Baseline and control, so that the experiment is complete."""
    for label in ("baseline", "control"):
        run = recording(folder, label, None, experiment_id).blocks([0.2] * 4, LOSSES)
        run.evaluation(0.8).end()


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
    """No evaluation was requested; the script recorded nine values, and the run stopped early."""
    run = recording(folder, "inductor", None, PLAIN).blocks([0.1] * 2, LOSSES[:20])
    for number in range(9):
        run.log.append("value", step=1, name=f"v{number}", value=1.0)
    run.stop("accuracy is enough").end()
    record_others(folder, PLAIN)


def record_terms(folder: DataDir) -> None:
    """Two steps with a loss of two terms; the run was stopped and left no checkpoint."""
    run = recording(folder, "inductor", None, TERMS)
    for step in range(2):
        run.log.append(
            "step",
            step=step,
            epoch=0,
            round=0,
            loss=3.0,
            seconds=0.1,
            compiled=False,
            losses={"model": 1.0, "MSELoss": 4.0},
        )
        run.log.append("value", step=step, name="weight norm", value=5.0 + step)
    run.end(RunState.CANCELLED)
    record_others(folder, TERMS)


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
        ("Gradients", "--set training.gradient_statistics_every"),
        ("Checkpoints", "--checkpoint-every"),
        ("Scores", "--set evaluation.predictions"),
        ("Compiling", "--set keep_code=yes"),
        ("Device", "Nothing is recorded yet"),
    ],
)
def test_what_was_not_asked_for_says_how_to_ask(recorded: DataDir, tab: str, said: str):
    assert said in text(page(PLAIN, part=tab))


def test_terms_of_the_loss_own_values_and_gradients_by_parameter_are_charted(recorded: DataDir):
    app = page(TERMS)
    assert {"Terms of the loss", "weight norm"} <= set(cards(app))
    assert '"name":"MSELoss"' in charts(app)
    app = page(RICH, part="Gradients")
    assert "Gradients by parameter" in cards(app)
    assert "layer.weight" in charts(app)


def test_a_run_lists_each_graph_break_once_with_the_persons_line_and_counts_it(recorded: DataDir):
    app = page(RICH, part="Compiling")
    breaks = table(app, "Stopped at")
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


def test_predictions_that_are_numbers_or_cannot_be_read_are_not_counted_as_right_or_wrong(
    recorded: DataDir,
):
    scores = page(NUMBERS, part="Scores")
    assert "samples are numbers, not classes" in text(scores)
    assert "Answered differently" not in text(scores)
    assert "so answers cannot be compared" in text(opened(experiment=NUMBERS, tab="Learning"))
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
        shown = text(page(PLAIN, part="Log"))
        assert (f"{where}/runs/{run.run_id}/output.log" in shown) == may_act
        assert (f"the data folder/runs/{run.run_id}/output.log" in shown) != may_act
        run.output_file.unlink()
        run.output_file.symlink_to("/etc/hostname")  # The error also names what cannot be read.
        (problem,) = [element.value for element in page(PLAIN, part="Log").error]
        assert (where in problem) == may_act and run.run_id in problem


def stopped_experiment(folder: DataDir) -> None:
    """Stopped on request after 20 of 40 steps; only inductor left a checkpoint."""
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
    offered = next(
        element for element in app.get("button_group") if element.key == "tokens_per_second"
    )
    assert offered.options == ["Tokens", "Without padding", "FLOP"]


KEPT = replace(experiment_spec(), backends=("inductor", "eager"), keep_code=True)
HOSTILE = "<img src=x> **bold** `code` [link](http://evil.example)"


def compiled(folder: DataDir, label: str, breaks: tuple[int, ...], spans: bool = True) -> Recording:
    """A run that compiled two frames, 4 s apart, with graph breaks in these lines."""
    run = Recording(folder.runs, label, KEPT).claim().start()
    for number, name in enumerate(("forward", HOSTILE)):
        stages = [
            {
                "stage": "dynamo",
                "name": "x",
                "start": 100.0 + 4 * number,
                "seconds": 2.0,
                "thread": 0,
            },
            {
                "stage": "kernels",
                "name": HOSTILE,
                "start": 101.0 + 4 * number,
                "seconds": 1.0,
                "thread": 1,
            },
        ]
        run.log.append(
            "compile_metrics",
            step=0,
            phase="training",
            compile_id=f"{number}/0",
            function=name,
            file="net.py",
            line=10 + number,
            total_seconds=2.0,
            graph_ops=5,
            guards=3,
        )
        if spans:
            run.log.append(
                "compile_spans", step=0, phase="training", compile_id=f"{number}/0", spans=stages
            )
    for line in breaks:
        run.log.append(
            "graph_break",
            step=0,
            phase="training",
            reason=f"print\n{HOSTILE}",
            location=f"net.py:{line}",
            stopped_at=f"net.py:{line}",
            count=1,
        )
    run.blocks([0.1] * 4, LOSSES)
    return run


def test_the_tab_has_the_timeline_and_says_what_another_run_compiled_otherwise(folder: DataDir):
    compiled(folder, "inductor", (12,)).end()
    compiled(folder, "eager", (12, 17)).end()
    address = {"run": INDUCTOR, "part": "Compiling", "with": EXPERIMENT_ID}
    app = opened("experiment", tab="Runs", **address)
    drawn = charts(app)
    assert "net.py:10, step 0" in drawn and "Time spent compiling" in drawn
    assert "2.00 s not compiling" in drawn
    assert "img" not in drawn.replace("&lt;img", ""), "foreign text is inert"
    said = text(app).replace(JOINER, "")
    assert "net.py:17: print" in said and "net.py:12: print" not in said
    assert "distinct graph breaks" in said and "backend" in said
    assert "Time by phase, each measured once" in "".join(cards(app))
    same = opened("experiment", tab="Runs", **{**address, "with": "nothing that is here"})
    assert "Compiler differences" not in text(same)


def test_breaks_that_several_devices_cause_stand_apart(folder: DataDir):
    run = compiled(folder, "inductor", (12,))
    run.log.append(
        "graph_break",
        step=0,
        phase="training",
        count=5,
        location="net.py:3",
        reason="DDPOptimizer intentional graph-break",
        stopped_at="torch/_dynamo/backends/distributed.py:0",
    )
    run.end()
    app = opened_run(part="Compiling")
    frames = [element.value.to_csv() for element in app.dataframe]
    (of_ranks,) = [frame for frame in frames if "DDPOptimizer" in frame]
    assert "Breaks that several devices cause" in "".join(cards(app))
    assert "a bucket of DDP ends" in of_ranks and "net.py:12" not in of_ranks
    assert "They do not count as graph breaks of your code." in text(app)


def test_kept_code_is_shown_and_nothing_outside_the_run_folder(folder: DataDir):
    run = compiled(folder, "inductor", (), spans=False)
    run.run.path.joinpath("artifacts/code").mkdir(parents=True)
    run.run.path.joinpath("artifacts/code/0-0-graph.py").write_text("class GraphModule: pass")
    for what, file in (
        ("graph of Dynamo", "artifacts/code/0-0-graph.py"),
        (HOSTILE, "../../../../etc/passwd"),
        ("trace", "artifacts/trace/dedicated.log"),
    ):
        run.log.append("kept_file", what=what, compile_id="0/0", file=file, bytes=23)
    run.end()
    app = opened_run(part="Compiling")
    assert "class GraphModule: pass" in text(app)
    assert "No times of compile stages are recorded" in text(app)
    assert "structured trace" in text(app)
    outside = opened_run(part="Compiling", kept="../../../../etc/passwd")
    assert "root:" not in text(outside)
    assert outside.error, "it says that there is no such file in the folder"


def test_a_frame_of_which_torch_names_no_file_has_none() -> None:
    metrics = pd.DataFrame({"file": ["net.py", None], "line": [6.0, None], "graph_ops": [3, 4]})
    shown = frames(metrics)
    assert list(shown.columns) == ["file", "graph_ops"]
    assert shown["file"].iloc[0] == "net.py:6" and pd.isna(shown["file"].iloc[1])


def test_a_run_and_its_comparison_show_the_device_over_the_steps_and_mark_their_numbers(
    folder: DataDir,
) -> None:
    record_device(folder, throttle_reasons=["power cap"], processes=[OTHER])
    calm = opened_run("baseline", part="Device")
    assert not calm.warning and "held back" not in charts(calm)
    app = opened_run(part="Device")
    said = text(app)
    assert "The device throttled its clocks: in 3 of 3 steady blocks (power cap)." in said
    assert "8 CPU threads: half of 16." in said
    assert "Device" in cards(app)
    assert '"text":["inductor: power cap"' in charts(app)
    others = table(app, "Pid")
    assert list(others.iloc[0]) == ["4711", "make", 3 * 2**30, "4 of 4"]
    app = opened(experiment=EXPERIMENT_ID, tab="Runs")
    bodies = [entry.proto.body for entry in app.get("html")]
    (board,) = [body for body in bodies if body.startswith('<div class="leaderboard"')]
    rows = {name: board.split(name)[1].split("</tr>")[0] for name in ("baseline", "inductor")}
    assert rows["baseline"].count('class="warning"') == 0
    assert rows["inductor"].count('class="warning"') == 2, "beside speedup and step time"
    assert "in 3 of 3 steady blocks (power cap)" in rows["inductor"]
    warning = opened(experiment=EXPERIMENT_ID).warning[0].value
    assert "The device throttled its clocks: inductor in 3 of 3" in warning
    assert "Device" in cards(app)


def test_a_share_is_drawn_in_per_cent_and_what_was_held_back_is_marked() -> None:
    frame = pd.DataFrame(
        {
            "run_id": "x.baseline",
            "label": "baseline",
            "role": "baseline",
            "step": [0, 10, 20],
            "others_cpu_share": [0.1, 0.5, 0.2],
            "held_back": [None, "quota used up", None],
        }
    )
    figure = device_series(frame, "others_cpu_share")
    line, marks = figure.data
    assert list(line.y) == [0.1, 0.5, 0.2]
    assert (list(marks.x), list(marks.text)) == ([10], ["baseline: quota used up"])
    assert figure.layout.yaxis.tickformat == ".2~%"
    still = device_series(frame.assign(sm_clock_mhz=1980.0), "sm_clock_mhz")
    assert still.layout.yaxis.tickformat == ",", "numbers are written alike"


def test_a_race_says_how_its_device_is_now(folder: DataDir) -> None:
    spec = experiment_spec(num_steps=80, devices=("cuda:0",))
    run = (
        Recording(folder.runs, "inductor", spec)
        .claim(ProcessIdentity.from_pid(os.getpid()))
        .start()
    )
    run.block([0.1] * 10, LOSSES[:10])
    run.device(**SAMPLE | {"throttle_reasons": ["power cap"], "processes": [OTHER]})
    clocks_alone = {name: SAMPLE[name] for name in ("sm_clock_mhz", "temperature_celsius")}
    for _ in range(6):  # blocks without the time of a look at other processes
        run.block([0.1] * 10, LOSSES[:10])
        run.device(**clocks_alone, wall_seconds=1.0, throttle_reasons=["power cap"])
    said = without_links(text(opened("experiment", experiment=EXPERIMENT_ID)))
    assert "1,980 MHz, 50 \N{DEGREE SIGN}C; held back: power cap" in said
    assert "other processes on the device: make (pid 4711)" in said


def test_a_busy_machine_is_mentioned_before_a_launch() -> None:
    allowance = CpuAllowance(num_in_machine=8, cpus=frozenset(range(8)), quota=None)
    assert before_launch(allowance, load=3.9) == ""
    assert "load average 4.5" in before_launch(allowance, load=4.5)
    assert "on 8 CPUs" in before_launch(allowance, load=4.5)


def test_repeats_of_a_run_are_judged_together_and_each_page_says_so(folder: DataDir) -> None:
    spec = experiment_spec(scenario="speed", speed=SpeedSpec(repeats=2, batches=4))
    for arm in spec.arms:
        run = Recording(folder.runs, arm.label, spec).claim().start(environment=ON_CUDA)
        reasons = ["power cap"] if arm.label.startswith("inductor") else []
        for _ in range(8):
            run.block([0.1] * 10, LOSSES[:10]).device(**SAMPLE | {"throttle_reasons": reasons})
        run.end()
    said = "The device throttled its clocks: "
    compared = opened(experiment=EXPERIMENT_ID)
    assert f"{said}inductor in 14 of 14 steady blocks" in compared.warning[0].value
    drawn = charts(opened(experiment=EXPERIMENT_ID, tab="Runs"))
    assert '"name":"inductor"' in drawn and '"name":"inductor-' not in drawn, "one of them"
    for label in ("inductor-1", "inductor-2"):
        app = opened_run(label, part="Device")
        assert any(said in warning.value for warning in app.warning)
