"""The page Devices as a reader gets it."""

import json
import socket
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from breakeven.runner.folders.data_dir import DataDir
from tests.helpers.journals import Recording, experiment_spec, falling_losses
from tests.helpers.machine import MACHINE
from tests.helpers.pages import compare_all, opened, text

pytestmark = pytest.mark.heavy
SPEC = experiment_spec(backends=(), num_steps=16, block_steps=2)


def record(
    folder: DataDir,
    day: int,
    seconds: float,
    *,
    host: str = "node-1",
    num_blocks: int = 8,
    control: float | None = None,
) -> None:
    for variant in SPEC.variants:
        spec = replace(SPEC, name=f"night {day}")
        run = Recording(folder.runs, variant.label, spec, f"202611{day:02d}-093015-123456-7f3a")
        environment = {"host": host, "device_name": "H100", "devices": ["cuda:1"]}
        run.claim().start(environment=environment)
        own = control if control and variant.label == "control" else seconds
        run.blocks([own] * num_blocks, falling_losses(16), 0.0)
        run.evaluation(0.8).end()


def test_a_device_that_became_slow_is_told_first_and_what_is_here_stands_apart(
    folder: DataDir,
) -> None:
    for day in range(1, 13):
        record(folder, day, 0.1 + 0.0001 * (day % 3) + (0.02 if day > 8 else 0.0))
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


def test_a_noisy_device_is_called_so_and_a_single_experiment_has_a_day_of_its_own(
    folder: DataDir,
) -> None:
    record(folder, 1, 0.1, control=0.1 / 1.346)
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


def test_over_time_only_what_is_known_is_offered(folder: DataDir) -> None:
    """A chart of nothing has an axis from -1 to 6, and says no more."""
    record(folder, 1, 0.1, host="node-2", num_blocks=1)
    record(folder, 2, 0.1)
    compare_all(folder)
    app = opened("machine", tab="Devices")
    (chosen,) = app.selectbox
    assert [one.rpartition(", ")[2] for one in chosen.options] == ["cuda:1 of node-1"]
    (quantities,) = app.button_group
    assert "Pace of a device" not in quantities.options


def test_where_nothing_is_known_over_time_it_says_when_it_will_be(folder: DataDir) -> None:
    record(folder, 1, 0.1, host="node-2", num_blocks=1)
    compare_all(folder)
    app = opened("machine", tab="Devices")
    assert "begins with its first compared experiment" in text(app) and not app.selectbox
