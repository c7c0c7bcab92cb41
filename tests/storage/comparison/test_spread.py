"""Experiments whose runs are spread over equal devices, written by hand: who is compared with
whom, and what the devices differ by in every interval."""

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec, SpeedSpec
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.speedups import device_difference
from tests.helpers.comparisons import row_of, warnings_of
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec
from tests.helpers.speed_journals import record_speed

FAST, SLOW = 0.2, 0.25
"""Seconds that a step of the baseline takes on the first and on the second device."""


def spread_spec(repeats: int = 1) -> ExperimentSpec:
    return experiment_spec(
        scenario="speed", backends=("eager", "aot_eager"), block_steps=2, num_steps=40,
        devices=("cpu", "cpu"), parallel="spread",
        speed=SpeedSpec(part="training", warm_up_blocks=1, min_rounds=6, max_rounds=30, batches=2,
                        repeats=repeats),
    )  # fmt: skip


def record(
    data_dir: DataDir, ratios: dict[str, float], slow: float = SLOW, repeats: int = 1
) -> Comparison:
    """Each run takes what its device takes, over its ratio."""
    spec = spread_spec(repeats)
    for variant in spec.variants:
        seconds = FAST if variant.place == 1 else slow
        ratio = ratios.get(variant.backend or "", 1.0)
        compiling = 3.0 if variant.backend else 0.0
        record_speed(data_dir, variant.label, spec, seconds / ratio, compile_seconds=compiling)
    with Store.in_memory(data_dir) as store:
        return compare(store, EXPERIMENT_ID)


def test_a_slow_device_makes_no_backend_faster_or_slower(data_dir: DataDir) -> None:
    comparison = record(data_dir, {})
    assert [one.label for one in comparison.results] == [
        "baseline", "control", "eager", "aot_eager"]  # fmt: skip
    for label in ("eager", "aot_eager"):
        found = row_of(comparison, label)
        assert found.speedup.median == pytest.approx(1.0)
        assert found.speed_verdict == "unsure", "25 % between the devices: nothing is the same"


def test_the_difference_between_devices_widens_every_interval_and_break_even(
    data_dir: DataDir,
) -> None:
    comparison = record(data_dir, {"eager": 2.0, "aot_eager": 1.2})
    eager, other = (row_of(comparison, label) for label in ("eager", "aot_eager"))
    # All rounds are alike, so that the interval has no width but 0.25 / 0.2 = 1.25 to both sides.
    assert (eager.speedup.median, eager.speedup.low, eager.speedup.high) == pytest.approx(
        (2.0, 1.6, 2.5))  # fmt: skip
    assert eager.speed_verdict == "faster"
    # 1.2 / 1.25 = 0.96: what is less than the devices differ by is not called faster.
    assert (other.speedup.low, other.speedup.high) == pytest.approx((0.96, 1.5))
    assert other.speed_verdict == "unsure"
    assert any("The baseline takes 1.25x as long on the slowest" in one
               for one in warnings_of(comparison))  # fmt: skip
    found = eager.break_even
    # Eager saves 0.2 - 0.1 s a step, at least 0.2 / 1.25 - 0.1 = 0.06, at most 0.25 - 0.1 = 0.15;
    # compiling took 3.1 s as in `test_warm_up_counts_for_nothing_but_compile_latency`.
    assert (found.steps, found.low, found.high) == pytest.approx((31, 3.1 / 0.15, 3.1 / 0.06))


def test_the_interval_of_spread_repeats_is_not_widened_again(data_dir: DataDir) -> None:
    spec = spread_spec(repeats=2)
    places = {one.label: one.place for one in spec.variants if one.role == "backend"}
    assert places == {"eager-1": 1, "aot_eager-1": 2, "eager-2": 2, "aot_eager-2": 1}
    comparison = record(data_dir, {"eager": 2.0}, repeats=2)
    eager = row_of(comparison, "eager").speedup
    assert eager.n == 16
    assert (eager.low, eager.high) == pytest.approx((2.0, 2.0))
    assert any("repeats went from device to device" in one for one in warnings_of(comparison))


def test_equal_devices_leave_an_interval_as_it_is(data_dir: DataDir) -> None:
    comparison = record(data_dir, {"eager": 1.1}, slow=FAST)
    eager, other = (row_of(comparison, label) for label in ("eager", "aot_eager"))
    assert (eager.speedup.low, eager.speed_verdict) == (pytest.approx(1.1), "faster")
    assert other.speed_verdict == "same"


def test_how_much_devices_differ_is_told_by_medians_over_their_blocks() -> None:
    # 1.0, 1.2, 9.0 s a step on the first device: 1.2; 1.5 on the second.
    found = device_difference([2.0, 2.4, 18.0, 3.0], [2, 2, 2, 2], [1, 1, 1, 2])
    assert found == pytest.approx(1.5 / 1.2)
    assert device_difference([3.0, 3.1], [2, 2], [1, 1]) == 1.0
