"""A speed experiment on the pages: what is timed is in plain view, what was not done stays away."""

import os

import pandas as pd
import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.process import ProcessIdentity
from breakeven.runner.specs.scenarios import SCENARIOS
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.rounds import round_speedups
from breakeven.storage.index.store import Store
from breakeven.views.charts import palette
from breakeven.views.charts import speed as speed_charts
from breakeven.views.comparison import leaderboard
from tests.helpers.journals import EXPERIMENT_ID, Recording
from tests.helpers.pages import every_tab, opened, opened_run, set_field, text
from tests.helpers.speed_journals import ENOUGH, record_repeats, record_speed, speed_spec


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
    assert ("It learns the same thing" in said) is (part == "training")
    assert ("The scenario `accuracy` checks" in said) is (part == "inference")
    assert "**Speedup**" in said and "**Step time**" in said
    assert ("**Training loss**" in said) is (part == "training")
    assert "**Accuracy**" not in said and "**Evaluation loss**" not in said
    table = leaderboard.html(compared(folder).results, SCENARIOS["speed"])
    assert ">Accuracy<" not in table
    assert (">Parity<" in table) is (part == "training")


def compared(folder: DataDir):
    with Store.in_memory(folder) as store:
        return compare(store, EXPERIMENT_ID)


def test_repeats_are_one_row_and_charts_show_their_processes(folder: DataDir):
    record_repeats(folder, (2.0, 2.2, 1.8))
    runs = opened(tab="Runs").session_state["runs"]
    assert list(runs) == ["baseline", "control", "eager"]
    assert "eager 64.7 %; processes of the same run differ" in text(opened())
    with Store.in_memory(folder) as store:
        results = compare(store, EXPERIMENT_ID).results
        ratios = round_speedups(store, EXPERIMENT_ID)
    assert (
        ratios.groupby(["label", "process"])["round"].agg(["min", "max"]).values.tolist()
        == [[2, 9]] * 6
    )
    figure = speed_charts.speedups(results, ratios, 0.02)
    rings = [trace for trace in figure.data if trace.marker.symbol == "circle-open"]
    assert sorted(rings[-1].x) == pytest.approx([1.8, 2.0, 2.2])
    ends = next(trace for trace in figure.data if trace.mode == "lines" and trace.y[0] == "eager")
    assert list(ends.x) == pytest.approx([1.5534, 2.5578], abs=1e-3)


def test_rounds_so_far_are_charted_process_by_process():
    rounds = range(1, 4)
    ratios = pd.DataFrame({
        "label": ["eager"] * 6, "role": ["backend"] * 6, "process": [1] * 3 + [2] * 3,
        "round": [*rounds, *rounds], "speedup": [1.0, 1.2, 1.4, 2.0, 2.0, 2.2],
    })  # fmt: skip
    lines = [one for one in speed_charts.round_by_round(ratios).data if one.mode == "lines"]
    assert [list(line.y) for line in lines] == [
        pytest.approx([1.0, 1.1, 1.2]), pytest.approx([2.0, 2.0, 2.0]),
    ]  # fmt: skip
    assert [line.showlegend for line in lines] == [True, False]


def test_live_and_run_have_no_loss_where_there_is_none(folder: DataDir):
    record(folder, "inference")
    live = text(opened(experiment=EXPERIMENT_ID))
    assert "loss 1" not in live
    assert f"**baseline, control, eager** stopped early after 42 steps: {ENOUGH}" in live
    run = opened_run("eager")
    assert "**Training loss**" not in text(run) and "**Time of every step**" in text(run)
    assert f"after 42 steps: {ENOUGH}" in text(run)


def test_live_says_while_it_runs_that_measuring_ends_by_itself(folder: DataDir):
    spec = speed_spec()
    Recording(folder.runs, "baseline", spec).claim(ProcessIdentity.of(os.getpid())).start()
    said = text(opened("experiment", experiment=EXPERIMENT_ID))
    assert "The experiment ends once every speedup is known to within 2.0 %" in said


def test_launch_says_how_long_measuring_lasts_at_most_and_when_it_ends(folder: DataDir):
    app = opened("launch")
    set_field(app, "scenario", "speed")
    said = text(app.run())
    assert "at most **2,020 steps** each: 2 warm-up turns, then 20 to 200 rounds of 10" in said
    assert "on the same 8 batches. It ends by itself once every speedup is known" in said


def test_repeats_look_like_what_they_repeat():
    looks = palette.run_looks(["baseline-1", "eager-1", "baseline-2", "eager-2", "mine-2"])
    assert looks["baseline-1"] == looks["baseline-2"] == palette.KNOWN["baseline"]
    assert looks["eager-1"] == looks["eager-2"] == palette.KNOWN["eager"]
    assert looks["mine-2"] not in palette.KNOWN.values()
