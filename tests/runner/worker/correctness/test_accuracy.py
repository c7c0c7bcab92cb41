"""The scenario `accuracy`: outputs and gradients against a reference in double precision."""

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch._dynamo.backends import registry
from torch._dynamo.utils import same

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.specs import experiment as specs
from breakeven.runner.worker.correctness.batch_tensors import watched
from breakeven.runner.worker.correctness.equal_tensors import judge, own_scales, tensor_tolerance
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.device.device_kinds import CpuDevice, CudaDevice
from breakeven.runner.worker.model.transformers_models import BUILTIN_CONFIGURATIONS
from tests.faults import planted_faults
from tests.helpers.loop import NET, TurnsOnPaper, experiment, of_kind, run

CPU, CUDA = CpuDevice(torch.device("cpu")), CudaDevice(torch.device("cuda"))
pytestmark = pytest.mark.usefixtures("fresh_torch")
Events = list[dict[str, Any]]


NO_LAYERS = specs.AccuracySpec(layers="never")


def here(folder: Path, label: str = "baseline", **changes: Any) -> Events:
    """The journal of a run in this process."""
    spec = experiment(**{"scenario": "accuracy", "accuracy": NO_LAYERS} | changes)
    return run(spec, folder / "events.jsonl", label)


def with_backend(folder: Path, backend: Any, **changes: Any) -> Events:
    """The journal of a run of a network in this process, under a backend that is registered."""
    torch._dynamo.register_backend(backend, name="own_backend")
    try:
        backends = ("own_backend:scope=forward",)
        return here(folder, "own_backend-forward", backends=backends, **NET | changes)
    finally:
        registry._BACKENDS.pop("own_backend")
        registry._COMPILER_FNS.pop("own_backend")


def statuses(events: Events) -> dict[str, str]:
    return {event["part"]: event["status"] for event in of_kind(events, "accuracy_status")}


def failed(events: Events) -> set[tuple[str, str, str]]:
    return {
        (event["part"], event["quantity"], event["tensor"])
        for event in of_kind(events, "accuracy")
        if not event["passed"]
    }


def test_gradients_that_are_5_percent_too_large_fail_and_nothing_else_does(tmp_path: Path) -> None:
    events = with_backend(tmp_path, planted_faults.scaled_gradients)
    assert statuses(events) == {"training": "fail_accuracy", "inference": "pass"}
    assert {(part, quantity) for part, quantity, _ in failed(events)} == {("training", "gradient")}
    (bias,) = (
        event
        for event in of_kind(events, "accuracy")
        if (event["quantity"], event["tensor"]) == ("gradient", "head.bias")
    )
    # The scale is the gradient's root mean square, of which the error is a twentieth.
    assert bias["rmse"] == pytest.approx(0.05 * bias["scale"], rel=1e-3)
    assert bias["baseline_rmse"] < 1e-4 * bias["rmse"]


def test_gradients_of_zero_fail_where_every_layers_output_is_right(tmp_path: Path) -> None:
    events = with_backend(
        tmp_path, planted_faults.zeroed_gradients, accuracy=specs.AccuracySpec(layers="failed")
    )
    assert statuses(events) == {"training": "fail_accuracy", "inference": "pass"}
    gradients = {
        event["tensor"] for event in of_kind(events, "accuracy") if event["quantity"] == "gradient"
    }
    assert {name for _, quantity, name in failed(events) if quantity == "gradient"} == gradients
    layers = activations(events, "training")
    assert len(layers) > 5 and all(event["passed"] for event in layers)
    assert [status["notes"] for status in of_kind(events, "accuracy_status")] == [[], []]


@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager:scope=forward",
        "eager:scope=blocks",
        pytest.param("inductor:scope=forward", marks=pytest.mark.slow),
    ],
)
def test_correct_backends_pass_in_one_turn(tmp_path: Path, backend: str) -> None:
    turns = TurnsOnPaper()
    spec = experiment(scenario="accuracy", backends=(backend,), **NET)
    events = run(spec, tmp_path / "events.jsonl", spec.arms[1].label, turns)
    assert statuses(events) == {"training": "pass", "inference": "pass"}
    assert turns.said == ["ready", "finished"]
    assert of_kind(events, "compile_metrics"), "the backend must have been at work"


def test_the_baseline_agrees_with_itself_in_every_gradient_parameter_loss_and_output(
    tmp_path: Path,
) -> None:
    events = here(tmp_path)
    compared = of_kind(events, "accuracy")
    names = [(e["part"], e["quantity"]) for e in compared]
    # 5 embeddings, 16 in the layer, 2 of the pooler, 2 of the classifier: 25.
    assert names.count(("training", "gradient")) == names.count(("training", "parameter")) == 25
    for part in ("training", "inference"):
        assert names.count((part, "output")) == names.count((part, "loss")) == 1
    tolerances = {e["part"]: e["tolerance"] for e in of_kind(events, "accuracy_status")}
    assert tolerances == {"training": 1e-2, "inference": 1e-3}
    assert statuses(events) == {"training": "pass", "inference": "pass"}
    assert {event["max_difference"] for event in compared} == {0.0}
    assert not torch.are_deterministic_algorithms_enabled(), "as it was before"
    # Half a unit in the last place of numbers around 0.1 in float32, of 24 binary digits.
    assert 1e-10 < rmse_of_answers(events) < 1e-6


def rmse_of_answers(events: Events) -> float:
    """How far the baseline's answers are from those in double precision."""
    (logits,) = (
        e
        for e in of_kind(events, "accuracy")
        if (e["part"], e["quantity"]) == ("inference", "output")
    )
    return float(logits["baseline_rmse"])


def test_a_baseline_in_half_precision_is_measured_against_double_precision(tmp_path: Path) -> None:
    training = replace(experiment().training, precision="bf16")
    events = here(tmp_path, training=training, **NET)
    assert 1e-5 < rmse_of_answers(events) < 1e-2  # of 8 binary digits
    assert statuses(events) == {"training": "pass", "inference": "pass"}


def test_dropout_is_off_and_there_is_no_control() -> None:
    spec = experiment(scenario="accuracy", model=specs.ModelSpec(dropout="keep"))
    assert not spec.has_dropout
    assert [arm.label for arm in spec.arms] == ["baseline", "eager"]


def test_only_requested_parts_are_checked_by_the_requested_tolerance(tmp_path: Path) -> None:
    accuracy = specs.AccuracySpec(parts=("inference",), tolerance=0.25, iterations=1)
    events = here(tmp_path, accuracy=accuracy, **NET)
    (status,) = of_kind(events, "accuracy_status")
    assert (status["part"], status["tolerance"], status["iterations"]) == ("inference", 0.25, 1)


def test_a_backend_that_raises_fails_to_run_or_lacks_memory_and_the_other_part_is_still_checked(
    tmp_path: Path,
) -> None:
    def broken(graph: Any, inputs: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("no such instruction")
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    events = with_backend(tmp_path, broken)
    assert statuses(events) == {"training": "fail_to_run", "inference": "OOM"}


OWN = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.calls = 0

    def forward(self, x, labels=None):
        %s
        return self.linear(x)

def data():
    x = torch.randn(8, 4)
    return {part: {"x": x, "labels": (x[:, 0] > 0).long()} for part in ("train", "validation")}
"""


NO_DOUBLE = "The model does not run in double precision"


def own(folder: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> specs.ExperimentSpec:
    """An experiment with a user's model, whose forward begins with a line."""
    monkeypatch.setenv(CODE_VARIABLE, str(folder))
    file = folder / "own.py"
    file.write_text(OWN % line)
    spec = experiment(
        scenario="accuracy", task="custom", accuracy=NO_LAYERS, backends=("eager:scope=forward",)
    )
    return replace(
        spec,
        model=specs.ModelSpec(source=f"{file}:Model"),
        data=replace(spec.data, source=f"{file}:data", num_train_samples=8, num_eval_samples=8),
        training=replace(spec.training, losses=("CrossEntropyLoss",)),
    )


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        (
            "x = x + __import__('secrets').randbelow(10**9) / 10**9",
            "eager_two_runs_differ",
            "two runs differ in logits",
        ),
        # With warnings alone attention's fused kernels on a GPU add up in any order.
        ("assert not torch.is_deterministic_algorithms_warn_only_enabled()", "pass", ""),
        (
            "x = x + torch.zeros_like(x).put_(torch.arange(4), torch.ones(4, dtype=x.dtype))",
            "pass",
            "Not every operation repeats itself: put_ does not have a deterministic implementation",
        ),
        ("raise ValueError('not today')", "eager_1st_run_fail", "ValueError: not today"),
        ("assert self.linear.weight.dtype == torch.float32", "pass", NO_DOUBLE),
    ],
)
def test_without_a_compiler_a_model_repeats_itself_and_is_compared_with_double_precision_or_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, status: str, said: str
) -> None:
    events = run(own(tmp_path, line, monkeypatch), tmp_path / "e.jsonl", "eager-forward")
    assert statuses(events) == dict.fromkeys(("training", "inference"), status)
    entry = of_kind(events, "accuracy_status")[0]
    (note,) = entry["notes"] or [entry["message"] or ""]
    assert said in note and bool(said) is bool(note)
    errors = {event["rmse"] for event in of_kind(events, "accuracy")}
    assert bool(errors) is (status == "pass") and (errors == {None}) is (said == NO_DOUBLE)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_weights_of_classes_are_in_double_precision_where_the_model_is(tmp_path: Path) -> None:
    training = replace(experiment().training, losses=("CrossEntropyLoss:weight=(1,2,3,4)",))
    events = here(tmp_path, training=training, **NET)
    assert statuses(events) == {"training": "pass", "inference": "pass"}
    assert [status["notes"] for status in of_kind(events, "accuracy_status")] == [[], []]
    assert None not in {event["rmse"] for event in of_kind(events, "accuracy")}


@pytest.mark.parametrize("shape", [(5,), (40, 50), (2000, 1, 1, 1)])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float32, 4e-2), (torch.bfloat16, 1e-2)]
)
def test_the_rule_is_that_of_the_harness(
    shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    generator = torch.Generator().manual_seed(1)

    def noise() -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    reference, verdicts = noise(), []
    for exponent in range(-6, 1):
        for more in (1.0, 1.5, 2.5, 4.0):
            baseline = (reference + 10.0**exponent * noise()).to(dtype)
            result = (reference + more * 10.0**exponent * noise()).to(dtype)
            judgement = judge(result, baseline, reference, tolerance)
            expected = same(baseline, result, reference, tol=tolerance)
            assert judgement.passed == expected, (exponent, more)
            verdicts.append(expected)
    assert any(verdicts) and not all(verdicts)


def test_another_shape_or_type_fails_and_so_does_no_number_but_the_baselines_in_half() -> None:
    ones, nan = torch.ones(3), torch.full((3,), math.nan)
    assert not judge(torch.ones(3, 1), ones, None, 1.0).passed
    assert not judge(ones.double(), ones, None, 1.0).passed
    assert judge(nan, nan, None, 1.0, equal_nan=True).passed
    assert not judge(nan, nan, None, 1.0).passed
    assert not judge(nan, ones, None, 1.0, equal_nan=True).passed


@pytest.mark.parametrize("mask", ["least number", "infinite", "not a number"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_masked_elements_hide_no_wrong_ones(kind: torch.dtype, mask: str) -> None:
    """The reference masks with its own least number, -1.8e308: 3.4e38 away from it, all is far."""

    def masked(values: torch.Tensor) -> torch.Tensor:
        filler = {"least number": torch.finfo(values.dtype).min, "infinite": -math.inf}
        return torch.cat([values, torch.full((5,), filler.get(mask, math.nan), dtype=values.dtype)])

    is_half, right = kind == torch.bfloat16, torch.linspace(1.0, 2.0, 2000, dtype=torch.float64)
    rounded = (right * 1.01).to(kind)  # 2 % between the two: beyond the tolerance, not the error
    for values, passed in ((right * 0.99, is_half or mask != "not a number"), (-right, False)):
        judgement = judge(
            masked(values.to(kind)), masked(rounded), masked(right), 1e-3, equal_nan=is_half
        )
        assert judgement.passed is passed
    lost = torch.cat([rounded, torch.zeros(5, dtype=kind)])
    assert not judge(lost, masked(rounded), masked(right), 1e-3, equal_nan=is_half).passed


def test_small_gradients_are_compared_by_their_own_size() -> None:
    right = torch.full((2000,), 1e-3)
    for result, passed in ((torch.zeros(2000), False), (1.05 * right, False), (right, True)):
        assert judge(result, right, right.double(), 1e-2).passed, "too small for the harness"
        assert judge(result, right, right.double(), 1e-2, scale=1e-3).passed is passed


def test_a_gradient_that_is_rounding_and_nothing_else_may_be_rounded_otherwise() -> None:
    # As that of a bias of attention's keys, whose terms cancel: 2e-8 beside rounding of 1e-7.
    reference = torch.full((2000,), 2e-8, dtype=torch.float64)
    baseline = torch.full((2000,), 1.2e-7)
    for size, passed in ((3.2e-7, True), (1.3e-6, False)):  # 3 and 13 times the baseline's error
        judgement = judge(torch.full((2000,), size), baseline, reference, 1e-2, scale=3e-6)
        assert judgement.passed is passed and judgement.multiplier == 10.0
    known = torch.full((2000,), 2e-7, dtype=torch.float64)  # twice the baseline's error
    judgement = judge(torch.full((2000,), 5e-7), known.float() + 1e-7, known, 1e-2, scale=3e-6)
    assert not judgement.passed and judgement.multiplier == 2.0


def test_the_scale_of_a_gradient_is_its_size_or_a_thousandth_of_the_largest() -> None:
    gradients = {
        "large": torch.tensor([3.0, -4.0, 0.0, 0.0]),  # root of 25 / 4
        "small": torch.full((7,), -0.01),
        "rounding": torch.full((7,), 1e-9),
    }
    assert own_scales(gradients) == pytest.approx({"large": 2.5, "small": 0.01, "rounding": 0.0025})
    assert own_scales({}) == {}
    # One that is not a number fails and spoils no other.
    broken = torch.tensor([math.nan, 1.0])
    assert own_scales({"broken": broken, "fine": torch.tensor([3.0, -3.0])}) == {
        "broken": 1.0,
        "fine": 3.0,
    }
    assert not judge(broken, broken, None, 1e-2, scale=1.0).passed


@pytest.mark.parametrize(
    ("task", "model", "precision", "part", "device", "tolerance"),
    [
        ("text_classification", "a/hub-name", "float32", "training", CPU, 1e-2),
        ("masked_lm", "a/hub-name", "bf16", "inference", CUDA, 1e-3),
        ("custom", "a.py:b", "float32", "training", CPU, 1e-4),
        ("custom", "a.py:b", "float32", "training", CUDA, 1e-3),
        ("custom", "a.py:b", "float32", "inference", CUDA, 1e-4),
        ("custom", "a.py:b", "bf16", "inference", CUDA, 1e-3),
        ("suite", "timm:resnet18", "float32", "training", CPU, 1e-2),
        ("suite", "torchbench:resnet18", "float32", "training", CPU, 1e-4),
    ],
)
def test_tolerances_are_those_of_the_harness(
    task: str, model: str, precision: Any, part: Any, device: Device, tolerance: float
) -> None:
    experiment = specs.ExperimentSpec(
        name="x",
        task=task,
        model=specs.ModelSpec(source=model),
        data=specs.DataSpec(source="builtin:random" if task == "suite" else "a.py:b"),
        training=specs.TrainingSpec(precision=precision),
    )
    assert tensor_tolerance(experiment, part, device) == tolerance


def activations(events: Events, part: str = "inference") -> Events:
    return [
        event
        for event in of_kind(events, "accuracy")
        if (event["quantity"], event["part"]) == ("activation", part)
    ]


VIT, SIZE = BUILTIN_CONFIGURATIONS["builtin:vit-small"]
TWO_LAYERS = {"builtin:vit-small": (VIT, {**SIZE, "num_hidden_layers": 2})}


def test_a_fault_in_one_layer_is_named_as_that_layer(tmp_path: Path) -> None:
    accuracy = specs.AccuracySpec(parts=("inference",), iterations=1)
    vit = {
        "task": "image_classification",
        "model": specs.ModelSpec(source="builtin:vit-small"),
        "data": specs.DataSpec(source="builtin:digits", num_train_samples=80, num_eval_samples=10),
    }
    with mock.patch.dict(BUILTIN_CONFIGURATIONS, TWO_LAYERS):
        events = with_backend(tmp_path, planted_faults.wrong_in_one_layer, accuracy=accuracy, **vit)
    assert statuses(events) == {"inference": "fail_accuracy"}
    layers = activations(events)
    names = [event["tensor"] for event in layers]
    # What it computes first and last; each of the layers, after those that it is made of.
    blocks = [f"vit.layers.{number}" for number in range(2)]
    assert [name for name in names if name in blocks] == blocks
    assert names.index(f"{blocks[1]}.attention") < names.index(blocks[1])
    wrong = [event["tensor"] for event in layers if not event["passed"]]
    assert wrong[0].startswith(f"{blocks[1]}.") and "attention" not in wrong[0]
    assert len(of_kind(events, "accuracy_status")) == 1, "nothing to note"
    # One graph, and no more: what compiles for layers is nobody's latency.
    assert len({event["compile_id"] for event in of_kind(events, "compile_ended")}) == 1


def of_ones_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    spec = own(folder, "", monkeypatch)
    return {name: getattr(spec, name) for name in ("task", "model", "data", "training")}


@pytest.mark.parametrize(
    ("layers", "negates", "looked_at"),
    [("failed", False, False), ("always", False, True), ("never", True, False)],
)
def test_layers_are_compared_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers: Any, negates: bool, looked_at: bool
) -> None:
    accuracy = specs.AccuracySpec(parts=("inference",), layers=layers)
    changes = {**of_ones_own(tmp_path, monkeypatch), "accuracy": accuracy}
    backend = planted_faults.negated_inference if negates else (lambda graph, inputs: graph.forward)
    events = with_backend(tmp_path, backend, **changes)
    assert statuses(events) == {"inference": "fail_accuracy" if negates else "pass"}
    assert [event["tensor"] for event in activations(events)] == ["linear"] * looked_at


def test_what_comes_without_the_outputs_of_layers_alone_is_noted_and_stays_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fused(graph: Any, inputs: Any) -> Any:
        """Wrong where there is one output, as code is that was fused wrongly."""
        few = len(graph.graph.output_node().args[0]) == 1
        return planted_faults.negated_inference(graph, inputs) if few else graph.forward

    def fails(graph: Any, inputs: Any) -> Any:
        if len(graph.graph.output_node().args[0]) > 1:
            raise RuntimeError("too many outputs")
        return planted_faults.negated_inference(graph, inputs)

    accuracy = specs.AccuracySpec(parts=("inference",))
    changes = {**of_ones_own(tmp_path, monkeypatch), "accuracy": accuracy}
    for backend, said in ((fused, "the fault does not come"), (fails, "too many outputs")):
        (tmp_path / "events.jsonl").unlink(missing_ok=True)
        torch._dynamo.reset()
        events = with_backend(tmp_path, backend, **changes)
        assert statuses(events) == {"inference": "fail_accuracy"}
        (note,) = of_kind(events, "accuracy_status")[-1]["notes"]
        assert said in note


def test_layers_are_whole_levels_of_a_model_as_long_as_there_are_not_too_many() -> None:
    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))

    model = nn.Sequential(nn.ModuleList([block(), *(nn.Linear(2, 2) for _ in range(97))]), block())
    # The last block; 98 members of the list and what the block is made of; with another one 101.
    names = list(watched(model))
    assert len(names) == 100 and names[0] == "1" and "0" not in names and "0.0.0" not in names
    assert list(watched(block())) == ["0"], "dropout hands on"
