"""The models of suites: built by the harness's rules, at full size without memory for weights."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, TrainingSpec
from breakeven.runner.suites import SUITES
from breakeven.runner.worker.model.huggingface import configuration
from breakeven.runner.worker.model.loaded_workload import Workload, load_workload

HUGGINGFACE = [model.name for model in SUITES["huggingface"].models]


def spec(source: str, batch_size: int = 2, **data: Any) -> ExperimentSpec:
    return ExperimentSpec(
        name="x",
        task="suite",
        model=ModelSpec(source=source),
        data=DataSpec(
            source="builtin:random",
            **{"num_train_samples": 4, "num_eval_samples": 1, "sequence_length": 16, **data},
        ),
        training=TrainingSpec(batch_size=batch_size, seed=3),
    )


def trained_on(workload: Workload) -> tuple[Tensor, Tensor]:
    """Loss and logits of two samples, after a backward."""
    output = workload.model(**workload.data.train.batch(torch.arange(2)))
    output["loss"].backward()
    return output["loss"].detach(), output["logits"].detach()


@pytest.mark.slow
def test_every_model_of_the_list_can_be_built_at_full_size() -> None:
    parameters = {}
    for name in HUGGINGFACE:
        with torch.device("meta"):
            kind, config = configuration(name, 1)
            parameters[name] = sum(p.numel() for p in kind(config).parameters())
    assert len(parameters) == 48
    # bert-base: 108,891,648 without its pooler (590,592), and the head of 768^2 + 3 x 768 + 30,522.
    assert parameters["BertForMaskedLM"] == 109_514_298
    assert parameters["DistillGPT2"] == 81_912_576  # as its model card says: 82 million
    assert parameters["AllenaiLongformerBase"] == 148_711_257  # 149 million
    assert parameters["T5Small"] == 60_506_624


@pytest.mark.parametrize(
    ("name", "inputs", "shape"),
    [
        ("BertForMaskedLM", {"input_ids"}, (2, 16, 953)),  # 30,522 / 32
        ("DistillGPT2", {"input_ids"}, (2, 16, 1570)),
        ("BertForQuestionAnswering", {"input_ids"}, (2, 2, 16)),
        ("GPT2ForSequenceClassification", {"input_ids"}, (2, 2)),
        ("T5ForConditionalGeneration", {"input_ids", "decoder_input_ids"}, (2, 16, 1004)),
        ("BartForConditionalGeneration", {"input_ids"}, (2, 16, 1570)),
        ("AllenaiLongformerBase", {"input_ids"}, (2, 16, 1570)),
        ("RobertaForCausalLM", {"input_ids"}, (2, 16, 1570)),
        ("MobileBertForMaskedLM", {"input_ids"}, (2, 16, 953)),
        ("XLNetLMHeadModel", {"input_ids"}, (2, 16, 1000)),
    ],
)
def test_each_kind_of_head_has_samples_and_a_loss(
    name: str, inputs: set[str], shape: tuple[int, ...]
) -> None:
    workload = load_workload(spec(f"huggingface:{name}/32"))
    assert set(workload.data.train.inputs) == inputs
    loss, logits = trained_on(workload)
    assert loss.isfinite() and logits.shape == shape
    targets, labels = workload.align(logits, workload.data.train.labels[:2])
    assert len(targets) == len(labels)


def test_models_and_tokens_are_as_the_harness_makes_them() -> None:
    # It switches the cache off when the model is there: T5's decoder has its own settings by then.
    t5: Any = load_workload(spec("huggingface:T5Small/32")).model
    assert not t5.config.use_cache and t5.decoder.config.use_cache
    # GPT-2 is left to settle its loss in the forward pass, which breaks the compiler's graph.
    gpt2: Any = load_workload(spec("huggingface:DistillGPT2/32")).model
    assert gpt2.loss_type is None
    bart = load_workload(spec("huggingface:BartForCausalLM/32")).data.train.inputs["input_ids"]
    assert set(bart[:, -1].tolist()) == {2}, "a text of Bart ends with its eos token"
    first, second = (load_workload(spec("huggingface:RobertaForCausalLM/32")) for _ in range(2))
    assert first.data.train.inputs["input_ids"].count_nonzero() == 0
    assert first.data.train.labels.count_nonzero() > 0
    # The same seed gives the same model and samples.
    assert first.data.sha256 == second.data.sha256
    pairs = zip(first.model.parameters(), second.model.parameters(), strict=True)
    assert all(torch.equal(left, right) for left, right in pairs)


def test_a_shrunk_model_keeps_the_size_of_its_heads() -> None:
    _kind, config = configuration("BertForMaskedLM", 4)
    # 12 / 4 layers and heads of 768 / 12 = 64, and a feed-forward 4 times as wide.
    assert (config.num_hidden_layers, config.num_attention_heads) == (3, 3)
    assert (config.hidden_size, config.intermediate_size) == (3 * 64, 4 * 3 * 64)
    _kind, config = configuration("GPT2ForSequenceClassification", 100)
    assert (config.n_layer, config.n_head, config.n_embd) == (1, 1, 64)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "huggingface:BertForMaskedLMs",
            r"has no model 'BertForMaskedLMs'; did you mean 'BertForM",
        ),
        ("timm:resnet18", "needs the packages timm and torchvision"),
        ("torchbench:resnet18", "needs the package torchbenchmark with this model"),
    ],
)
def test_a_model_that_is_missing_is_said_with_near_ones_or_what_to_install(
    source: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("timm", "torchbenchmark"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(WorkloadError, match=said):
        load_workload(spec(source))


# Neither package can be installed beside every torch, so what follows stands in for their API.


@pytest.mark.parametrize("num_classes", [5, 0])
def test_a_model_of_timm_sees_images_of_its_own_size(
    num_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    timm, data = ModuleType("timm"), ModuleType("timm.data")
    made = nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 4, 5))
    made.num_classes, made.num_features = num_classes, 5  # type: ignore[assignment]
    calls: list[Any] = []
    timm.create_model = lambda *names, **settings: calls.append((names, settings)) or made  # type: ignore[attr-defined]
    data.resolve_model_data_config = lambda model, use_test_size: {  # type: ignore[attr-defined]
        "input_size": (3, 8, 8) if use_test_size else (3, 4, 4)
    }
    timm.data = data  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "timm.data", data)
    workload = load_workload(spec("timm:resnet18"))
    assert calls == [(("resnet18",), {"pretrained": False, "drop_rate": 0.0})]
    images = workload.data.train.inputs["pixels"]
    assert images.shape == (4, 3, 4, 4)
    assert images.mean().item() == pytest.approx(0, abs=1e-5)
    assert images.std().item() == pytest.approx(1, abs=1e-5)
    logits = workload.model(**workload.data.train.batch(torch.arange(2)))
    assert logits.shape == (2, 5)
    assert 0 <= int(workload.data.train.labels.min()) <= int(workload.data.train.labels.max()) < 5


def test_a_model_of_torchbench_repeats_its_own_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tripled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((1,), 3.0))

        def forward(self, values: Tensor, scale: float) -> tuple[Tensor, Tensor]:
            answer = self.weight * values * scale
            return answer, answer + 10

    class Model:
        def __init__(self, test: str, device: str, batch_size: int) -> None:
            torch.manual_seed = lambda seed: None  # type: ignore[assignment]  # as TorchBench does
            self.arguments = (test, device, batch_size)

        def get_module(self) -> tuple[nn.Module, tuple[Tensor, float]]:
            assert self.arguments == ("train", "cpu", 2)
            return Tripled(), (torch.tensor([[1.0], [2.0]]), 10.0)

    for package in ("torchbenchmark", "torchbenchmark.models"):
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    module: Any = SimpleNamespace(Model=Model)
    monkeypatch.setitem(sys.modules, "torchbenchmark.models.tripled", module)
    seeds = torch.manual_seed
    workload = load_workload(spec("torchbench:tripled"))
    assert torch.manual_seed is seeds
    assert workload.data.train.inputs["input_0"].flatten().tolist() == [1, 2, 1, 2]
    loss, logits = trained_on(workload)
    assert logits.flatten().tolist() == [30, 60]
    assert loss.item() == pytest.approx((45 + 55) / 2), "the mean of the tensors' means"
