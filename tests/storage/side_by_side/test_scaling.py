"""How several devices scale against one, from recordings made by hand."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, TrainingSpec
from breakeven.storage.__main__ import main
from breakeven.storage.index.store import Store
from breakeven.storage.side_by_side.ratios import Refusal, Scaling, scaling_kind, scalings
from breakeven.storage.side_by_side.sides import load_sides
from tests.helpers.journals import Recording, experiment_spec, falling_losses

pytestmark = pytest.mark.heavy
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
    for arm in spec.arms:
        seconds = step_seconds[arm.role]
        pattern = [seconds[number % len(seconds)] for number in range(NUM_BLOCKS)]
        run = Recording(runs, arm.label, spec, experiment_id).claim()
        run.start(environment=device or GPU)
        run.blocks(pattern, falling_losses(80), 2.0 if arm.role == "backend" else 0.0)
        run.evaluation(0.8).end()


def times(baseline: float, backend: float) -> dict[str, list[float]]:
    return {"baseline": [baseline], "control": [baseline], "backend": [backend]}


TWO = ("cuda:0", "cuda:1")
REFUSED: dict[str, tuple[ExperimentSpec, dict[str, str], Refusal]] = {
    "batch": (
        spec_on(*TWO, batch_size=12),
        GPU,
        Refusal(letter="B", obstacle="batch", names=("8", "12")),
    ),
    "precision": (
        spec_on(*TWO, training={"precision": "bf16"}),
        GPU,
        Refusal(letter="B", obstacle="setting", names=("training.precision",)),
    ),
    "model": (
        spec_on(*TWO, model=ModelSpec(source="builtin:bert-base")),
        GPU,
        Refusal(letter="B", obstacle="work"),
    ),
    "dropout": (
        spec_on(*TWO, model=ModelSpec(dropout="off")),
        GPU,
        Refusal(letter="B", obstacle="dropout"),
    ),
    "device": (
        spec_on(*TWO),
        {**GPU, "device_name": "Another GPU"},
        Refusal(letter="B", obstacle="device"),
    ),
    "cpu": (spec_on("cpu", "cpu"), GPU, Refusal(letter="B", obstacle="cpu")),
}
NAMES = ("one", "two", "four", "restless one", "restless two", "moved", "fast", *REFUSED)
IDS = {name: f"202611{day:02d}-093015-123456-7f3a" for day, name in enumerate(NAMES, start=1)}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Experiments of one model on one, two and four devices."""
    data_dir = DataDir(tmp_path_factory.mktemp("scaling"))

    def write(name: str, spec: ExperimentSpec, steps: dict[str, list[float]], **more: Any) -> None:
        record(data_dir.runs, IDS[name], spec, steps, **more)

    write("one", spec_on("cuda:0"), times(0.2, 0.1))
    write("two", spec_on(*TWO), times(0.125, 0.1))
    four = spec_on(*TWO, "cuda:2", "cuda:3", batch_size=32, parallel="fsdp")
    write("four", four, times(0.25, 0.1))
    write(
        "restless one",
        spec_on("cuda:0"),
        {
            "baseline": [9.0, 0.19, 0.2, 0.21, 0.19, 0.2, 0.21, 0.2],
            "control": [0.2],
            "backend": [0.19, 0.2, 0.21],
        },
    )
    write(
        "restless two",
        spec_on(*TWO),
        {"baseline": [0.1], "control": [0.1], "backend": [0.095, 0.1, 0.105]},
    )
    write("fast", spec_on(*TWO), times(0.1, 0.1))
    for name, (spec, device, _) in REFUSED.items():
        write(name, spec, times(0.1, 0.1), device=device)
    spec = spec_on(*TWO, backends=(), controls=0)
    moved = Recording(data_dir.runs, "baseline", spec, IDS["moved"]).claim().start(environment=GPU)
    moved.blocks([0.1] * 4, falling_losses(80)).resume(40, num_devices_before=1, num_devices=2)
    moved.blocks([0.1] * 4, falling_losses(80)).end()
    with Store.in_memory(data_dir) as store:
        yield store


def scaled(store: Store, *names: str) -> tuple[dict[str, Scaling], list[Refusal]]:
    computed, refused = scalings(load_sides(store, [IDS[name] for name in names]))
    return {f"{scaling.label} {scaling.letter}": scaling for scaling in computed}, refused


def test_strong_and_weak_are_told_by_the_samples_of_a_step() -> None:
    assert scaling_kind(64, 64, 2) == "strong"
    assert scaling_kind(64, 128, 2) == "weak"
    assert scaling_kind(64, 256, 4) == "weak"
    assert scaling_kind(64, 128, 4) is None
    assert scaling_kind(64, 32, 2) is None


def test_two_devices_that_share_a_batch_do_as_much_as_their_step_times_say(store: Store) -> None:
    """200 ms alone and 125 ms together: 0.2 / (2 x 0.125) = 0.8, 1.6 times one device's work. The
    backend: 100 ms and 100 ms, so the second device brings nothing. Whoever is named first."""
    for order in (("one", "two"), ("two", "one")):
        scaling_by_run, refused = scaled(store, *order)
        letter = "AB"[order.index("two")]
        assert refused == []
        assert set(scaling_by_run) == {
            f"{label} {letter}" for label in ("baseline", "control", "inductor")
        }
        baseline, backend = (
            scaling_by_run[f"baseline {letter}"],
            scaling_by_run[f"inductor {letter}"],
        )
        assert (baseline.kind, baseline.num_devices) == ("strong", 2)
        assert baseline.efficiency == pytest.approx(0.8)
        assert baseline.throughput == pytest.approx(1.6)
        assert (baseline.low, baseline.high) == (pytest.approx(0.8), pytest.approx(0.8))
        assert backend.efficiency == pytest.approx(0.5)


def test_devices_with_a_batch_each_do_as_much_as_one_in_the_time_of_theirs(store: Store) -> None:
    """Four devices, 32 samples instead of 8: 200 ms alone and 250 ms together are 0.8."""
    scaling_by_run, _ = scaled(store, "one", "four")
    assert scaling_by_run["baseline B"].kind == "weak"
    assert scaling_by_run["baseline B"].efficiency == pytest.approx(0.8)
    assert scaling_by_run["inductor B"].efficiency == pytest.approx(1.0)
    assert scaling_by_run["inductor B"].throughput == pytest.approx(4.0)


def test_the_interval_is_made_of_that_of_both_experiments(store: Store) -> None:
    """One device strays between 190 and 210 ms, two do not: the interval of 0.2 / (2 x 0.1) is one
    device's, 0.95 to 1.05, and that of the backend, where two stray by turns of their own, is wider
    than of each alone. The first block of a run never counts."""
    scaling_by_run, _ = scaled(store, "restless one", "restless two")
    baseline, backend = scaling_by_run["baseline B"], scaling_by_run["inductor B"]
    assert baseline.efficiency == pytest.approx(1.0)
    assert (baseline.low, baseline.high) == (pytest.approx(0.95), pytest.approx(1.05))
    assert backend.low < 0.95 and backend.high > 1.05


@pytest.mark.parametrize("name", [*REFUSED, "moved"])
def test_a_scaling_that_is_refused_has_a_reason(store: Store, name: str) -> None:
    moved = Refusal(letter="B", obstacle="moved")
    refusal = moved if name == "moved" else REFUSED[name][2]
    assert scaled(store, "one", name) == ({}, [refusal])


def test_one_device_and_several_are_compared_and_nothing_else(store: Store) -> None:
    assert scaled(store, "one", "restless one") == ({}, [])
    assert scaled(store, "fast") == ({}, [])
    scaling_by_run, _ = scaled(store, "one", "fast")
    assert scaling_by_run["baseline B"].efficiency == pytest.approx(1.0)


def test_the_command_prints_the_table(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    ids = [IDS[name] for name in ("one", "two", "batch")]
    assert main(["diff", *ids, f"--data-folder={store.data_dir.path}"]) == 0
    said = capsys.readouterr().out
    (row,) = [line for line in said.splitlines() if "80.0 % (80.0" in line and "baseline" in line]
    assert " ".join(row.split()) == "baseline B 2 80.0 % (80.0 % to 80.0 %) 1.60x"
    assert "B on 2 devices against A on one, strong scaling: all devices share the batch" in said
    assert "C is not compared with one device (A): a step has 12 samples, which is neither" in said
