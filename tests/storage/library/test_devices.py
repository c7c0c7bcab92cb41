"""Devices over time: what one experiment tells of one, and which became noisy or slow."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.__main__ import main
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import compute
from breakeven.storage.library.devices import DeviceHistory, Moment, devices
from breakeven.storage.library.summary import DeviceReading, device_readings
from breakeven.storage.terminal.lists import devices_report, devices_verdict, worsening_words
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses
from tests.helpers.speed_journals import record_speed
from tests.storage.comparison.test_spread import spread_spec

GPU = DeviceReading(
    id="cuda:0", name="H100", host="node-1", driver=None, max_sm_clock_mhz=None,
    power_limit_watts=None, torch="2.13.0", noise=None, stray=None, step_seconds=None,
)  # fmt: skip


def device(noises: list[float], paces: list[float] | None = None) -> DeviceHistory:
    days = pd.date_range("2026-01-01", periods=len(noises), tz="UTC")
    return DeviceHistory("node-1", "cuda:0", "H100", tuple(
        Moment(experiment_id=f"x{day}", name=f"night {day}", submitted=when,
               reading=replace(GPU, noise=noise), pace=paces[day] if paces else None)
        for day, (when, noise) in enumerate(zip(days, noises, strict=True))
    ))  # fmt: skip


def noises(seed: int, count: int = 20) -> list[float]:
    """Of a device that stays as it is: noise floors are far from normal."""
    return list(0.01 * np.random.default_rng(seed).lognormal(0.0, 0.5, count))


def test_a_device_that_becomes_noisy_is_named_with_its_day_and_one_that_calms_down_is_not() -> None:
    early, late = noises(1)[:10], [6 * one for one in noises(2)[:10]]
    (found,) = device([*early, *late]).worsenings
    assert (found.quantity, found.step.p_value <= 0.01) == ("device_noise", True)
    assert abs(found.step.index - 10) <= 1
    assert str(worsening_words(found)).startswith("noisier since 2026-01-1")
    assert device([*late, *early]).worsenings == ()


def test_a_device_that_is_slower_by_a_tenth_is_named_and_by_a_hundredth_is_not() -> None:
    calm = [0.01] * 20
    for factor, named in ((1.1, ["device_pace"]), (1.01, [])):
        paces = [1.0 + 0.002 * (day % 3) for day in range(10)]
        slower = [factor * pace for pace in paces]
        worse = device(calm, [*paces, *slower]).worsenings
        assert [one.quantity for one in worse] == named


def test_one_bad_night_is_no_worse_level_and_is_called_noisy_as_long_as_it_is_the_newest() -> None:
    bad = device([*noises(3), 0.5])
    assert bad.worsenings == ()
    assert devices_verdict([bad]) == "1 device is noisy, none became worse"
    assert "two equal runs differ by up to 50.0 %" in devices_report([bad])
    calm = device([0.5, *noises(3)])
    assert not calm.is_noisy and "noisy" not in devices_report([calm])


def test_an_experiment_tells_of_each_device_that_it_was_spread_over(data_dir: DataDir) -> None:
    spec = spread_spec()
    for variant in spec.variants:
        slow = 1.25 if variant.place == 2 else 1.0
        off = 1.02 if variant.label == "control-on-2" else 1.0
        record_speed(data_dir, variant.label, spec, 0.2 * slow * off)
    with Store.in_memory(data_dir) as store:
        one, other = device_readings(store, EXPERIMENT_ID)
    # Blocks of 2 steps that are all alike, so that no interval has a width and nothing strays.
    assert (one.step_seconds, other.step_seconds) == pytest.approx((0.2, 0.25))
    assert (one.noise, other.noise) == pytest.approx((0.0, 1 - 1 / 1.02))
    assert (one.stray, other.stray) == pytest.approx((0.0, 0.0))


def record(data_dir: DataDir, day: int, seconds: float, host: str) -> None:
    spec = replace(experiment_spec(backends=(), num_steps=16, block_steps=2), name=f"night {day}")
    for variant in spec.variants:
        run = Recording(data_dir.runs, variant.label, spec, f"202611{day:02d}-093015-123456-7f3a")
        run.claim().start(environment={"host": host, "device_name": "H100"})
        count = spec.num_steps // spec.block_steps
        run.blocks([seconds] * count, falling_losses(spec.num_steps), 0.0)
        run.evaluation(0.8).end()


@pytest.mark.heavy
def test_pace_is_of_the_same_work(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    for day, seconds in enumerate((0.1, 0.1, 0.1, 0.2), start=1):
        record(data_dir, day, seconds, "node-1")
    record(data_dir, 5, 0.4, "node-2")
    with Store.open(data_dir) as store:  # which keeps what it computed for the command
        store.ingest_all()
        compute(store, 100.0)
        found = {one.host: one for one in devices(store)}
        assert devices(store) is devices(store), "what did not change is not reckoned again"
    assert [one.pace for one in found["node-1"].moments] == pytest.approx([1.0, 1.0, 1.0, 2.0])
    assert [one.pace for one in found["node-2"].moments] == [None], "done there once"
    assert main(["devices", f"--data-folder={data_dir.path}", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {one["host"]: len(one["experiments"]) for one in told}.items() >= {
        "node-1": 4, "node-2": 1}.items()  # fmt: skip
    assert math.isclose(next(one for one in told if one["host"] == "node-1")
                        ["experiments"][-1]["device_pace"], 2.0)  # fmt: skip
