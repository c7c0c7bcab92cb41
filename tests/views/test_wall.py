"""The wall: a tile for each device, large, and nothing to press; and compiling phase by phase."""

import os

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.process import ProcessIdentity
from breakeven.storage.compiling.timeline import PhaseTimes
from breakeven.views.parts import progress
from breakeven.views.parts.progress import Progress
from breakeven.views.parts.wall import going_html, last_html, tile
from tests.helpers.journals import Recording, experiment_spec, falling_losses, record_experiment
from tests.helpers.machine import WITH_GPU, keep
from tests.helpers.pages import compare_all, opened

NOW = pd.Timestamp("2026-11-22 12:00", tz="UTC")
RUNS = pd.DataFrame({"label": ["baseline", "inductor"], "state": "running",
                     "phase": ["waiting", "training"],
                     "compiling_since": pd.NaT})  # fmt: skip
LOSSES = pd.DataFrame({"label": ["baseline"] * 5 + ["inductor"] * 5, "step": [*range(5)] * 2,
                       "loss": [2.0, 1.5, 1.0, 1.0, 1.0, 2.0, 1.0, 0.5, 0.5, 0.5]})  # fmt: skip
GOING = going_html(
    "Race <b>", RUNS, Progress(elapsed=65.0, phases={}, left=90.0, share=0.42), LOSSES, NOW
)
LAST = {"name": "Before", "state": "finished", "best": "inductor", "speedup": 1.32,
        "verdict": "faster", "parity": "holds", "duration": 300.0,
        "submitted": NOW - pd.Timedelta(minutes=10)}  # fmt: skip


def test_a_tile_says_what_runs_whose_turn_it_is_how_far_and_what_came_out_last():
    told = tile("H100", GOING, 2, last_html(LAST, NOW))
    for said in ("<h2>H100</h2>", "2 more in the queue", ">inductor</b> <span>racing</span>",
                 "42 %", "about 1 min 30 s left", "inductor 1.32x", ">faster</em>",
                 "parity matches", "Last: Before, 5 min"):  # fmt: skip
        assert said in told, said
    assert "<b>" not in told.replace("<b>inductor 1.32x</b>", "") and "Race &" in told
    failed = dict.fromkeys(LAST) | {"name": "Before", "state": "failed"}
    told = tile("cpu", last=last_html(failed, NOW))
    assert "Nothing is running." in told and "<p>failed</p>" in told


def test_losses_of_all_runs_are_drawn_on_the_same_axes_and_few_or_infinite_ones_are_no_line():
    # From 2.0 at the top (4 of 90) to 0.5 at the bottom (86), over the whole width of 300.
    assert "0.0%2C4.0%2075.0%2C58.7%20150.0%2C86.0" in GOING
    few, broken = LOSSES.groupby("label").head(4), LOSSES.replace({"loss": {1.0: float("nan")}})
    assert "<svg" not in going_html("Race", RUNS, None, few, NOW)
    assert "polyline" not in going_html("Race", RUNS, None, broken[:5], NOW)


def the_wall() -> tuple[AppTest, str]:
    app = opened("machine", wall="1")
    (wall,) = (one.proto.body for one in app.get("html") if '<div class="wall">' in one.proto.body)
    return app, wall


@pytest.mark.heavy
def test_the_wall_has_every_device_of_the_machine_and_no_controls(folder: DataDir):
    keep(folder, WITH_GPU)
    record_experiment(folder.runs, experiment_spec(num_steps=80, name="Earlier"))
    compare_all(folder)
    spec = experiment_spec(num_steps=80, name="Going on")
    for label in ("baseline", "control", "inductor"):
        run = Recording(folder.runs, label, spec, "20261122-101010-000000-aaaa")
        run.claim(ProcessIdentity.of(os.getpid())).start()
        run.blocks([0.1] * 4, falling_losses(80))
    app, wall = the_wall()
    assert wall.count("<section") == 2
    cpu, gpu = wall.split("</section>")[:2]
    assert "<h2>Test CPU</h2>" in cpu and "Going on" in cpu and 'aria-label="Time done"' in cpu
    assert "Last: Earlier" in cpu and "inductor 2.00x" in cpu
    assert "<h2>Test GPU</h2>" in gpu and "Nothing is running." in gpu
    assert not [*app.button, *app.selectbox, *app.get("page_link")]
    for number, name in enumerate(("Beside it", "Waiting"), start=1):
        for label in ("baseline", "control", "inductor"):
            key = f"20261122-10101{number}-000000-aaaa"
            run = Recording(folder.runs, label, experiment_spec(name=name), key)
            if name != "Waiting":
                run.claim(ProcessIdentity.of(os.getpid())).start()
    first, second, gpu = the_wall()[1].split("</section>")[:3]
    assert "Going on" in first and "1 more in the queue" in first
    assert "Beside it" in second and "more in the queue" not in second
    assert "<h2>Test GPU</h2>" in gpu, "the CPUs are shared, with a tile for each"


def test_phases_now_and_last_time_share_a_scale_and_what_goes_on_is_told_by_the_last_time():
    last = {"Dynamo": 2.0, "AOTAutograd": 8.0}
    since = NOW - pd.Timedelta(seconds=4)
    told = progress.compiling_html([PhaseTimes(label="inductor", since=since, now={}, last=last),
                           PhaseTimes(label="eager", since=None, now={"Dynamo": 5.0}, last={})],
                          NOW)  # fmt: skip
    assert "then in AOTAutograd last time" in told
    assert 'title="Dynamo: 2.0 s" style="width: 20.00%' in told
    assert 'title="going on: 4.0 s" style="width: 40.00%"' in told
    assert 'title="Dynamo: 5.0 s" style="width: 50.00%' in told
    assert progress.compiling_html([], NOW) == ""
