"""What only a GPU can show. Skipped without one; `make test-gpu` runs it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from runner.spec import (
    CheckpointSpec,
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    StoppingSpec,
)
from runner.worker import training
from runner.worker.measuring import CudaClock
from tests.loop import TurnsOnPaper, experiment, of_kind, run

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("fresh_torch"),
]
# Not texts: transformers itself waits for the device in every forward, to see whether a mask of
# padding is all ones.
IMAGES: dict[str, Any] = {
    "task": "image_classification",
    "model": ModelSpec(source="builtin:vit-small"),
    "data": DataSpec(source="builtin:digits", num_train_samples=240, num_eval_samples=10),
}


class StrictClock(CudaClock):
    """Makes every wait for the device between the start and the end of a block an error."""

    def start(self) -> None:
        super().start()
        torch.cuda.set_sync_debug_mode("error")

    def read(self) -> list[float]:
        torch.cuda.set_sync_debug_mode("default")
        return super().read()


def on_gpu(**changes: Any) -> ExperimentSpec:
    return experiment(devices=("cuda:0",), **changes)


@pytest.fixture
def strict_clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(training, "make_clock", StrictClock)
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("label", ["baseline", "eager", "cudagraphs"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_nothing_waits_for_the_device_inside_a_block(
    tmp_path: Path, strict_clock: None, label: str, precision: str
) -> None:
    spec = on_gpu(**IMAGES, backends=("eager", "cudagraphs"))
    settings = replace(
        spec.training,
        precision=precision,
        max_steps=12,
        clip_norm=1.0,
        scheduler="cosine",
        gradient_statistics_every=2,
        losses=("model", "0.5*CrossEntropyLoss:label_smoothing=0.1"),
    )
    events = run(replace(spec, training=settings), tmp_path / "e.jsonl", label)
    assert len(of_kind(events, "step")) == 12


def test_looking_at_every_loss_waits_for_the_device(tmp_path: Path, strict_clock: None) -> None:
    spec = on_gpu(**IMAGES, stopping=StoppingSpec(nonfinite=True))
    with pytest.raises(RuntimeError, match="synchroniz"):
        run(spec, tmp_path / "e.jsonl")


@pytest.mark.parametrize("label", ["baseline", "cudagraphs"])
@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_a_resumed_training_is_that_of_an_uninterrupted_one_bit_for_bit(
    tmp_path: Path, label: str, precision: str
) -> None:
    spec = on_gpu(
        backends=("cudagraphs",) if label == "cudagraphs" else (),
        checkpoints=CheckpointSpec(every=3, unit="steps"),
        evaluation=EvaluationSpec(when="end"),
    )
    spec = replace(spec, training=replace(spec.training, precision=precision, scheduler="linear"))
    whole = run(spec, tmp_path / "whole", label)
    run(spec, tmp_path / "parts", label, TurnsOnPaper(num_turns=3))
    torch._dynamo.reset()
    torch.cuda.manual_seed(99)
    parts = run(spec, tmp_path / "parts", label)
    assert len(of_kind(parts, "resumed")) == 1
    losses = [{s["step"]: s["loss"] for s in of_kind(events, "step")} for events in (whole, parts)]
    assert losses[0] == losses[1] and len(losses[0]) == 12


def test_memory_and_device_are_recorded(tmp_path: Path) -> None:
    events = run(on_gpu(), tmp_path / "e.jsonl")
    (environment,) = of_kind(events, "environment")
    assert environment["device_name"] == torch.cuda.get_device_name(0)
    blocks = of_kind(events, "block")
    assert all(0 < b["peak_memory_bytes"] <= b["reserved_memory_bytes"] for b in blocks)
