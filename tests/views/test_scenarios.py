"""Pages of scenarios show what was timed or checked first, and leave out what was not done."""

import os

import pandas as pd
import pytest

from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.scenarios.by_name import SCENARIOS
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from breakeven.views.charts import speed as speed_charts
from breakeven.views.comparison import leaderboard
from tests.helpers.correctness_journals import passing, tensor
from tests.helpers.correctness_journals import record as record_check
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses
from tests.helpers.pages import every_tab, opened, opened_run, set_field, text
from tests.helpers.speed_journals import ENOUGH, record_repeats, record_speed, speed_spec

LATER = "20261122-093015-123456-7f3a"


def record(folder: DataDir, part: str) -> None:
    spec = speed_spec(part)
    for label, seconds in (("baseline", 0.2), ("control", 0.2), ("eager", 0.1)):
        compile_seconds = 3.0 if label == "eager" else 0.0
        record_speed(folder, label, spec, seconds, compile_seconds=compile_seconds, num_rounds=20)


@pytest.mark.parametrize("part", ["training", "inference"])
def test_compare_shows_speed_and_no_scores(part: str, folder: DataDir):
    record(folder, part)
    said = "\n".join(map(text, every_tab(experiment=EXPERIMENT_ID)))
    does = "trains" if part == "training" else "answers"
    assert f"**eager** {does} at 2.00x (2.00 to 2.00) the speed without a compiler" in said
    assert "pays for its compiling after 31 steps" in said
    assert f"Measuring ended after 20 rounds: {ENOUGH}." in said
    assert ("; eager learns the same thing." in said) is (part == "training")
    assert ("The scenario `accuracy` checks" in said) is (part == "inference")
    assert "**Speedup**" in said and "**Step time**" in said
    assert ("**Training loss**" in said) is (part == "training")
    assert "**Accuracy**" not in said and "**Evaluation loss**" not in said
    with Store.in_memory(folder) as store:
        results = compare(store, EXPERIMENT_ID).results
    table = leaderboard.html(results, SCENARIOS["speed"])
    assert ">Accuracy<" not in table
    assert (">Parity<" in table) is (part == "training")
    assert f"**baseline, control, eager** stopped early after 42 steps: {ENOUGH}" in said
    run = text(opened_run("eager"))
    assert ("**Training loss**" in run) is (part == "training")
    assert "**Time of every step**" in run and f"after 42 steps: {ENOUGH}" in run


def test_repeats_are_one_row_and_charts_show_their_processes(folder: DataDir):
    record_repeats(folder, (2.0, 2.2, 1.8))
    runs = opened(tab="Runs").session_state["runs"]
    assert list(runs) == ["baseline", "control", "eager"]
    assert "eager 64.7 %; processes of the same run differ" in text(opened())
    with Store.in_memory(folder) as store:
        comparison = compare(store, EXPERIMENT_ID)
    results, ratios = comparison.results, comparison.round_speedups
    rounds = ratios.groupby(["label", "process"])["round"].agg(["min", "max"])
    assert rounds.values.tolist() == [[2, 9]] * 6
    figure = speed_charts.speedups(results, ratios, 0.02)
    rings = [trace for trace in figure.data if trace.marker.symbol == "circle-open"]
    assert sorted(rings[-1].x) == pytest.approx([1.8, 2.0, 2.2])
    ends = next(trace for trace in figure.data if trace.mode == "lines" and trace.y[0] == "eager")
    assert list(ends.x) == pytest.approx([1.5534, 2.5578], abs=1e-3)


def test_rounds_so_far_are_charted_process_by_process():
    rounds = range(1, 4)
    ratios = pd.DataFrame(
        {
            "label": ["eager"] * 6,
            "role": ["backend"] * 6,
            "process": [1] * 3 + [2] * 3,
            "round": [*rounds, *rounds],
            "speedup": [1.0, 1.2, 1.4, 2.0, 2.0, 2.2],
        }
    )
    lines = [trace for trace in speed_charts.round_by_round(ratios).data if trace.mode == "lines"]
    assert [list(line.y) for line in lines] == [
        pytest.approx([1.0, 1.1, 1.2]),
        pytest.approx([2.0, 2.0, 2.0]),
    ]
    assert [line.showlegend for line in lines] == [True, False]


def test_launch_and_live_say_how_long_measuring_lasts_at_most_and_when_it_ends(folder: DataDir):
    app = opened("launch")
    set_field(app, "scenario", "speed")
    said = text(app.run())
    assert "at most **2,020 steps** each: 2 warm-up turns, then 20 to 200 rounds of 10" in said
    assert "on the same 8 batches. It ends by itself once every speedup is known" in said
    me = ProcessIdentity.from_pid(os.getpid())
    Recording(folder.runs, "baseline", speed_spec()).claim(me).start()
    said = text(opened("experiment", experiment=EXPERIMENT_ID))
    assert "The experiment ends once every speedup is known to within 2.0 %" in said


@pytest.mark.parametrize("scenario", ["accuracy", "cache"])
def test_a_check_that_runs_shows_what_each_run_does_and_promises_no_losses(
    folder: DataDir, scenario: str
) -> None:
    spec = experiment_spec(scenario=scenario)
    for arm in spec.arms:
        Recording(folder.runs, arm.label, spec).claim(ProcessIdentity.from_pid(os.getpid())).start()
    app = opened("experiment", experiment=EXPERIMENT_ID)
    (rows,) = (
        element.proto.body for element in app.get("html") if "run-rows" in element.proto.body
    )
    assert rows.count('role="listitem"') == len(spec.arms)
    assert (" steps" in rows) == (scenario == "cache")
    assert "losses appear here" not in text(app)


def test_compare_shows_checks_instead_of_speeds(folder: DataDir) -> None:
    record_check(folder, "baseline", passing())
    record_check(folder, "eager", passing())
    wrong = {"training": ("fail_accuracy", [tensor("a", passed=False)])}
    record_check(folder, "inductor", {**wrong, **passing("inference")})
    app = opened("experiment", experiment=EXPERIMENT_ID)
    assert "Wrong results: **inductor**" in text(app)
    assert "Noise floor" not in text(app)
    shown, failed = (frame.value for frame in app.dataframe)
    assert list(shown["Status"]).count("pass") == 5
    assert list(failed["Tensor"]) == ["a"]


def test_an_experiment_whose_baseline_failed_says_why_first_and_advises_nothing(folder: DataDir):
    losses = falling_losses(10)
    for label in ("baseline", "control", "inductor"):
        run = Recording(folder.runs, label).claim().start().block([0.2] * 10, losses)
        run.end(RunState.FAILED, "the sensor is gone")
    app = opened("experiment", experiment=EXPERIMENT_ID)
    assert "the sensor is gone" in app.error[0].value
    assert "Do not compile" not in text(app)
    for label in ("baseline", "control", "inductor"):
        Recording(folder.runs, label, None, LATER).claim().end(RunState.FAILED, "exit status 1")
    shown = text(opened(experiment=LATER))
    assert shown.count("did not finish") == 1
    assert "Nothing worked: baseline and inductor did not finish." in shown
    assert "No step was recorded" in text(opened(experiment=LATER, tab="Learning"))


def test_an_experiment_that_has_said_nothing_of_its_machine_yet_names_the_device_it_asked_for(
    folder: DataDir,
) -> None:
    for label in ("baseline", "control", "inductor"):
        Recording(folder.runs, label).claim(ProcessIdentity.from_pid(os.getpid()))
    app = opened("experiment", experiment=EXPERIMENT_ID)
    (origin,) = (
        element.value
        for element in app.caption
        if " on " in element.value and "2026" in element.value
    )
    assert origin.startswith("cpu, ") and "nan" not in origin
