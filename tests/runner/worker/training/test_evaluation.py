"""Evaluation of splits, with and without a compiler, and what is predicted of each sample."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch._dynamo import register_backend

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs import experiment as specs
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.training import Precision
from breakeven.runner.worker.model.loaded_workload import load_workload
from breakeven.runner.worker.model.losses import Objective
from breakeven.runner.worker.step.inference import Inference
from breakeven.runner.worker.step.stepping import MixedPrecision
from breakeven.runner.worker.training.evaluation import evaluate
from tests.faults.inference_faults import INFERENCE_FAULTS
from tests.faults.planted_faults import negated_inference
from tests.helpers.loop import NET, experiment, folder_of, of_kind, run

pytestmark = pytest.mark.usefixtures("fresh_torch")
BASELINE = Arm(label="baseline", role="baseline")


def test_evaluation_counts_right_answers_however_samples_are_cut_into_batches() -> None:
    spec = experiment(**NET)
    workload = load_workload(spec)
    objective = Objective(spec.training, workload)
    precision = MixedPrecision(spec.training, torch.device("cpu"))
    split = workload.data.validation

    def scores(batch_size: int) -> dict[str, Any]:
        inference = Inference(workload.model, precision, BASELINE, batch_size, own_loss=True)
        (result,) = evaluate(
            inference, workload, objective, "validation", split, precision="float32", compiled=False
        )
        return result

    # 10 samples in batches of 4, the last one filled up, must give what all at once do.
    parts, together = scores(4), scores(10)
    assert parts["loss"] == pytest.approx(together["loss"], rel=1e-6)
    assert parts["metrics"] == pytest.approx(together["metrics"])
    workload.model.eval()
    with torch.no_grad():
        logits = workload.model(**split.inputs, labels=split.labels).logits
    right = (logits.argmax(-1) == split.labels).sum().item()
    assert together["accuracy"] == together["metrics"]["accuracy"] == right / 10
    by_hand = torch.nn.functional.cross_entropy(logits, split.labels).item()
    assert together["loss"] == pytest.approx(by_hand, rel=1e-6)


def test_every_requested_split_is_evaluated_and_predicted_and_no_other(tmp_path: Path) -> None:
    data = replace(experiment().data, num_test_samples=6)
    evaluation = specs.EvaluationSpec(
        splits=("validation", "train", "test"), when="end", predictions=("train",)
    )
    training = replace(experiment().training, max_steps=1)
    events = run(
        experiment(data=data, evaluation=evaluation, training=training), tmp_path / "e.jsonl"
    )
    evaluated = [
        (e["split"], e["compiled"], e["num_samples"]) for e in of_kind(events, "evaluation")
    ]
    assert evaluated == [("validation", False, 10), ("train", False, 26), ("test", False, 6)]
    # Without a backend, samples are predicted without one.
    (file,) = folder_of(tmp_path / "e.jsonl").artifacts.glob("predictions-*")
    assert file.name == "predictions-train.parquet"
    assert list(pd.read_parquet(file).columns) == ["label", "prediction", "logits"]


def expect_rounding_alone(events: list[dict[str, Any]]) -> None:
    answers = [event["answers"] for event in of_kind(events, "evaluation") if event["compiled"]]
    assert [(compared["compared"], compared["wrong"]) for compared in answers] == [(10, 0)] * 2
    assert all(compared["ratio"] < 0.5 for compared in answers)


def test_a_backend_is_evaluated_and_predicts_with_and_without_its_compiled_model(
    tmp_path: Path,
) -> None:
    spec = net(
        "aot_eager:scope=forward", evaluation=specs.EvaluationSpec(predictions=("validation",))
    )
    events = run(spec, tmp_path / "e.jsonl", "aot_eager-forward")
    expect_rounding_alone(events)
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
    spec = net("eager:scope=forward", evaluation=specs.EvaluationSpec(compiled=False))
    spec = replace(spec, training=replace(spec.training, max_steps=2))
    events = run(spec, tmp_path / "e.jsonl", "eager-forward")
    assert {e["phase"] for e in of_kind(events, "compile_metrics")} == {"training"}
    assert not any(e["compiled"] for e in of_kind(events, "evaluation"))


def net(backend: str, precision: Precision = "float32", **changes: Any) -> specs.ExperimentSpec:
    training = replace(experiment().training, precision=precision)
    return experiment(**NET, training=training, backends=(backend,), **changes)


@pytest.mark.parametrize(
    ("backend", "wrong", "samples"),
    [
        # With the right loss,
        ("one_nudged_sample", [2, 2], [2, 6]),
        ("wrong_last_batch", [2, 2], [8, 9]),
        # of earlier weights, of earlier samples,
        ("stale_weights", [0, 10], None),
        ("last_calls_answers", [6, 10], None),
        # with a loss that is wrong, too.
        ("negated_inference", [10, 10], None),
    ],
)
def test_answers_that_are_wrong_under_a_compiler_show(
    tmp_path: Path, backend: str, wrong: list[int], samples: list[int] | None
) -> None:
    register_backend(
        {**INFERENCE_FAULTS, "negated_inference": negated_inference}[backend], name=backend
    )
    evaluation = specs.EvaluationSpec(predictions=("validation",))
    events = run(
        net(f"{backend}:scope=forward", evaluation=evaluation),
        tmp_path / "e.jsonl",
        f"{backend}-forward",
    )
    evaluated = [e for e in of_kind(events, "evaluation") if e["compiled"]]
    assert [e["answers"]["wrong"] for e in evaluated] == wrong
    plain = [e["loss"] for e in of_kind(events, "evaluation") if not e["compiled"]]
    has_the_right_loss = [e["loss"] for e in evaluated] == pytest.approx(plain, abs=1e-6)
    assert has_the_right_loss is (backend != "negated_inference")
    (written,) = of_kind(events, "prediction")
    for event in (*evaluated, written) if samples else ():
        assert (event["answers"]["compared"], event["answers"]["samples"]) == (10, samples)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_answers_of_inductor_differ_by_rounding_alone(tmp_path: Path, precision: Precision) -> None:
    spec = net("inductor:scope=forward", precision)
    events = run(spec, tmp_path / "e.jsonl", spec.arms[-1].label)
    expect_rounding_alone(events)


def test_predictions_of_every_token_are_refused(tmp_path: Path) -> None:
    spec = experiment(
        task="causal_lm",
        model=specs.ModelSpec(source="builtin:gpt2-tiny"),
        evaluation=specs.EvaluationSpec(predictions=("validation",)),
    )
    with pytest.raises(WorkloadError, match="'causal_lm' has an answer for every token"):
        run(spec, tmp_path / "e.jsonl")


def test_the_operations_of_a_step_are_counted(tmp_path: Path) -> None:
    """By hand, for one sample of the small ViT: 8 x 8 pixels in patches of 2, hence 17 tokens.

    One matrix product of (a, b) and (b, c) takes 2abc operations forward and twice that backward.
    """
    spec = experiment(
        task="image_classification",
        model=specs.ModelSpec(source="builtin:vit-small"),
        data=specs.DataSpec(source="builtin:digits", num_train_samples=40, num_eval_samples=10),
        training=specs.TrainingSpec(batch_size=4, max_steps=1),
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
