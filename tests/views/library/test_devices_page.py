"""The page Devices as a reader gets it."""

import socket
from dataclasses import replace

import pytest

from runner.folders.data_dir import DataDir
from tests.helpers.journals import Recording, experiment_spec, falling_losses
from tests.helpers.machine import MACHINE
from tests.helpers.pages import compare_all, opened, text

pytestmark = pytest.mark.heavy
SPEC = experiment_spec(backends=(), num_steps=16, block_steps=2)


def record(folder: DataDir, day: int, seconds: float, *, is_over: bool = True) -> None:
    for variant in SPEC.variants:
        spec = replace(SPEC, name=f"night {day}")
        run = Recording(folder.runs, variant.label, spec, f"202611{day:02d}-093015-123456-7f3a")
        environment = {"host": "node-1", "device_name": "H100", "devices": ["cuda:1"]}
        run.claim().start(environment=environment)
        run.blocks([seconds] * 8, falling_losses(16), 0.0)
        if is_over:
            run.evaluation(0.8).end()


def test_a_device_that_became_slow_is_told_first_and_what_is_here_stands_apart(
    folder: DataDir,
) -> None:
    for day in range(1, 13):
        record(folder, day, 0.1 + 0.0001 * (day % 3) + (0.02 if day > 8 else 0.0))
    compare_all(folder)
    app = opened("devices")
    said = text(app)
    assert "1 device became worse" in said
    assert "slower since 2026-11-09" in said and "over its last 4 experiments" in said
    here, elsewhere = (frame.value for frame in app.dataframe)
    assert set(here["id"]) == {one.id for one in MACHINE.devices}
    assert set(here["host"]) == {socket.gethostname()} and set(here["busy"]) == {"nothing"}
    (row,) = elsewhere[elsewhere["host"] == "node-1"].to_dict("records")
    assert (row["device"], row["id"], row["experiments"]) == ("H100", "cuda:1", 12)
    assert row["worse"] == "slower"
