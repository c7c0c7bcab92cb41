"""Checkpoints: what is kept, and that training goes on from them as if nothing had happened."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import (
    CheckpointSpec,
    EvaluationSpec,
    ExperimentSpec,
    StoppingSpec,
)
from breakeven.runner.worker.training.checkpoints import latest_checkpoint, load_checkpoint
from tests.helpers.loop import NET, TurnsOnPaper, experiment, folder_of, of_kind, run

pytestmark = pytest.mark.usefixtures("fresh_torch")


def saving(every: int = 3, **changes: Any) -> ExperimentSpec:
    """12 steps of a small network in blocks of at most 4, with a checkpoint every few steps."""
    spec = experiment(**NET, checkpoints=CheckpointSpec(every=every, unit="steps", keep_last=2))
    return replace(spec, **changes)


def curve(events: list[dict[str, Any]]) -> dict[int, Any]:
    """Loss, rate and gradient norm by step; a step that was done again counts as it was last."""
    return {
        step["step"]: (step["loss"], step["learning_rate"], step["gradient_norm"])
        for step in of_kind(events, "step")
    }


def interrupted(
    spec: ExperimentSpec, journal: Path, num_turns: int, label: str = "baseline"
) -> list[dict[str, Any]]:
    """Trains for some turns, forgets everything but the folder, and trains to the end."""
    run(spec, journal, label, TurnsOnPaper(num_turns))
    torch._dynamo.reset()
    # Whatever another process would draw next must not matter.
    random.seed(99)
    np.random.seed(99)
    torch.manual_seed(99)
    return run(spec, journal, label)


@pytest.mark.parametrize(
    "training",
    [
        {},
        {"optimizer": "SGD", "optimizer_options": {"momentum": 0.9}, "scheduler": "cosine",
         "warmup_steps": 3},
        {"gradient_accumulation": 2, "clip_norm": 0.5, "scheduler": "step",
         "scheduler_options": {"step_size": 2}, "max_steps": 12},
        {"parameter_groups": ("head.*:optimizer=SGD+lr=0.1+momentum=0.5",),
         "losses": ("model", "0.5*CrossEntropyLoss:label_smoothing=0.2")},
        {"precision": "bf16", "last_batch": "pad", "max_steps": 12},
    ],
    ids=["adam", "sgd-cosine", "accumulation", "groups", "bf16-pad"],
)  # fmt: skip
def test_a_resumed_training_is_that_of_an_uninterrupted_one_bit_for_bit(
    tmp_path: Path, training: dict[str, Any]
) -> None:
    spec = saving()
    spec = replace(spec, training=replace(spec.training, record_gradient_norm=True, **training))
    whole = run(spec, tmp_path / "whole")
    parts = interrupted(spec, tmp_path / "parts", num_turns=3)
    assert len(of_kind(parts, "resumed")) == 1
    assert curve(parts) == curve(whole)
    scores = [
        [(e["step"], e["loss"], e["accuracy"]) for e in of_kind(events, "evaluation")]
        for events in (whole, parts)
    ]
    assert scores[0][-1] == scores[1][-1]


def test_a_model_that_draws_from_python_and_numpy_goes_on_with_the_same_numbers(
    tmp_path: Path,
) -> None:
    # Torch's own numbers are seeded in every step; these continue from the checkpoint.
    model = replace(saving().model, source=saving().model.source.replace("Scored", "Drawing"))
    spec = saving(model=model)
    parts = interrupted(spec, tmp_path / "parts", num_turns=3)
    assert curve(parts) == curve(run(spec, tmp_path / "whole"))


def test_a_compiled_training_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    spec = saving(backends=("eager:scope=forward",))
    whole = run(spec, tmp_path / "whole", "eager-forward")
    parts = interrupted(spec, tmp_path / "parts", num_turns=2, label="eager-forward")
    assert curve(parts) == curve(whole)


def test_steps_after_the_last_checkpoint_are_done_again(tmp_path: Path) -> None:
    # Blocks of 4, 2, 4, 2 steps; a checkpoint every 4 steps cuts them into 4, 2, 2, 4.
    events = interrupted(saving(every=4), tmp_path / "e.jsonl", num_turns=2)
    (resumed,) = of_kind(events, "resumed")
    assert resumed["step"] == 4 and resumed["file"].endswith("step-00000004.pt")
    # Steps 4 and 5 were recorded before, and are recorded again behind the line that voids them.
    assert [step["step"] for step in of_kind(events, "step")] == [0, 1, 2, 3, 4, 5, *range(4, 12)]


def test_the_latest_checkpoints_are_kept_and_older_ones_removed(tmp_path: Path) -> None:
    events = run(saving(), tmp_path / "e.jsonl")
    saved = of_kind(events, "checkpoint")
    assert [event["step"] for event in saved] == [3, 6, 9, 12]
    assert [len(event["removed"]) for event in saved] == [0, 0, 1, 1]
    folder = folder_of(tmp_path / "e.jsonl")
    kept = sorted(file.name for file in folder.checkpoints.iterdir())
    assert kept == ["step-00000009.pt", "step-00000012.pt"]
    assert saved[-1]["bytes"] == (folder.path / saved[-1]["file"]).stat().st_size


def test_the_best_checkpoints_are_kept_by_the_metric(tmp_path: Path) -> None:
    spec = saving(
        every=2,
        checkpoints=CheckpointSpec(every=2, unit="steps", keep_last=1, keep_best=2),
        evaluation=EvaluationSpec(when="steps", every=2, metric="loss"),
    )
    events = run(spec, tmp_path / "e.jsonl")
    values = {event["step"]: event["value"] for event in of_kind(events, "checkpoint")}
    losses = {event["step"]: event["loss"] for event in of_kind(events, "evaluation")}
    assert values == losses and len(values) == 6
    best = sorted(values, key=lambda step: values[step])[:2]
    found = {int(file.stem[5:]) for file in folder_of(tmp_path / "e.jsonl").checkpoints.iterdir()}
    assert found == {12, *best}


def test_training_that_stops_early_leaves_a_checkpoint_at_its_end(tmp_path: Path) -> None:
    spec = saving(
        every=50,
        evaluation=EvaluationSpec(when="steps", every=5),
        stopping=StoppingSpec(threshold=100.0),
    )
    events = run(spec, tmp_path / "e.jsonl")
    assert [event["step"] for event in of_kind(events, "checkpoint")] == [5]
    (stopped,) = of_kind(events, "stopped")
    assert stopped["step"] == 5 and "has reached the threshold 100" in stopped["reason"]


def test_a_run_interrupted_behind_its_last_step_ends_when_resumed(tmp_path: Path) -> None:
    spec = saving(evaluation=EvaluationSpec(predictions=("validation",)))
    run(spec, tmp_path / "e.jsonl")
    (folder_of(tmp_path / "e.jsonl").artifacts / "predictions-validation.parquet").unlink()
    turns = TurnsOnPaper()
    events = run(spec, tmp_path / "e.jsonl", turns=turns)
    assert of_kind(events, "resumed")[0]["step"] == 12 and turns.said == ["ready", "finished"]
    assert (folder_of(tmp_path / "e.jsonl").artifacts / "predictions-validation.parquet").exists()


def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path) -> None:
    run(saving(), tmp_path / "e.jsonl")
    found = latest_checkpoint(folder_of(tmp_path / "e.jsonl"))
    assert found is not None
    torch.save({"format": 99}, found[1])
    with pytest.raises(WorkloadError, match="has format 99, but this version reads 1"):
        load_checkpoint(found[1])


def test_samples_left_over_need_no_place_in_a_checkpoint(tmp_path: Path) -> None:
    """The position in the data follows from the step, in the middle of an epoch, too."""
    spec = saving(every=4, data=replace(NET["data"], num_train_samples=60))
    spec = replace(spec, training=replace(spec.training, max_steps=20))
    whole = run(spec, tmp_path / "whole")
    parts = interrupted(spec, tmp_path / "parts", num_turns=4)
    assert curve(parts) == curve(whole) and len(curve(whole)) == 20
