"""The energy that backends save, and after how many steps it has repaid compiling."""

from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.settings import Prices
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.energy import EnergySaving
from breakeven.storage.comparison.plan import plan
from breakeven.storage.words.answer_sentence import answer_words, plan_details
from tests.helpers.comparisons import compared
from tests.helpers.device_journals import SAMPLE
from tests.helpers.journals import Recording, experiment_spec, falling_losses

pytestmark = pytest.mark.heavy

SPEC = experiment_spec(num_steps=110, block_steps=10, controls=1)
BASELINE = (400.0, 400.0)
"""Energy of the first block, which compiles, and of each of ten steady blocks, all of ten steps."""


def record(
    folder: Path,
    joules: dict[str, tuple[float | None, float]],
    spec: ExperimentSpec = SPEC,
    step_seconds: float = 0.05,
    energy_devices: int | None = None,
) -> DataDir:
    """A baseline and a control of 0.1 s a step, and backends, which compile for 20 s."""
    data_dir = DataDir(folder / "data")
    losses = falling_losses(spec.num_steps)
    for label, (first, steady) in {"baseline": BASELINE, "control": BASELINE, **joules}.items():
        is_backend = label in joules
        recording = Recording(data_dir.runs, label, spec).claim()
        recording.start(environment={"gpu_memory_bytes": 80 * 2**30, "device_type": "cuda"})
        for block in range(11):
            seconds = [step_seconds if is_backend else 0.1] * 10
            is_compiled = is_backend and block == 0
            recording.block(
                [20.0, *seconds[1:]] if is_compiled else seconds,
                losses[block * 10 : block * 10 + 10],
                compiled=[0] if is_compiled else (),
            )
            energy = first if block == 0 else steady
            recording.device(**SAMPLE | {"energy_joules": energy, "energy_devices": energy_devices})
        recording.end()
    return data_dir


def saving(data_dir: DataDir, label: str = "inductor") -> EnergySaving | None:
    return compared(data_dir).result_of(label).energy


def plan_text(data_dir: DataDir, steps: int) -> str:
    planned = plan(compared(data_dir), steps)
    return f"{answer_words(planned)} {plan_details(planned, Prices())}"


def test_compiling_is_repaid_by_the_energy_that_steps_save(tmp_path: Path) -> None:
    """Compiling uses 3,300 J less ten steps of 30 J; each step saves 10 of 40 J."""
    data_dir = record(tmp_path, {"inductor": (3300.0, 300.0)})
    energy = saving(data_dir)
    assert energy is not None and energy.break_even is not None
    assert energy.verdict == "faster"
    assert energy.ratio.median == pytest.approx(4 / 3)
    assert energy.break_even.compile_seconds == pytest.approx(3000)
    assert energy.break_even.steps == pytest.approx(300)
    # 3,000 J and 7,200 steps of 30 J are 219 kJ, or 60.8 Wh; 7,200 of 40 J are 80 Wh.
    text = plan_text(data_dir, 7200)
    assert "Compiling and steps use 60.8 instead of 80.0 Wh." in text
    assert "In energy, compiling pays off after 300 steps (300 to 300)." in text


def test_a_faster_backend_of_higher_power_saves_no_energy(tmp_path: Path) -> None:
    data_dir = record(tmp_path, {"inductor": (3300.0, 500.0)})
    result = compared(data_dir).result_of("inductor")
    assert result.speed_verdict == "faster" and result.energy is not None
    assert result.energy.verdict == "slower"
    assert result.value("energy_break_even_steps") == float("inf")
    assert "inductor saves no energy." in plan_text(data_dir, 7200)


def test_a_backend_that_compiles_nothing_has_a_saving_and_no_break_even(tmp_path: Path) -> None:
    spec = replace(SPEC, backends=("none:optimizer=fused",))
    data_dir = DataDir(tmp_path / "data")
    losses = falling_losses(spec.num_steps)
    for label, steady in (("baseline", 400.0), ("control", 400.0), ("none-fused", 200.0)):
        recording = Recording(data_dir.runs, label, spec).claim()
        recording.start(environment={"gpu_memory_bytes": 80 * 2**30, "device_type": "cuda"})
        for block in range(11):
            recording.block([0.1] * 10, losses[block * 10 : block * 10 + 10])
            recording.device(**SAMPLE | {"energy_joules": steady})
        recording.end()
    energy = saving(data_dir, "none-fused")
    assert energy is not None and energy.break_even is None
    assert energy.ratio.median == pytest.approx(2.0)


@pytest.mark.parametrize("what", ["together", "unwatched"])
def test_without_the_energy_of_its_compiling_a_backend_has_no_break_even(
    tmp_path: Path, what: str
) -> None:
    spec = replace(SPEC, compile="together") if what == "together" else SPEC
    first = None if what == "unwatched" else 3300.0
    data_dir = record(tmp_path, {"inductor": (first, 300.0)}, spec)
    energy = saving(data_dir)
    assert energy is not None and energy.break_even is None
    assert "The steps use 60.0 instead of 80.0 Wh." in plan_text(data_dir, 7200)


def test_a_counter_that_did_not_advance_in_a_block_shows_no_saving(tmp_path: Path) -> None:
    """Else only those blocks would count in which the counter advanced, perhaps for two."""
    assert saving(record(tmp_path, {"inductor": (3300.0, 0.0)})) is None


def test_runs_on_two_devices_have_the_energy_of_both(tmp_path: Path) -> None:
    """As in the first test, with the sum of both counters."""
    spec = replace(SPEC, devices=("cuda:0", "cuda:1"), parallel="ddp")
    data_dir = record(tmp_path, {"inductor": (3300.0, 300.0)}, spec, energy_devices=2)
    assert compared(data_dir).result_of("inductor").measured.energy_per_step == pytest.approx(30)
    assert "Compiling and steps use 60.8 instead of 80.0 Wh." in plan_text(data_dir, 7200)


@pytest.mark.parametrize("num_machines", [1, 2])
def test_the_energy_of_one_device_or_machine_is_not_that_of_all(
    tmp_path: Path, num_machines: int
) -> None:
    """Older journals have the energy of one device; on several machines nobody reads all."""
    spec = replace(SPEC, devices=("cuda:0", "cuda:1"), parallel="ddp", nodes=num_machines)
    num_metered = None if num_machines == 1 else 2
    data_dir = record(tmp_path, {"inductor": (3300.0, 300.0)}, spec, energy_devices=num_metered)
    result = compared(data_dir).result_of("inductor")
    assert result.energy is None and result.measured.energy_per_step is None
    assert " Wh" not in plan_text(data_dir, 7200)


PRICES = Prices(device_hour=2.0, kwh=0.25, co2_grams_per_kwh=500.0, currency="EUR")


def for_any_length(data_dir: DataDir, prices: Prices) -> str:
    planned = plan(compared(data_dir), None)
    return f"{answer_words(planned)} {plan_details(planned, prices)}"


def test_a_training_without_an_end_has_amounts_per_hour(tmp_path: Path) -> None:
    """Steps of 0.05 and 0.1 s, with 30 and 40 J: 2.16 and 1.44 MJ per hour."""
    data_dir = record(tmp_path, {"inductor": (3300.0, 300.0)})
    assert for_any_length(data_dir, PRICES) == (
        "Below 399 steps (399 to 399), do not compile; from 399 steps (399 to 399) on, use "
        "inductor; inductor learns the same thing. Per hour with inductor: 72,000 "
        "instead of 36,000 steps, 0.600 instead of 0.400 kWh, 0.300 instead of 0.200 kg of CO2, "
        "2.15 instead of 2.10 EUR."
    )
    assert for_any_length(data_dir, Prices()).endswith("steps, 0.600 instead of 0.400 kWh.")


def test_an_hour_costs_the_price_of_all_devices(tmp_path: Path) -> None:
    """Without energy, so the price of energy is said to be missing."""
    spec = replace(SPEC, devices=("cuda:0", "cuda:1"), parallel="ddp")
    data_dir = record(tmp_path, {"inductor": (3300.0, 300.0)}, spec)
    assert for_any_length(data_dir, PRICES).endswith("36,000 steps, 4.00 EUR without energy.")


def test_if_no_backend_is_faster_an_hour_is_that_without_a_compiler(tmp_path: Path) -> None:
    data_dir = record(tmp_path, {"inductor": (3300.0, 300.0)}, step_seconds=0.1)
    text = for_any_length(data_dir, PRICES)
    assert text.endswith(
        "Per hour without a compiler: 36,000 steps, 0.400 kWh, 0.200 kg of CO2, 2.10 EUR."
    )
