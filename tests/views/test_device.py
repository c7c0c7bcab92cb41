"""Run and Compare show how the device fared, and mark the numbers that this casts doubt on."""

import os

import pandas as pd

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.process import ProcessIdentity
from breakeven.runner.machine.cpus import CpuAllowance
from breakeven.runner.specs.experiment import SpeedSpec
from breakeven.views.charts.library import device_series
from breakeven.views.parts.progress import before_launch
from tests.helpers.device_journals import ON_CUDA, OTHER, SAMPLE, record
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec
from tests.helpers.pages import cards, charts, opened, opened_run, table, text, without_links
from tests.helpers.pages_journals import LOSSES, recording


def test_a_run_shows_its_device_over_the_steps_and_who_else_was_there(folder: DataDir) -> None:
    record(folder, throttle_reasons=["power cap"], processes=[OTHER])
    app = opened_run(part="Device")
    said = text(app)
    assert "The device throttled its clocks: in 3 of 3 steady blocks (power cap)." in said
    assert "8 CPU threads: half of 16." in said
    assert "Device" in cards(app)
    assert '"text":["inductor: power cap"' in charts(app)
    others = table(app, "Pid")
    assert list(others.iloc[0]) == ["4711", "make", 3 * 2**30, "4 of 4"]


def test_a_calm_device_is_shown_without_a_warning(folder: DataDir) -> None:
    record(folder)
    app = opened_run(part="Device")
    assert not app.warning
    assert "held back" not in charts(app)


def test_without_samples_the_tab_says_so(folder: DataDir) -> None:
    recording(folder, "inductor").block([0.1] * 10, LOSSES[:10])
    assert "Nothing is recorded yet" in text(opened_run(part="Device"))


def test_a_comparison_marks_the_numbers_of_the_run_and_charts_all_runs(folder: DataDir) -> None:
    record(folder, throttle_reasons=["power cap"])
    app = opened(experiment=EXPERIMENT_ID, tab="Runs")
    bodies = [entry.proto.body for entry in app.get("html")]
    (board,) = [body for body in bodies if body.startswith('<div class="leaderboard"')]
    rows = {name: board.split(name)[1].split("</tr>")[0] for name in ("baseline", "inductor")}
    assert rows["baseline"].count('class="doubt"') == 0
    assert rows["inductor"].count('class="doubt"') == 2, "beside speedup and step time"
    assert "in 3 of 3 steady blocks (power cap)" in rows["inductor"]
    warning = opened(experiment=EXPERIMENT_ID).warning[0].value
    assert "The device throttled its clocks: inductor in 3 of 3" in warning
    assert "Device" in cards(app)


def test_a_share_is_drawn_in_per_cent_and_what_was_held_back_is_marked() -> None:
    frame = pd.DataFrame({
        "run_id": "x.baseline", "label": "baseline", "role": "baseline", "step": [0, 10, 20],
        "others_cpu_share": [0.1, 0.5, 0.2], "held_back": [None, "quota used up", None],
    })  # fmt: skip
    figure = device_series(frame, "others_cpu_share")
    line, marks = figure.data
    assert list(line.y) == [0.1, 0.5, 0.2]
    assert (list(marks.x), list(marks.text)) == ([10], ["baseline: quota used up"])
    assert figure.layout.yaxis.tickformat == ".2~%"


def test_a_clock_that_holds_still_has_its_numbers_written_alike() -> None:
    frame = pd.DataFrame({
        "run_id": "x.baseline", "label": "baseline", "role": "baseline", "step": [0, 10],
        "sm_clock_mhz": [1980.0, 1980.0], "held_back": [None, None],
    })  # fmt: skip
    assert device_series(frame, "sm_clock_mhz").layout.yaxis.tickformat == ","


def test_a_race_says_how_its_device_is_now(folder: DataDir) -> None:
    spec = experiment_spec(devices=("cuda:0",))
    run = Recording(folder.runs, "inductor", spec).claim(ProcessIdentity.of(os.getpid())).start()
    run.block([0.1] * 10, LOSSES[:10])
    run.device(**SAMPLE | {"throttle_reasons": ["power cap"], "processes": [OTHER]})
    clocks_alone = {name: SAMPLE[name] for name in ("sm_clock_mhz", "temperature_celsius")}
    for _ in range(6):  # blocks without the time for a look at other processes
        run.block([0.1] * 10, LOSSES[:10])
        run.device(**clocks_alone, wall_seconds=1.0, throttle_reasons=["power cap"])
    said = without_links(text(opened("experiment", experiment=EXPERIMENT_ID)))
    assert "1,980 MHz, 50 \N{DEGREE SIGN}C; held back: power cap" in said
    assert "other processes on the device: make (pid 4711)" in said


def test_a_busy_machine_is_mentioned_before_a_launch() -> None:
    allowance = CpuAllowance(in_machine=8, cpus=frozenset(range(8)), quota=None)
    assert before_launch(allowance, load=3.9) == ""
    assert "load average 4.5" in before_launch(allowance, load=4.5)
    assert "on 8 CPUs" in before_launch(allowance, load=4.5)


def test_repeats_of_a_run_are_judged_together_and_each_page_says_so(folder: DataDir) -> None:
    spec = experiment_spec(scenario="speed", speed=SpeedSpec(repeats=2, batches=4))
    for variant in spec.variants:
        run = Recording(folder.runs, variant.label, spec).claim().start(environment=ON_CUDA)
        reasons = ["power cap"] if variant.label.startswith("inductor") else []
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
