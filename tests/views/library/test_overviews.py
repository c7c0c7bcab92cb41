"""Matrix, Trends and Devices as readers see them."""

import re
import socket
from dataclasses import replace

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.states import RunState
from tests.helpers.journals import EXPERIMENT_ID, record_experiment
from tests.helpers.machine import MACHINE
from tests.helpers.nights import NOISE, SPEC, record_night, record_slower_torch
from tests.helpers.pages import close_store, compare_all, opened, text

pytestmark = pytest.mark.heavy


def trends(**query: str) -> str:
    return text(opened("experiments", view="Trends", **query))


def test_a_worse_level_is_told_first(folder: DataDir) -> None:
    record_slower_torch(folder)
    compare_all(folder)
    said = trends()
    assert "1 step to a worse level" in said
    assert "**inductor** since" in said and "2026-11-09" in said
    assert "torch 2.12.0 to 2.13.0" in said
    assert "experiment=20261109-093015-123456-7f3a" in said, "its first experiment is a click away"
    # Eight nights with the previous torch are too few to detect a step.
    assert "Too few experiments to detect a change" in trends(torch="2.12.0")


@pytest.mark.slow
def test_nothing_is_called_well_above_a_backend_that_failed_last(folder: DataDir) -> None:
    """Eleven nights with one torch."""
    record_slower_torch(folder)
    before = {"torch": "2.12.0"}
    for day in (13, 14, 15):
        last = record_night(folder, day, 0.1 * NOISE[day % 6], versions=before)
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
    bigger = replace(
        SPEC,
        data=replace(SPEC.data, num_train_samples=40 * 16),
        training=replace(SPEC.training, batch_size=16, precision="bf16"),
    )
    record_experiment(folder.runs, bigger, "20261122-093015-123456-7f3a")
    compare_all(folder)
    app = opened("experiments", view="Matrix", across="batch")
    # Unasked, only the precision of the latest experiment is shown.
    assert "also differ" not in text(app)
    (cells,) = (frame.value for frame in app.dataframe)
    assert list(cells["Batch size"]) == ["16"]
    app.button_group(key="matrix-of").set_value("all").run()
    assert "These experiments also differ in precision (bf16, float32)" in text(app)
    (cells,) = (frame.value for frame in app.dataframe)
    assert list(cells["Batch size"]) == ["8", "16"]
    app = opened("experiments", view="Matrix", across="batch", precision="bf16")
    assert "also differ" not in text(app)


def test_the_devices_of_this_machine_are_listed_with_what_they_are_busy_with(folder: DataDir):
    app = opened("machine", tab="Devices")
    (shown,) = (frame.value for frame in app.dataframe)
    assert set(shown["id"]) == {device.id for device in MACHINE.devices}
    assert set(shown["host"]) == {socket.gethostname()} and set(shown["busy"]) == {"nothing"}


def test_side_by_side_suggests_pairs_of_one_model_and_data(folder: DataDir) -> None:
    record_experiment(folder.runs, SPEC)
    second = "20261122-093015-123456-7f3a"
    record_experiment(folder.runs, SPEC, second)
    app = opened("experiments", view="Side by side")
    (link,) = [link for link in app.get("page_link") if "side=" in link.proto.query_string]
    assert set(re.findall("side=([^&]+)", link.proto.query_string)) == {EXPERIMENT_ID, second}
