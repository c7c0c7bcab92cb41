"""A training over two ranks is that of one device: losses, evaluations, stops, checkpoints."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from breakeven.runner.specs import experiment as specs
from tests.helpers.loop import NET, TurnsOnPaper, experiment, folder_of, of_kind, run, torch_afresh
from tests.runner.worker.ranks.rank_loop import Training, journal_of, train_together

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]

ROUNDING = 2e-6
"""Relative; parts of a batch are added up in another order."""


def alone(**changes: Any) -> specs.ExperimentSpec:
    """A small network without dropout, which draws by rank."""
    training = changes.pop("training", {})
    net = NET | {"model": replace(NET["model"], dropout="off")}
    spec = experiment(**(changes if "task" in changes else net | changes))
    return replace(spec, training=replace(spec.training, **training))


def together(spec: specs.ExperimentSpec, parallel: str = "ddp") -> specs.ExperimentSpec:
    return replace(spec, devices=("cpu", "cpu"), parallel=parallel)  # type: ignore[arg-type]


PLAIN = alone(
    evaluation=specs.EvaluationSpec(
        splits=("validation", "train"), metric="f1", predictions=("validation",)
    ),
    training={"gradient_statistics_every": 4, "record_gradient_norm": True},
)
CLIPPED = alone(
    training={
        "gradient_accumulation": 3,
        "clip_norm": 0.5,
        "clip_value": 0.01,
        "scheduler": "cosine",
        "record_gradient_norm": True,
        "losses": ("model", "0.5*CrossEntropyLoss"),
    }
)
UNEVEN = alone(
    task="causal_lm",
    model=specs.ModelSpec(source="builtin:gpt2-tiny", dropout="off"),
    evaluation=specs.EvaluationSpec(metric="perplexity"),
)
"""Texts of different lengths: the ranks' parts have different numbers of targets."""
PADDED = alone(
    data=replace(NET["data"], num_train_samples=27, num_eval_samples=5),
    training={"last_batch": "pad"},
)
"""The last batch holds three samples, and of the validation's two ranks one has but one."""
STOPPED = alone(
    stopping=specs.StoppingSpec(patience=1, min_delta=100.0),
    evaluation=specs.EvaluationSpec(when="steps", every=2),
)
DIVERGED = alone(stopping=specs.StoppingSpec(nonfinite=True), training={"losses": ("3e38*model",)})
SAVED = alone(checkpoints=specs.CheckpointSpec(every=6, unit="steps", keep_last=9))
COMPILED = alone(block_steps=6)
SPECS = {
    "compiled": COMPILED,
    "plain": PLAIN,
    "clipped": CLIPPED,
    "uneven": UNEVEN,
    "padded": PADDED,
    "stopped": STOPPED,
    "diverged": DIVERGED,
    "saved": SAVED,
}
DDP = ("ddp",)
WAYS = {"compiled": (), "uneven": DDP, "padded": DDP, "stopped": DDP, "diverged": DDP}
"""Trainings that both ways share the code of, and one shows; the others show both."""
EACH_WAY = ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)]
Folders = Callable[[str], Path]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """By way, what was trained over two ranks: all in one go, with what goes on from six steps that
    one device made. Trainings on one device are made where they are needed."""

    @cache
    def trained(way: str) -> Path:
        folder = tmp_path_factory.mktemp(way)
        requests = [
            Training(name, together(spec, way))
            for name, spec in SPECS.items()
            if way in WAYS.get(name, ("ddp", "fsdp"))
        ]
        saving = together(SAVED, way)
        requests += [Training("parts", saving, num_turns=2, copy="moved")]
        requests += [Training("parts", saving), Training("begun", saving)]
        with torch_afresh():
            run(SAVED, folder / "begun", turns=TurnsOnPaper(2))
        if way == "fsdp":
            compiled = replace(COMPILED, backends=("eager:scope=forward",))
            spec, label = together(compiled, way), compiled.arms[-1].label
            requests += [Training("compiled", spec, label)]
        train_together(folder, requests)
        return folder

    return trained


Runs = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def on_one_device(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The events of a training on one device by name, made once."""
    folder = tmp_path_factory.mktemp("alone")

    @cache
    def made(name: str) -> list[dict[str, Any]]:
        with torch_afresh():
            return run(SPECS[name], folder / name)

    return made


def losses(events: list[dict[str, Any]]) -> dict[int, float]:
    return {step["step"]: step["loss"] for step in of_kind(events, "step")}


@pytest.mark.parametrize(
    ("name", "way"),
    [
        *((name, "ddp") for name in ("plain", "clipped", "uneven", "padded", "saved")),
        *(
            pytest.param(name, "fsdp", marks=pytest.mark.slow)
            for name in ("plain", "clipped", "saved")
        ),
    ],
)
def test_losses_and_evaluations_are_those_of_one_device(
    folders: Folders, on_one_device: Runs, name: str, way: str
) -> None:
    expected = on_one_device(name)
    events = journal_of(folders(way), name)
    assert losses(events) == pytest.approx(losses(expected), rel=ROUNDING)
    for row, expected_row in zip(
        of_kind(events, "evaluation"), of_kind(expected, "evaluation"), strict=True
    ):
        assert row["loss"] == pytest.approx(expected_row["loss"], rel=ROUNDING)
        known = {
            name: value for name, value in expected_row["metrics"].items() if value is not None
        }
        undefined = dict.fromkeys(expected_row["metrics"].keys() - known.keys())
        values = {name: row["metrics"].pop(name) for name in known}
        assert values == pytest.approx(known, rel=ROUNDING)
        assert row["metrics"] == undefined
        assert row["num_samples"] == expected_row["num_samples"]
    rates = [step["learning_rate"] for step in of_kind(expected, "step")]
    assert [step["learning_rate"] for step in of_kind(events, "step")] == rates
    if SPECS[name].training.record_gradient_norm:
        norms = [step["gradient_norm"] for step in of_kind(expected, "step")]
        own_norms = [step["gradient_norm"] for step in of_kind(events, "step")]
        assert own_norms == pytest.approx(norms, rel=1e-4)
    if name == "clipped":
        last = of_kind(expected, "step")[-1]["losses"]
        assert of_kind(events, "step")[-1]["losses"] == pytest.approx(last, rel=ROUNDING)


@pytest.mark.parametrize("way", EACH_WAY)
def test_predictions_and_gradients_are_those_of_whole_batches(
    folders: Folders, tmp_path: Path, way: str
) -> None:
    expected = run(PLAIN, tmp_path / "plain")
    events = journal_of(folders(way), "plain")
    (prediction,) = of_kind(events, "prediction")
    tables = [
        pyarrow.parquet.read_table(folder_of(journal).path / prediction["file"]).to_pydict()
        for journal in (folders(way) / "plain", tmp_path / "plain")
    ]
    assert tables[0]["label"] == tables[1]["label"]
    assert tables[0]["prediction"] == tables[1]["prediction"]
    statistics, expected_statistics = (
        of_kind(events, "gradient_statistics")[0] for events in (events, expected)
    )
    assert [t["name"] for t in statistics["tensors"]] == [
        t["name"] for t in expected_statistics["tensors"]
    ]
    norms = [tensor["norm"] for tensor in expected_statistics["tensors"]]
    assert [t["norm"] for t in statistics["tensors"]] == pytest.approx(norms, rel=1e-3, abs=1e-6)


def test_all_ranks_stop_together_at_the_step_of_one_device(
    folders: Folders, on_one_device: Runs
) -> None:
    for name in ("stopped", "diverged"):
        expected, events = on_one_device(name), journal_of(folders("ddp"), name)
        (own,), (other,) = (of_kind(events, "stopped") for events in (events, expected))
        assert own["step"] == other["step"] < 12
        assert own["reason"].split()[0] == other["reason"].split()[0]
    (last,) = of_kind(events, "step")
    assert not math.isfinite(float(last["loss"]))


@pytest.mark.parametrize("way", EACH_WAY)
def test_a_resumed_run_is_that_of_an_uninterrupted_one_bit_for_bit(
    folders: Folders, way: str
) -> None:
    uninterrupted, parts = (journal_of(folders(way), name) for name in ("saved", "parts"))
    (resumed,) = of_kind(parts, "resumed")
    assert resumed["step"] == 6 and resumed["file"].endswith("step-00000006.sharded")
    assert losses(parts) == losses(uninterrupted)


@pytest.mark.parametrize("way", EACH_WAY)
def test_one_device_goes_on_from_what_two_ranks_saved(folders: Folders, way: str) -> None:
    events = run(replace(SAVED), folders(way) / "moved")
    (resumed,) = of_kind(events, "resumed")
    assert resumed["step"] == 6
    expected = losses(journal_of(folders(way), "saved"))
    assert losses(events) == pytest.approx(expected, rel=ROUNDING)


@pytest.mark.parametrize("way", EACH_WAY)
def test_two_ranks_go_on_from_what_one_device_saved(
    folders: Folders, on_one_device: Runs, way: str
) -> None:
    """One device makes six of twelve steps, two ranks the others, over whole models and shards."""
    alone, events = on_one_device("saved"), journal_of(folders(way), "begun")
    (resumed,) = of_kind(events, "resumed")
    assert resumed["step"] == 6 and resumed["file"].endswith("step-00000006.pt")
    assert (resumed["num_devices_before"], resumed["num_devices"]) == (1, 2)
    assert list(losses(events)) == list(range(12))
    assert losses(events) == pytest.approx(losses(alone), rel=ROUNDING)
    loss, loss_alone = (of_kind(journal, "evaluation")[-1]["loss"] for journal in (events, alone))
    assert loss == pytest.approx(loss_alone, rel=ROUNDING)


def test_each_rank_tells_its_own_time_and_memory_of_every_block(folders: Folders) -> None:
    events = journal_of(folders("ddp"), "plain")
    rows, blocks = of_kind(events, "rank_block"), of_kind(events, "block")
    assert [(row["round"], row["rank"]) for row in rows] == [
        (block["round"], rank) for block in blocks for rank in (0, 1)
    ]
    assert all(row["seconds"] > 0 and row["peak_memory_bytes"] > 0 for row in rows)
    firsts = [row["seconds"] for row in rows if row["rank"] == 0]
    assert firsts == [block["seconds"] for block in blocks]


@pytest.mark.slow
def test_what_is_compiled_computes_the_same_over_shards(
    folders: Folders, on_one_device: Runs
) -> None:
    compiled = journal_of(folders("fsdp"), "compiled")
    assert losses(compiled) == pytest.approx(losses(on_one_device("compiled")), rel=ROUNDING)
    assert of_kind(compiled, "compile_metrics")
