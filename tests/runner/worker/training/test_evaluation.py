"""Evaluation of splits, with and without a compiler, and what is predicted of each sample."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch._dynamo import register_backend

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import (
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    TrainingSpec,
)
from breakeven.runner.specs.training import Precision
from breakeven.runner.specs.variants import Variant
from breakeven.runner.worker.model.losses import Objective
from breakeven.runner.worker.model.workload import load_workload
from breakeven.runner.worker.step.inference import Inference
from breakeven.runner.worker.step.stepping import MixedPrecision
from breakeven.runner.worker.training.evaluation import evaluate
from tests.faults.inference_faults import INFERENCE_FAULTS
from tests.faults.planted_faults import negated_inference
from tests.helpers.loop import NET, experiment, folder_of, of_kind, run

pytestmark = pytest.mark.usefixtures("fresh_torch")
BASELINE = Variant(label="baseline", role="baseline")


def test_evaluation_counts_right_answers_however_samples_are_cut_into_batches() -> None:
    spec = experiment()
    workload = load_workload(spec)
    objective = Objective(spec.training, workload)
    precision = MixedPrecision(spec.training, torch.device("cpu"))
    split = workload.data.validation

    def scores(batch_size: int) -> dict[str, Any]:
        inference = Inference(workload.model, precision, BASELINE, batch_size, own_loss=True)
        (found,) = evaluate(inference, workload, objective, "validation", split,
                            precision="float32", compiled=False)  # fmt: skip
        return found

    # 10 samples in batches of 4, the last one filled up, must give what all at once do.
    parts, whole = scores(4), scores(10)
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-6)
    assert parts["metrics"] == pytest.approx(whole["metrics"])
    workload.model.eval()
    with torch.no_grad():
        logits = workload.model(**split.inputs).logits
    right = (logits.argmax(-1) == split.labels).sum().item()
    assert whole["accuracy"] == whole["metrics"]["accuracy"] == right / 10
    by_hand = torch.nn.functional.cross_entropy(logits, split.labels).item()
    assert whole["loss"] == pytest.approx(by_hand, rel=1e-6)


def test_every_split_asked_for_is_evaluated_and_predicted_and_no_other(tmp_path: Path) -> None:
    data = replace(experiment().data, num_test_samples=6)
    asked = EvaluationSpec(
        splits=("validation", "train", "test"), when="end", predictions=("train",)
    )
    events = run(experiment(data=data, evaluation=asked), tmp_path / "e.jsonl")
    found = [(e["split"], e["compiled"], e["num_samples"]) for e in of_kind(events, "evaluation")]
    assert found == [("validation", False, 10), ("train", False, 26), ("test", False, 6)]
    # Without a backend, samples are predicted without one.
    (file,) = folder_of(tmp_path / "e.jsonl").artifacts.glob("predictions-*")
    assert file.name == "predictions-train.parquet"
    assert list(pd.read_parquet(file).columns) == ["label", "prediction", "logits"]
    again = run(experiment(data=data), tmp_path / "f.jsonl")
    assert {e["split"] for e in of_kind(again, "evaluation")} == {"validation"}


def test_a_backend_is_evaluated_and_predicts_with_and_without_its_compiled_model(
    tmp_path: Path,
) -> None:
    spec = net("eager:scope=forward", evaluation=EvaluationSpec(predictions=("validation",)))
    events = run(spec, tmp_path / "e.jsonl", "eager-forward")
    by_form = {
        compiled: [e["loss"] for e in of_kind(events, "evaluation") if e["compiled"] is compiled]
        for compiled in (False, True)
    }
    assert len(by_form[True]) == 2 and by_form[True] == pytest.approx(by_form[False], abs=1e-5)
    compiles = {e["phase"] for e in of_kind(events, "compile_metrics")}
    assert compiles >= {"training", "evaluating"}, "evaluation compiled a graph of its own"
    # What evaluation compiles is charged to no step.
    compiled_steps = [step["step"] for step in of_kind(events, "step") if step["compiled"]]
    assert max(compiled_steps) < 6
    (written,) = of_kind(events, "prediction")
    assert (written["split"], written["num_samples"]) == ("validation", 10)
    table = pd.read_parquet(folder_of(tmp_path / "e.jsonl").path / written["file"])
    labels = load_workload(spec).data.validation.labels
    assert table["label"].tolist() == labels.tolist()
    assert all(len(logits) == 4 for logits in table["logits"])
    assert table["prediction"].tolist() == [int(logits.argmax()) for logits in table["logits"]]
    assert table["compiled_prediction"].tolist() == table["prediction"].tolist()
    # The last evaluation judged the same weights.
    last = [e for e in of_kind(events, "evaluation") if not e["compiled"]][-1]
    assert (table["label"] == table["prediction"]).mean() == last["accuracy"]


def test_evaluation_without_the_compiled_model_compiles_nothing(tmp_path: Path) -> None:
    spec = net("eager:scope=forward", evaluation=EvaluationSpec(compiled=False))
    spec = replace(spec, training=replace(spec.training, max_steps=2))
    events = run(spec, tmp_path / "e.jsonl", "eager-forward")
    assert {e["phase"] for e in of_kind(events, "compile_metrics")} == {"training"}
    assert not any(e["compiled"] for e in of_kind(events, "evaluation"))


def net(backend: str, precision: Precision = "float32", **changes: Any) -> ExperimentSpec:
    training = replace(experiment().training, precision=precision)
    return experiment(**NET, training=training, backends=(backend,), **changes)


def test_a_fault_of_inference_alone_shows(tmp_path: Path) -> None:
    register_backend(negated_inference)
    spec = net("negated_inference:scope=forward")
    baseline = run(spec, tmp_path / "baseline")
    events = run(spec, tmp_path / "e.jsonl", "negated_inference-forward")
    losses = [[step["loss"] for step in of_kind(e, "step")] for e in (baseline, events)]
    assert losses[1] == pytest.approx(losses[0], abs=1e-4), "training is not touched by it"
    plain, wrong = (
        [e["loss"] for e in of_kind(events, "evaluation") if e["compiled"] is compiled]
        for compiled in (False, True)
    )
    assert all(abs(w - p) > 0.01 for w, p in zip(wrong, plain, strict=True))


def run_with(fault: str, journal: Path, **changes: Any) -> list[dict[str, Any]]:
    """The events of a training whose forward alone is compiled, which is where the fault lies."""
    register_backend(INFERENCE_FAULTS[fault], name=fault)
    return run(net(f"{fault}:scope=forward", **changes), journal, f"{fault}-forward")


@pytest.mark.parametrize(
    ("backend", "samples"), [("one_nudged_sample", [2, 6]), ("wrong_last_batch", [8, 9])]
)
def test_answers_that_are_wrong_with_the_right_loss_show(
    tmp_path: Path, backend: str, samples: list[int]
) -> None:
    asked = EvaluationSpec(predictions=("validation",))
    events = run_with(backend, tmp_path / "e.jsonl", evaluation=asked)
    found = [e for e in of_kind(events, "evaluation") if e["compiled"]]
    plain = [e["loss"] for e in of_kind(events, "evaluation") if not e["compiled"]]
    assert [e["loss"] for e in found] == pytest.approx(plain, abs=1e-6)
    (written,) = of_kind(events, "prediction")
    for one in (*found, written):
        assert (one["answers"]["compared"], one["answers"]["samples"]) == (10, samples)


@pytest.mark.parametrize(
    ("backend", "wrong"), [("stale_weights", [0, 10]), ("last_calls_answers", [6, 10])]
)
def test_answers_of_earlier_weights_or_samples_show(
    tmp_path: Path, backend: str, wrong: list[int]
) -> None:
    events = run_with(backend, tmp_path / "e.jsonl")
    found = [e["answers"]["wrong"] for e in of_kind(events, "evaluation") if e["compiled"]]
    assert found == wrong


@pytest.mark.parametrize(
    ("backend", "precision"),
    [
        ("aot_eager:scope=forward", "float32"),
        pytest.param("inductor:scope=forward", "float32", marks=pytest.mark.slow),
        pytest.param("inductor:scope=forward", "bf16", marks=pytest.mark.slow),
    ],
)
def test_answers_of_right_backends_differ_by_rounding_alone(
    tmp_path: Path, backend: str, precision: Precision
) -> None:
    spec = net(backend, precision)
    events = run(spec, tmp_path / "e.jsonl", spec.variants[-1].label)
    found = [event["answers"] for event in of_kind(events, "evaluation") if event["compiled"]]
    assert [(one["compared"], one["wrong"]) for one in found] == [(10, 0)] * 2
    assert all(one["ratio"] < 0.5 for one in found)


def test_predictions_of_every_token_are_refused(tmp_path: Path) -> None:
    spec = experiment(
        task="causal_lm",
        model=ModelSpec(source="builtin:gpt2-tiny"),
        evaluation=EvaluationSpec(predictions=("validation",)),
    )
    with pytest.raises(WorkloadError, match="'causal_lm' has an answer for every token"):
        run(spec, tmp_path / "e.jsonl")


def test_the_operations_of_a_step_are_counted(tmp_path: Path) -> None:
    """By hand, for one sample of the small ViT: 8 x 8 pixels in patches of 2, hence 17 tokens.

    One matrix product of (a, b) and (b, c) takes 2abc operations forward and twice that backward.
    """
    spec = experiment(
        task="image_classification",
        model=ModelSpec(source="builtin:vit-small"),
        data=DataSpec(source="builtin:digits", num_train_samples=40, num_eval_samples=10),
        training=TrainingSpec(batch_size=4, max_steps=1),
    )
    (workload,) = of_kind(run(spec, tmp_path / "e.jsonl"), "workload")
    tokens, width, inner, heads = 17, 128, 512, 4
    layer = 4 * tokens * width * width + 2 * tokens * width * inner  # projections, then the MLP
    layer += 2 * heads * tokens * tokens * (width // heads)  # scores, and what they weigh
    head = width * 10
    patches = 16 * 4 * width
    # Nobody asks for the gradient of the pixels: of the patches' backward, one product is left.
    flops = 2 * (3 * (4 * layer + head) + 2 * patches)
    assert workload["flops_per_step"] == 4 * flops
