"""How several devices scale against one, from recordings made by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, TrainingSpec
from breakeven.storage.__main__ import main
from breakeven.storage.difference.sides import load_sides
from breakeven.storage.difference.speedups import Refusal, Scaling, scaling_kind, scalings
from breakeven.storage.index.store import Store
from tests.helpers.journals import Recording, experiment_spec, falling_losses

ONE, TWO, THREE = (f"2026112{day}-093015-123456-7f3a" for day in (1, 2, 3))
NUM_BLOCKS = 8
GPU = {"device_name": "Test GPU", "device_type": "cuda"}


def spec_on(*devices: str, batch_size: int = 8, **changes: Any) -> ExperimentSpec:
    """80 steps, whatever the batch."""
    return experiment_spec(
        devices=devices,
        training=TrainingSpec(batch_size=batch_size, **changes.pop("training", {})),
        data=DataSpec(num_train_samples=80 * batch_size, num_eval_samples=200),
        **changes,
    )


def record(
    runs: Path,
    experiment_id: str,
    spec: ExperimentSpec,
    step_seconds: dict[str, list[float]],
    device: dict[str, str] | None = None,
) -> None:
    """What steps of each run take in turn, from the second block on; the first one compiles."""
    for variant in spec.variants:
        seconds = step_seconds[variant.role]
        pattern = [seconds[number % len(seconds)] for number in range(NUM_BLOCKS)]
        run = Recording(runs, variant.label, spec, experiment_id).claim()
        run.start(environment=device or GPU)
        run.blocks(pattern, falling_losses(80), 2.0 if variant.role == "backend" else 0.0)
        run.evaluation(0.8).end()


def times(baseline: float, backend: float) -> dict[str, list[float]]:
    return {"baseline": [baseline], "control": [baseline], "backend": [backend]}


def scaled(data_dir: DataDir, *ids: str) -> tuple[dict[str, Scaling], list[Refusal]]:
    with Store.in_memory(data_dir) as store:
        found, refused = scalings(store, load_sides(store, ids))
    return {f"{one.label} {one.letter}": one for one in found}, refused


def test_strong_and_weak_are_told_by_the_samples_of_a_step() -> None:
    assert scaling_kind(64, 64, 2) == "strong"
    assert scaling_kind(64, 128, 2) == "weak"
    assert scaling_kind(64, 256, 4) == "weak"
    assert scaling_kind(64, 128, 4) is None
    assert scaling_kind(64, 32, 2) is None


@pytest.mark.heavy
def test_two_devices_that_share_a_batch_do_as_much_as_their_step_times_say(
    data_dir: DataDir,
) -> None:
    """200 ms alone and 125 ms together: 0.2 / (2 x 0.125) = 0.8, 1.6 times one device's work. The
    backend: 100 ms and 100 ms, so the second device brings nothing. Whoever is named first."""
    record(data_dir.runs, ONE, spec_on("cuda:0"), times(0.2, 0.1))
    record(data_dir.runs, TWO, spec_on("cuda:0", "cuda:1"), times(0.125, 0.1))
    for order in ((ONE, TWO), (TWO, ONE)):
        found, refused = scaled(data_dir, *order)
        letter = "AB"[order.index(TWO)]
        assert refused == []
        assert set(found) == {f"{label} {letter}" for label in ("baseline", "control", "inductor")}
        baseline, backend = found[f"baseline {letter}"], found[f"inductor {letter}"]
        assert (baseline.kind, baseline.num_devices) == ("strong", 2)
        assert baseline.efficiency == pytest.approx(0.8)
        assert baseline.throughput == pytest.approx(1.6)
        assert (baseline.low, baseline.high) == (pytest.approx(0.8), pytest.approx(0.8))
        assert backend.efficiency == pytest.approx(0.5)


@pytest.mark.heavy
def test_devices_with_a_batch_each_do_as_much_as_one_in_the_time_of_theirs(
    data_dir: DataDir,
) -> None:
    """Four devices, 32 samples instead of 8: 200 ms alone and 250 ms together are 0.8."""
    record(data_dir.runs, ONE, spec_on("cuda:0"), times(0.2, 0.1))
    four = spec_on("cuda:0", "cuda:1", "cuda:2", "cuda:3", batch_size=32, parallel="fsdp")
    record(data_dir.runs, TWO, four, times(0.25, 0.1))
    found, _ = scaled(data_dir, ONE, TWO)
    assert found["baseline B"].kind == "weak"
    assert found["baseline B"].efficiency == pytest.approx(0.8)
    assert found["inductor B"].efficiency == pytest.approx(1.0)
    assert found["inductor B"].throughput == pytest.approx(4.0)


@pytest.mark.heavy
def test_the_interval_is_made_of_that_of_both_experiments(data_dir: DataDir) -> None:
    """One device strays between 190 and 210 ms, two do not: the interval of 0.2 / (2 x 0.1) is one
    device's, 0.95 to 1.05, and that of the backend, where two stray by turns of their own, is wider
    than of each alone. The first block of a run never counts."""
    record(data_dir.runs, ONE, spec_on("cuda:0"),
           {"baseline": [9.0, 0.19, 0.2, 0.21, 0.19, 0.2, 0.21, 0.2], "control": [0.2],
            "backend": [0.19, 0.2, 0.21]})  # fmt: skip
    record(data_dir.runs, TWO, spec_on("cuda:0", "cuda:1"),
           {"baseline": [0.1], "control": [0.1], "backend": [0.095, 0.1, 0.105]})  # fmt: skip
    found, _ = scaled(data_dir, ONE, TWO)
    baseline, backend = found["baseline B"], found["inductor B"]
    assert baseline.efficiency == pytest.approx(1.0)
    assert (baseline.low, baseline.high) == (pytest.approx(0.95), pytest.approx(1.05))
    assert backend.low < 0.95 and backend.high > 1.05


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"spec": spec_on("cuda:0", "cuda:1", batch_size=12)},
         Refusal(letter="B", obstacle="batch", names=("8", "12"))),
        ({"spec": spec_on("cuda:0", "cuda:1", training={"precision": "bf16"})},
         Refusal(letter="B", obstacle="setting", names=("training.precision",))),
        ({"spec": spec_on("cuda:0", "cuda:1", model=ModelSpec(source="builtin:bert-base"))},
         Refusal(letter="B", obstacle="work")),
        ({"spec": spec_on("cuda:0", "cuda:1", model=ModelSpec(dropout="off"))},
         Refusal(letter="B", obstacle="dropout")),
        ({"device": {**GPU, "device_name": "Another GPU"}},
         Refusal(letter="B", obstacle="device")),
        ({"spec": spec_on("cpu", "cpu")}, Refusal(letter="B", obstacle="cpu")),
    ],
)  # fmt: skip
def test_what_may_not_be_held_against_one_device_is_refused_by_its_reason(
    data_dir: DataDir, change: dict[str, Any], refusal: Refusal
) -> None:
    record(data_dir.runs, ONE, spec_on("cuda:0"), times(0.2, 0.1))
    spec = change.get("spec", spec_on("cuda:0", "cuda:1"))
    record(data_dir.runs, TWO, spec, times(0.1, 0.1), change.get("device"))
    assert scaled(data_dir, ONE, TWO) == ({}, [refusal])


@pytest.mark.heavy
def test_a_run_that_went_on_on_another_number_of_devices_is_not_held_against_one(
    data_dir: DataDir,
) -> None:
    record(data_dir.runs, ONE, spec_on("cuda:0"), times(0.2, 0.1))
    spec = spec_on("cuda:0", "cuda:1", backends=(), controls=0)
    moved = Recording(data_dir.runs, "baseline", spec, TWO).claim().start(environment=GPU)
    moved.blocks([0.1] * 4, falling_losses(80)).resume(40, num_devices_before=1, num_devices=2)
    moved.blocks([0.1] * 4, falling_losses(80)).end()
    assert scaled(data_dir, ONE, TWO) == ({}, [Refusal(letter="B", obstacle="moved")])


@pytest.mark.heavy
def test_nothing_is_said_without_one_device_on_one_side_and_several_on_another(
    data_dir: DataDir,
) -> None:
    """Of an experiment that is spread each run has one device."""
    one, spread = spec_on("cuda:0"), spec_on("cuda:0", "cuda:1", backends=("eager", "inductor"))
    record(data_dir.runs, ONE, one, times(0.2, 0.1))
    record(data_dir.runs, TWO, replace(spread, parallel="spread"), times(0.2, 0.1))
    record(data_dir.runs, THREE, spec_on("cuda:0", "cuda:1"), times(0.1, 0.1))
    assert scaled(data_dir, ONE, TWO) == ({}, [])
    assert scaled(data_dir, THREE) == ({}, [])
    found, _ = scaled(data_dir, TWO, THREE)
    assert found["baseline B"].efficiency == pytest.approx(1.0)


@pytest.mark.heavy
def test_the_command_prints_the_table_and_what_kind_it_is(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record(data_dir.runs, ONE, spec_on("cuda:0"), times(0.2, 0.1))
    record(data_dir.runs, TWO, spec_on("cuda:0", "cuda:1"), times(0.125, 0.1))
    record(data_dir.runs, THREE, spec_on("cuda:0", "cuda:1", batch_size=12), times(0.1, 0.1))
    assert main(["diff", ONE, TWO, THREE, f"--data-folder={data_dir.path}"]) == 0
    said = capsys.readouterr().out
    (row,) = [line for line in said.splitlines() if "80.0 % (80.0" in line and "baseline" in line]
    assert row.split() == [
        "baseline",
        "B",
        "2",
        "80.0",
        "%",
        "(80.0",
        "%",
        "to",
        "80.0",
        "%)",
        "1.60x",
    ]
    assert "B on 2 devices against A on one, strong scaling: all devices share the batch" in said
    assert "C is not held against one device (A): steps of 12 samples are neither" in said
