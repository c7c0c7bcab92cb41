"""The scenario `speed` in a run: fixed batches, warm-up apart, training and inference."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from breakeven.runner.protocol.endings import Ending
from breakeven.runner.specs.experiment import ExperimentSpec, SpeedSpec
from breakeven.runner.worker.data.splits import FixedBatches
from breakeven.runner.worker.model.loaded_workload import load_workload
from breakeven.runner.worker.training import forward_passes
from tests.helpers.loop import NET, TurnsOnPaper, experiment, of_kind, run, torch_afresh
from tests.runner.worker.script.scripts import ENDING, Ended

pytestmark = pytest.mark.usefixtures("fresh_torch")
PARTS = ("training", "inference")
Events = list[dict[str, Any]]
SMALL = {"batches": 3, "warm_up_blocks": 1, "min_rounds": 6, "max_rounds": 6}


def speed(part: str = "training", **changes: Any) -> ExperimentSpec:
    """7 blocks of 4 steps at most, over 3 batches of 4."""
    fields = {"part": part, **SMALL, **changes}
    return experiment(scenario="speed", speed=SpeedSpec(**fields), cpu_threads=1, **NET)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Events, list[str]]]:
    """By part: the events of a run over all its rounds, and its messages about turns."""
    folder, by_part = tmp_path_factory.mktemp("speed"), {}
    for part in PARTS:
        turns = TurnsOnPaper()
        with torch_afresh():
            by_part[part] = run(speed(part), folder / part, turns=turns), turns.said
    return by_part


def test_training_steps_go_over_the_same_few_batches(tmp_path: Path) -> None:
    # At a learning rate of almost nothing the loss of a step tells which batch it was.
    spec = speed()
    spec = replace(
        spec,
        training=replace(spec.training, learning_rate=1e-12),
        model=replace(spec.model, dropout="off"),
    )
    steps = of_kind(run(spec, tmp_path / "journal"), "step")
    losses = [round(step["loss"], 5) for step in steps]
    assert len(steps) == 28
    assert len(set(losses)) == 3
    assert losses == (losses[:3] * 10)[:28]


def test_fixed_batches_are_the_first_full_windows_and_hold_no_other_samples_in_memory() -> None:
    """Of 24 samples of 32 numbers each takes 4."""
    spec = replace(speed(), speed=SpeedSpec(batches=6))
    split = load_workload(spec).data.train
    padded = replace(spec, training=replace(spec.training, last_batch="pad"))
    batches, again = FixedBatches(split, spec), FixedBatches(split, padded)
    for index in range(6):
        (batch,), (same,) = batches.window(index), again.window(index)
        assert len(batch.inputs["labels"]) == 4
        assert torch.equal(batch.inputs["x"], same.inputs["x"])
        assert batch.inputs["x"].untyped_storage().nbytes() == 4 * 32 * 4
        assert batches.window(index + 6)[0] is batch


@pytest.mark.parametrize("part", PARTS)
def test_the_first_blocks_are_a_warm_up_and_the_compile_step_is_among_them(
    part: str, tmp_path: Path
) -> None:
    spec = speed(part, warm_up_blocks=2)
    events = run(spec, tmp_path / "journal", "eager")
    blocks = of_kind(events, "block")
    assert [block["warm_up"] for block in blocks] == [True, True, *[False] * 6]
    compiled = {block["round"] for block in blocks if block["compiled"]}
    assert 0 in compiled and compiled <= {0, 1}
    assert {step["step"] for step in of_kind(events, "step") if step["compiled"]} <= set(range(8))


@pytest.mark.parametrize(("part", "samples"), [("training", 8), ("inference", 4)])
def test_a_run_ends_with_the_turn_that_is_the_last_and_an_accumulated_step_takes_several_batches(
    part: str, samples: int, tmp_path: Path
) -> None:
    turns, spec = Ended(2), speed(part)
    spec = replace(spec, training=replace(spec.training, gradient_accumulation=2))
    events = run(spec, tmp_path / "journal", turns=turns)
    assert turns.said == ["ready", "done", "done", "finished"]
    assert len(of_kind(events, "block")) == 3
    (stopped,), (workload,) = of_kind(events, "stopped"), of_kind(events, "workload")
    assert (stopped["step"], stopped["reason"]) == (12, ENDING.reason)
    assert Ending.from_dict(stopped["ending"]) == ENDING
    assert workload["samples_per_step"] == samples


@pytest.mark.parametrize("part", PARTS)
def test_without_such_a_turn_a_run_ends_after_its_rounds_and_nothing_is_evaluated(
    part: str, measured: dict[str, tuple[Events, list[str]]]
) -> None:
    events, said = measured[part]
    assert said == ["ready", *["done"] * 6, "finished"]
    assert not of_kind(events, "stopped") and not of_kind(events, "evaluation")


def test_a_forward_pass_changes_no_weight_draws_nothing_and_keeps_no_gradient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    class Watched(forward_passes.Inference):
        def __init__(self, model: torch.nn.Module, *arguments: Any, **named: Any) -> None:
            super().__init__(model, *arguments, **named)
            self.model = model

        def forward(self, batch: dict[str, torch.Tensor]) -> Any:
            output = super().forward(batch)
            seen.append((self.model.training, output.logits.requires_grad, output.logits))
            return output

    monkeypatch.setattr(forward_passes, "Inference", Watched)
    events = run(speed("inference"), tmp_path / "journal")
    assert len(seen) == 28
    assert not any(training or grad for training, grad, _ in seen)
    # The fourth pass is over the first batch again, with dropout in the model and the same answer.
    assert torch.equal(seen[0][2], seen[3][2]) and not torch.equal(seen[0][2], seen[1][2])
    assert {step["loss"] for step in of_kind(events, "step")} == {None}


def test_forward_passes_cost_a_third_of_the_operations_of_a_step(
    measured: dict[str, tuple[Events, list[str]]],
) -> None:
    (trained,), (answered,) = (of_kind(measured[part][0], "workload") for part in PARTS)
    # Backward takes the products of forward twice, but for what needs no gradient.
    share = answered["flops_per_step"] / trained["flops_per_step"]
    assert 0.30 < share < 0.40
    assert (
        "A step is a forward pass, without gradients; steps go over the same 3 batches again "
        "and again." in answered["notes"]
    )
