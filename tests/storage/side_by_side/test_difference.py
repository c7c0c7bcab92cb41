"""Experiments held against each other: by how much, what may not be compared, what differs."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec, ModelSpec, TrainingSpec
from breakeven.storage.__main__ import main
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.side_by_side.ratios import differences, p_value, ratio_of_speedups, verdict
from breakeven.storage.side_by_side.sides import comparable, differing, load_sides, text_of
from breakeven.storage.statistics.speedups import Ratio
from tests.helpers.journals import Recording, experiment_spec, falling_losses

pytestmark = pytest.mark.heavy  # whole commands over stores of their own: many seconds

A, *OTHERS = (f"2026112{day}-093015-123456-7f3a" for day in range(10))


def ratio(median: float, low: float | None = None, high: float | None = None) -> Ratio:
    return Ratio(median=median, low=low, high=high, p_value=0.01, n=10)


def record(
    runs: Path,
    experiment_id: str,
    seconds: float,
    spec: ExperimentSpec | None = None,
    environment: dict[str, Any] | None = None,
    **workload: Any,
) -> None:
    """The baseline takes 0.2 s a step, inductor `seconds`, both to about 1 %; 8 blocks each."""
    spec = experiment_spec(num_steps=80) if spec is None else spec
    random = np.random.default_rng(int(experiment_id[7]))
    for arm in spec.arms:
        usual = seconds if arm.role == "backend" else 0.2
        run = Recording(runs, arm.label, spec, experiment_id).claim()
        run.start(environment=environment, **workload)
        run.blocks(
            list(usual * random.uniform(0.99, 1.01, 8)),
            falling_losses(80),
            2.0 if arm.role == "backend" else 0.0,
        )
        run.evaluation(0.8).end()


def test_the_interval_of_a_quotient_is_made_of_both_intervals() -> None:
    """On logarithms a = ln 2, 0.3 down and 0.4 up; b = 0, 0.4 down and 0.3 up: half widths are 5
    and 4 times sqrt(2), by sqrt(0.3^2 + 0.3^2) and sqrt(0.4^2 + 0.4^2)."""
    other = ratio(2.0, 2 * math.exp(-0.3), 2 * math.exp(0.4))
    reference = ratio(1.0, math.exp(-0.4), math.exp(0.3))
    quotient, low, high = ratio_of_speedups(reference, other)
    assert quotient == 2.0 and low is not None and high is not None
    assert math.log(low) == pytest.approx(math.log(2) - 0.3 * math.sqrt(2))
    assert math.log(high) == pytest.approx(math.log(2) + 0.4 * math.sqrt(2))
    assert ratio_of_speedups(ratio(1.0), other) == (2.0, None, None)


def test_the_p_value_is_that_of_the_interval() -> None:
    """An interval that just reaches 1 has p = 0.05, one half as wide p = 0.00009 (z = 3.92)."""
    assert p_value(math.e, 1.0, math.exp(2)) == pytest.approx(0.05, abs=1e-6)
    assert p_value(math.e, math.exp(0.5), math.exp(1.5)) == pytest.approx(8.86e-5, rel=1e-2)
    assert p_value(1.0, 0.9, 1.1) == 1.0
    assert p_value(2.0, 2.0, 2.0) == 0.0
    assert p_value(2.0, None, None) is None


@pytest.mark.parametrize(
    ("quotient", "low", "high", "p", "margin", "said"),
    [
        (1.5, 1.4, 1.6, 0.001, 0.02, "higher"),
        (0.7, 0.6, 0.8, 0.001, 0.02, "lower"),
        (1.5, 1.4, 1.6, 0.06, 0.02, "unsure"),  # corrected over many
        (1.015, 1.005, 1.025, 0.001, 0.02, "unsure"),  # not beyond the margin, nor inside it
        (1.01, 1.001, 1.019, 0.001, 0.02, "same"),
        (1.0, 0.9, 1.1, 1.0, 0.02, "unsure"),
        (1.5, None, None, None, 0.02, "unsure"),
        # Nothing is called the same on machines noisier than 5 %.
        (1.0, 0.99, 1.01, 1.0, 0.05, "same"),
        (1.0, 0.99, 1.01, 1.0, 0.06, "unsure"),
    ],
)
def test_a_verdict_counts_beyond_chance_and_margin(
    quotient: float,
    low: float | None,
    high: float | None,
    p: float | None,
    margin: float,
    said: str,
) -> None:
    assert verdict(quotient, low, high, p, margin) == said


BASE = replace(experiment_spec(num_steps=80), name="other")
SMALLER = replace(
    BASE,
    training=TrainingSpec(batch_size=4, precision="bf16"),
    data=replace(BASE.data, num_train_samples=320),
)
RECORDED: dict[str, tuple[float, ExperimentSpec, dict[str, Any]]] = {
    "another machine": (0.16, BASE, {"environment": {"device_name": "Other GPU", "host": "there"}}),
    "smaller batches": (
        0.1,
        SMALLER,
        {"environment": {"versions": {"torch": "2.12.0", "transformers": "5.23.0"}}},
    ),
    "weights": (0.16, BASE, {"weights_sha256": "cc"}),
    "model": (0.1, replace(BASE, model=ModelSpec(source="builtin:bert-base")), {}),
    "equal": (0.1, BASE, {}),
    "data": (0.1, BASE, {"data_sha256": "cc"}),
    "no data": (0.1, BASE, {"data_sha256": None}),
    "parameters": (0.1, BASE, {"num_parameters": 7}),
    "task": (0.1, replace(BASE, task="causal_lm", model=ModelSpec(source="builtin:gpt2-tiny")), {}),
}
IDS = dict(zip(RECORDED, OTHERS, strict=True))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Experiment A, in which a backend makes 2x, and others by name."""
    data_dir = DataDir(tmp_path_factory.mktemp("differences"))
    record(data_dir.runs, A, 0.1)
    for name, (seconds, spec, changes) in RECORDED.items():
        record(data_dir.runs, IDS[name], seconds, spec, **changes)
    with Store.in_memory(data_dir) as store:
        yield store


def test_speedups_of_one_workload_on_two_machines_are_compared(store: Store) -> None:
    """2x here and 1.25x there: 0.625 times as much."""
    sides = load_sides(store, [A, IDS["another machine"], A])
    assert [side.letter for side in sides] == ["A", "B"]
    (difference,) = differences(sides)
    assert difference.label == "inductor" and difference.letter == "B"
    assert difference.ratio == pytest.approx(0.625, rel=0.02)
    assert difference.low < 0.625 < difference.high and difference.verdict == "lower"
    assert {(fact.kind, fact.name): fact.values for fact in differing(sides)} == {
        ("environment", "device_name"): ("Test CPU", "Other GPU"),
        ("environment", "host"): ("box", "there"),
    }


def test_a_list_of_sentences_is_written_as_text_and_one_of_names_with_commas() -> None:
    notes, backends = ["Dropout is off.", "TF32 is on."], ["eager", "inductor"]
    assert text_of(notes) == "Dropout is off. TF32 is on."
    assert text_of(backends) == "eager, inductor"
    assert text_of([]) == "[]"


def test_settings_and_versions_that_differ_are_listed_and_no_others(store: Store) -> None:
    sides = load_sides(store, [A, IDS["smaller batches"]])
    assert {fact.name: fact.values for fact in differing(sides)} == {
        "training.batch_size": ("8", "4"),
        "training.precision": ("float32", "bf16"),
        "versions.torch": ("2.13.0", "2.12.0"),
        "data.num_train_samples": ("640", "320"),
    }
    with pytest.raises(NotInStore, match="nonsense"):
        load_sides(store, [A, "nonsense"])


@pytest.mark.parametrize(
    ("name", "obstacles", "speed", "learning"),
    [
        ("equal", (), True, True),
        ("weights", ("weights",), True, False),
        ("data", ("data",), True, False),
        ("no data", ("unknown",), True, False),
        ("model", ("model",), False, False),
        ("parameters", ("model",), False, False),
        ("task", ("task", "model"), False, False),
    ],
)
def test_what_may_not_be_compared_is_named_and_gets_no_number(
    store: Store, name: str, obstacles: tuple[str, ...], speed: bool, learning: bool
) -> None:
    sides = load_sides(store, [A, IDS[name]])
    comparability = comparable(*sides)
    assert (comparability.obstacles, comparability.speed, comparability.learning) == (
        obstacles,
        speed,
        learning,
    )
    assert bool(differences(sides)) == speed


def test_the_command_prints_differences(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    folder = f"--data-folder={store.data_dir.path}"
    assert main(["diff", A, IDS["weights"], IDS["model"], folder]) == 0
    said = capsys.readouterr().out
    assert f"B  {IDS['weights']}  other" in said and "lower" in said
    assert "A and B: losses and accuracies are not compared, because the initial weights" in said
    assert "A and C: neither speeds nor losses are compared, because the models differ." in said
    assert "setting model.source" in said and "data weights_sha256" in said
    (accuracy,) = [block for block in said.split("\n\n") if block.startswith("Accuracy")]
    assert accuracy.splitlines()[-1].split() == ["inductor", "80.0", "%", DASH, DASH]
    assert main(["diff", A, folder]) == 2
