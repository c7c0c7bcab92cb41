"""Checkpoints: what is kept, and that training goes on from them as if nothing had happened."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs import experiment as specs
from breakeven.runner.worker.training.checkpoints import load_checkpoint
from tests.helpers.loop import NET, TurnsOnPaper, experiment, folder_of, of_kind, run

pytestmark = pytest.mark.usefixtures("fresh_torch")
DRAWING = replace(NET["model"], source=NET["model"].source.replace("Scored", "Drawing"))
"""Draws from Python and NumPy; torch's own numbers are seeded in every step."""


def saving(every: int = 3, **changes: Any) -> specs.ExperimentSpec:
    """12 steps of a small network in blocks of at most 4, with a checkpoint every few steps."""
    checkpoints = specs.CheckpointSpec(every=every, unit="steps", keep_last=2)
    return experiment(**{**NET, "checkpoints": checkpoints, **changes})


def curve(events: list[dict[str, Any]]) -> dict[int, Any]:
    """Loss, rate and gradient norm by step; a step that was done again counts as it was last."""
    return {
        step["step"]: (step["loss"], step["learning_rate"], step["gradient_norm"])
        for step in of_kind(events, "step")
    }


@pytest.mark.parametrize(
    ("label", "turns", "changes", "training"),
    [
        ("eager-forward", 2, {"backends": ("eager:scope=forward",)}, {}),
        (
            "baseline",
            2,
            {"model": DRAWING},
            {
                "optimizer": "SGD",
                "optimizer_options": {"momentum": 0.9},
                "scheduler": "cosine",
                "warmup_steps": 3,
            },
        ),
        # Three steps an epoch: it goes on in the middle of the second.
        (
            "baseline",
            3,
            {},
            {
                "gradient_accumulation": 2,
                "clip_norm": 0.5,
                "scheduler": "step",
                "scheduler_options": {"step_size": 2},
                "max_steps": 12,
            },
        ),
        (
            "baseline",
            2,
            {},
            {
                "parameter_groups": ("head.*:optimizer=SGD+lr=0.1+momentum=0.5",),
                "precision": "bf16",
                "losses": ("model", "0.5*CrossEntropyLoss:label_smoothing=0.2"),
                "last_batch": "pad",
                "max_steps": 12,
            },
        ),
    ],
    ids=["compiled", "sgd-cosine-drawing", "accumulation", "groups-bf16-pad"],
)
def test_a_resumed_training_is_that_of_an_uninterrupted_one_bit_for_bit(
    tmp_path: Path, label: str, turns: int, changes: dict[str, Any], training: dict[str, Any]
) -> None:
    spec = saving(every=4, **changes)
    spec = replace(spec, training=replace(spec.training, record_gradient_norm=True, **training))
    uninterrupted = run(spec, tmp_path / "whole", label)
    begun = run(spec, tmp_path / "parts", label, TurnsOnPaper(turns))
    assert "done" not in [phase["phase"] for phase in of_kind(begun, "phase")]
    torch._dynamo.reset()
    # Whatever another process would draw next must not matter.
    random.seed(99), np.random.seed(99), torch.manual_seed(99)
    parts = run(spec, tmp_path / "parts", label)
    (resumed,) = of_kind(parts, "resumed")
    assert resumed["step"] == 4 and resumed["file"].endswith("step-00000004.pt")
    # Steps behind the checkpoint are recorded again behind the line that voids them.
    done = len(curve(begun))
    assert done > 4
    assert [step["step"] for step in of_kind(parts, "step")] == [*range(done), *range(4, 12)]
    assert curve(parts) == curve(uninterrupted)
    last, other = (of_kind(events, "evaluation")[-1] for events in (uninterrupted, parts))
    assert [last[name] for name in ("step", "loss", "accuracy")] == [
        other[name] for name in ("step", "loss", "accuracy")
    ]


def test_the_latest_checkpoints_are_kept_and_a_run_that_ends_behind_its_last_step_goes_on_there(
    tmp_path: Path,
) -> None:
    spec = saving(evaluation=specs.EvaluationSpec(predictions=("validation",)))
    journal, folder = tmp_path / "e.jsonl", folder_of(tmp_path / "e.jsonl")
    saved = of_kind(run(spec, journal), "checkpoint")
    assert [event["step"] for event in saved] == [3, 6, 9, 12]
    assert [len(event["removed"]) for event in saved] == [0, 0, 1, 1]
    kept = sorted(file.name for file in folder.checkpoints.iterdir())
    assert kept == ["step-00000009.pt", "step-00000012.pt"]
    assert saved[-1]["bytes"] == (folder.path / saved[-1]["file"]).stat().st_size
    (folder.artifacts / "predictions-validation.parquet").unlink()
    turns = TurnsOnPaper()
    events = run(spec, journal, turns=turns)
    assert of_kind(events, "resumed")[0]["step"] == 12 and turns.said == ["ready", "finished"]
    assert (folder.artifacts / "predictions-validation.parquet").exists()


def test_the_best_checkpoints_are_kept_by_the_metric(tmp_path: Path) -> None:
    spec = saving(
        checkpoints=specs.CheckpointSpec(every=2, unit="steps", keep_last=1, keep_best=2),
        evaluation=specs.EvaluationSpec(when="steps", every=2, metric="loss"),
    )
    events = run(spec, tmp_path / "e.jsonl")
    values = {event["step"]: event["value"] for event in of_kind(events, "checkpoint")}
    losses = {event["step"]: event["loss"] for event in of_kind(events, "evaluation")}
    assert values == losses and len(values) == 6
    best = sorted(values, key=lambda step: values[step])[:2]
    kept = {int(file.stem[5:]) for file in folder_of(tmp_path / "e.jsonl").checkpoints.iterdir()}
    assert kept == {12, *best}


def test_training_that_stops_early_leaves_a_checkpoint_at_its_end(tmp_path: Path) -> None:
    evaluation, stopping = (
        specs.EvaluationSpec(when="steps", every=5),
        specs.StoppingSpec(threshold=100.0),
    )
    events = run(saving(50, evaluation=evaluation, stopping=stopping), tmp_path / "e.jsonl")
    assert [event["step"] for event in of_kind(events, "checkpoint")] == [5]
    (stopped,) = of_kind(events, "stopped")
    assert stopped["step"] == 5 and "has reached the threshold 100" in stopped["reason"]


def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path) -> None:
    torch.save({"format": 99}, tmp_path / "step-00000012.pt")
    with pytest.raises(WorkloadError, match="has format 99, but this version reads 1"):
        load_checkpoint(tmp_path / "step-00000012.pt")
