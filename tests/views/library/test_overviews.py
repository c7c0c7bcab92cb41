"""Matrix, Trends and Devices as a reader gets them."""

import json
import socket
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.states import Exit, RunState
from tests.helpers.journals import Recording, experiment_spec, falling_losses, record_experiment
from tests.helpers.machine import MACHINE
from tests.helpers.nights import NOISE, SPEC, record_night, record_slower_torch
from tests.helpers.pages import close_store, compare_all, opened, text

pytestmark = pytest.mark.heavy


def trends(**query: str) -> str:
    return text(opened("experiments", view="Trends", **query))


def test_a_worse_level_is_told_first_and_nothing_called_well_above_a_backend_that_failed_last(
    folder: DataDir,
) -> None:
    record_slower_torch(folder)
    compare_all(folder)
    said = trends()
    assert "1 step to a worse level" in said
    assert "**inductor** since" in said and "2026-11-09" in said
    assert "torch 2.12.0 to 2.13.0" in said
    assert "experiment=20261109-093015-123456-7f3a" in said, "its first experiment is a click away"
    # Eight nights with the torch before, of which no step can be told, and eleven.
    before = {"torch": "2.12.0"}
    assert "Too few experiments to detect a change" in trends(**before)
    for day in (13, 14, 15):
        last = record_night(folder, day, 0.1 * NOISE[day % 6], versions=before)
    close_store(folder)
    compare_all(folder)
    assert "No number became worse" in trends(**before)
    crashed = folder.run_dir(f"{last}.inductor")
    crashed.exit_file.unlink()
    crashed.write_exit(Exit.now(RunState.FAILED, "it broke", 1))
    close_store(folder)
    compare_all(folder)
    said = trends(**before)
    assert "1 latest run failed" in said and "No number became worse" not in said


def test_cells_that_differ_in_more_than_the_columns_say_so(folder: DataDir) -> None:
    record_experiment(folder.runs, SPEC)
    bigger = replace(SPEC, data=replace(SPEC.data, num_train_samples=40 * 16),
                     training=replace(SPEC.training, batch_size=16,
                                      precision="bf16"))  # fmt: skip
    record_experiment(folder.runs, bigger, "20261122-093015-123456-7f3a")
    compare_all(folder)
    app = opened("experiments", view="Matrix", across="batch")
    assert "These experiments also differ in precision (bf16, float32)" in text(app)
    (cells,) = (frame.value for frame in app.dataframe)
    assert list(cells["Batch size"]) == ["8", "16"]
    app = opened("experiments", view="Matrix", across="batch", precision="bf16")
    assert "also differ" not in text(app)


SHORT = experiment_spec(backends=(), num_steps=16, block_steps=2)


def record_day(
    folder: DataDir, day: int, seconds: float, host="node-1", num_blocks=8, control=None
) -> None:
    for variant in SHORT.variants:
        spec = replace(SHORT, name=f"night {day}")
        run = Recording(folder.runs, variant.label, spec, f"202611{day:02d}-093015-123456-7f3a")
        environment = {"host": host, "device_name": "H100", "devices": ["cuda:1"]}
        run.claim().start(environment=environment)
        own = control if control and variant.label == "control" else seconds
        run.blocks([own] * num_blocks, falling_losses(16), 0.0)
        run.evaluation(0.8).end()


def test_a_device_that_became_slow_is_told_first_and_what_is_here_stands_apart(folder: DataDir):
    for day in range(1, 13):
        record_day(folder, day, 0.1 + 0.0001 * (day % 3) + (0.02 if day > 8 else 0.0))
    compare_all(folder)
    app = opened("machine", tab="Devices")
    said = text(app)
    assert "No device is noisy, 1 device became worse" in said
    assert "slower since 2026-11-09" in said and "over its last 4 experiments" in said
    here, elsewhere = (frame.value for frame in app.dataframe)
    assert set(here["id"]) == {one.id for one in MACHINE.devices}
    assert set(here["host"]) == {socket.gethostname()} and set(here["busy"]) == {"nothing"}
    (row,) = elsewhere[elsewhere["host"] == "node-1"].to_dict("records")
    assert (row["device"], row["id"], row["experiments"]) == ("H100", "cuda:1", 12)
    assert row["worse"] == "slower"


def test_a_noisy_device_is_called_so_and_a_single_experiment_has_a_day_of_its_own(folder: DataDir):
    record_day(folder, 1, 0.1, control=0.1 / 1.346)
    compare_all(folder)
    app = opened("machine", tab="Devices")
    said = text(app)
    assert "1 device is noisy" in said and "No device" not in said
    assert "two equal runs differ by up to 34.6 %" in said
    assert "became worse, 11 experiments on it are needed" in said
    (drawn,) = [json.loads(one.proto.json) for one in app.get("bidi_component")
                if "figure" in json.loads(one.proto.json)]  # fmt: skip
    first, last = json.loads(drawn["figure"])["layout"]["xaxis"]["range"]
    assert datetime.fromisoformat(last) - datetime.fromisoformat(first) == timedelta(days=1)


def test_over_time_only_what_is_known_is_offered_and_else_it_says_when_it_will_be(folder: DataDir):
    record_day(folder, 1, 0.1, host="node-2", num_blocks=1)
    compare_all(folder)
    app = opened("machine", tab="Devices")
    assert "begins with its first compared experiment" in text(app) and not app.selectbox
    close_store(folder)
    record_day(folder, 2, 0.1)
    compare_all(folder)
    app = opened("machine", tab="Devices")
    (chosen,) = app.selectbox
    assert [one.rpartition(", ")[2] for one in chosen.options] == ["cuda:1 of node-1"]
    (quantities,) = app.button_group
    assert "Pace of a device" not in quantities.options
