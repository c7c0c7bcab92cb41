"""What the tasks make of built-in models and data, and the targets of language models."""

import runpy
import shutil
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

import breakeven.runner.worker.tasks
from breakeven.runner.errors import InvalidSpec, WorkloadError
from breakeven.runner.project import PACKAGE
from breakeven.runner.specs import experiment as specs
from breakeven.runner.specs import workload
from breakeven.runner.specs.training import EvaluationSpec, Metric
from breakeven.runner.specs.workload import BUILTIN_DATA, BUILTIN_MODELS, RANDOM_DATA
from breakeven.runner.worker import probe
from breakeven.runner.worker.data.splits import IGNORE, Split
from breakeven.runner.worker.model.loaded_workload import load_workload
from breakeven.runner.worker.model.losses import Objective
from breakeven.runner.worker.model.transformers_models import (
    BUILTIN_CONFIGURATIONS,
    kinds_of_buffers,
    perturb,
    weights_sha256,
)
from breakeven.runner.worker.probe import tasks
from breakeven.runner.worker.tasks.masked_lm import hide_tokens
from tests.helpers.machine import TASKS
from tests.helpers.workloads import BUILTIN, SMALL, load, spec, texts_file

ONE_LAYER = {
    name: (kind, {size: 1 if "layer" in size else number for size, number in sizes.items()})
    for name, (kind, sizes) in BUILTIN_CONFIGURATIONS.items()
}
CLASS_METRICS = ("accuracy", "f1", "precision", "recall", "roc_auc")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")


@pytest.mark.parametrize(
    ("task", "kind", "metrics"),
    [
        ("text_classification", "BertForSequenceClassification", CLASS_METRICS),
        ("image_classification", "ViTForImageClassification", CLASS_METRICS),
        ("causal_lm", "GPT2LMHeadModel", ("accuracy", "perplexity")),
        ("masked_lm", "BertForMaskedLM", ("accuracy", "perplexity")),
    ],
)
def test_a_builtin_workload_trains_in_one_graph(
    task: str, kind: str, metrics: tuple[Metric, ...]
) -> None:
    with mock.patch.dict(BUILTIN_CONFIGURATIONS, ONE_LAYER):
        loaded = load(task)
    assert type(loaded.model).__name__ == kind and loaded.metrics == metrics
    assert [len(split) for split in loaded.data.splits.values()] == [60, 20, 10]
    batch = loaded.data.train.batch(torch.arange(4))
    own = Objective(specs.TrainingSpec(), loaded)
    named = Objective(specs.TrainingSpec(losses=("CrossEntropyLoss",)), loaded)
    model = loaded.model.eval()

    def losses() -> tuple[torch.Tensor, torch.Tensor]:
        output = model(**batch)
        return own(output, batch["labels"])[0], named(output, batch["labels"])[0]

    # The model's own loss is the criterion on its aligned logits.
    torch._dynamo.reset()
    ours, criterion = torch.compile(losses, backend="eager", fullgraph=True)()
    assert ours.item() == pytest.approx(criterion.item(), rel=1e-5)
    assert ours.item() == losses()[0].item()
    ours.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("task", BUILTIN)
def test_a_task_takes_the_builtin_sources_that_it_names_and_no_others(task: str) -> None:
    fits = tasks()[task]
    for model, data in product(BUILTIN_MODELS, {*BUILTIN_DATA} - {RANDOM_DATA}):
        chosen = spec(task, model, data)
        if model in fits.models and data in fits.data:
            with mock.patch.dict(BUILTIN_CONFIGURATIONS, ONE_LAYER):
                assert load_workload(chosen).metrics == fits.metrics
        else:
            with pytest.raises(InvalidSpec, match="does not fit"):
                specs.check_task_fits(chosen, fits)


def test_every_builtin_source_fits_some_task_and_every_task_names_existing_ones() -> None:
    every = tasks().values()
    models = {model for task in every for model in task.models}
    assert {model for model in models if specs.ModelSpec(source=model).is_builtin} == {
        *BUILTIN_MODELS
    }
    assert {data for task in every for data in task.data} == {*BUILTIN_DATA}


NEW_TASK = '''
"""The better of two texts."""

from breakeven.runner.specs.workload import Task
from breakeven.runner.worker.tasks import text_classification

TASK = Task(learns="the better text", samples="texts", models=("builtin:bert-tiny",))


def load(experiment):
    return text_classification.load(experiment)
'''


def test_a_new_module_is_a_new_task_and_nothing_else_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "specs").mkdir()
    shutil.copy(PACKAGE / "runner" / "specs" / "workload.py", tmp_path / "specs")
    folder = tmp_path / "worker" / "tasks"
    folder.mkdir(parents=True)
    (folder / "better.py").write_text(NEW_TASK)
    names = runpy.run_path(str(tmp_path / "specs" / "workload.py"))["TASKS"]
    assert names == ("better",)
    for module in (workload, probe):
        monkeypatch.setattr(module, "TASKS", names)
    monkeypatch.setattr(breakeven.runner.worker.tasks, "__path__", [str(folder)])
    (task,) = tasks().values()
    assert (task.learns, task.models) == ("the better text", ("builtin:bert-tiny",))
    load_workload(specs.ExperimentSpec(name="x", task="better"))


def test_pictures_of_ones_own_do_not_fit_the_model_for_small_digits() -> None:
    with pytest.raises(WorkloadError, match="do not fit each other"):
        load("image_classification", None, "photos.parquet")


def test_a_metric_that_the_task_does_not_have_is_refused_with_those_it_has() -> None:
    experiment = replace(spec("causal_lm"), evaluation=EvaluationSpec(metric="f1"))
    with pytest.raises(WorkloadError, match=r"'f1': the task 'causal_lm'.*loss, accuracy, perpl"):
        load_workload(experiment)


@pytest.mark.parametrize("task", BUILTIN)
def test_dropout_off_leaves_none_in_the_model(task: str) -> None:
    def largest(dropout: str) -> float:
        modules = load(task, dropout=dropout).model.modules()
        return max(module.p for module in modules if isinstance(module, nn.Dropout))

    assert largest("off") == 0
    # transformers' ViT comes without dropout.
    assert largest("keep") == (0 if task == "image_classification" else 0.1)


def test_a_mask_that_only_one_form_of_attention_has_leaves_the_weights_as_they_are() -> None:
    plain = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    masked = deepcopy(plain)
    for layer in masked:
        layer.register_buffer("mask", torch.ones(2))
        layer.register_buffer("scratch", torch.ones(2), persistent=False)
    assert weights_sha256(masked) == weights_sha256(plain)
    assert (kinds_of_buffers(masked), kinds_of_buffers(plain)) == (["*.mask"], [])


def test_weights_that_are_no_numbers_are_hashed_but_not_perturbed() -> None:
    model = nn.BatchNorm1d(4)  # counts its batches in a whole number without dimensions
    model.register_parameter("table", nn.Parameter(torch.arange(3), requires_grad=False))
    before = weights_sha256(model)
    perturb(model, 1e-3, seed=0)
    assert model.table.tolist() == [0, 1, 2]
    assert weights_sha256(model) != before


def test_the_targets_of_a_causal_model_are_all_tokens_but_the_first_and_padding(
    tmp_path: Path,
) -> None:
    file = texts_file(tmp_path, ["the cat sat", "a mat"] * 4)
    train = load("causal_lm", None, file, **{**SMALL, "sequence_length": 6}).data.train
    lengths = train.inputs["attention_mask"].sum(1).tolist()
    assert set(lengths) == {5, 4}  # [CLS] the cat sat [SEP], and [CLS] a mat [SEP]
    assert train.num_targets.tolist() == [length - 1 for length in lengths]
    for tokens, labels, length in zip(
        train.inputs["input_ids"].tolist(), train.labels.tolist(), lengths, strict=True
    ):
        assert labels == [IGNORE, *tokens[1:length], *[IGNORE] * (6 - length)]
    assert train.num_targets.device.type == "cpu" and train.num_targets.dtype == torch.int64


def test_a_causal_models_loss_is_the_mean_over_its_targets() -> None:
    loaded = load("causal_lm", **SMALL)
    split, model = loaded.data.train, loaded.model.eval()

    def loss(*indices: int) -> float:
        return model(**split.batch(torch.tensor(indices))).loss.item()

    first, second = int(split.num_targets[0]), int(split.num_targets[1])
    mean = (first * loss(0) + second * loss(1)) / (first + second)
    assert loss(0, 1) == pytest.approx(mean, rel=1e-5)


def test_language_models_pass_over_blank_texts_and_need_no_labels(tmp_path: Path) -> None:
    texts = ["the cat sat", "", None, "  ", "a mat", "and slept"]
    sizes = {"num_train_samples": 2, "num_eval_samples": 1, "num_test_samples": 0}
    for task in ("causal_lm", "masked_lm"):
        loaded = load(task, None, texts_file(tmp_path, texts), **sizes)
        assert (loaded.data.train.num_targets > 0).all() and loaded.data.labels == ()
    with pytest.raises(WorkloadError, match="has 3 usable samples, but 4 are requested"):
        load("causal_lm", None, texts_file(tmp_path, texts), **{**sizes, "num_eval_samples": 2})


def hidden_in(num_samples: int, num_tokens: int) -> tuple[Tensor, Split]:
    """Tokens 10 to 99 behind a start (1), before an end (2) and one of padding (0); and what is
    left of them."""
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(10, 100, (num_samples, num_tokens), generator=generator)
    start, end, padding = (torch.full((num_samples, 1), token) for token in (1, 2, 0))
    tokens = torch.cat([start, words, end, padding], dim=1)
    inputs = {"input_ids": tokens, "attention_mask": (tokens > 0).long()}
    return tokens, hide_tokens(inputs, tokens < 3, 4, 100, 3)


def test_a_share_of_the_words_is_hidden_as_in_bert_and_of_every_text_at_least_one() -> None:
    assert hidden_in(300, 1)[1].num_targets.tolist() == [1] * 300
    tokens, split = hidden_in(200, 500)
    shown = split.inputs["input_ids"]
    chosen = split.labels != IGNORE
    assert torch.equal(split.labels[chosen], tokens[chosen])
    assert torch.equal(shown[~chosen], tokens[~chosen])
    assert not (chosen & (tokens < 3)).any()
    assert torch.equal(split.num_targets, chosen.sum(1))
    # 100,000 words: the standard error of the shares is at most 0.4 %.
    assert chosen.sum().item() / 100_000 == pytest.approx(0.15, abs=0.005)
    hidden, kept = (shown == 4)[chosen], (shown == tokens)[chosen]
    assert hidden.float().mean().item() == pytest.approx(0.8, abs=0.015)
    # One in 100 of the replaced tenth is the word itself by chance.
    assert kept.float().mean().item() == pytest.approx(0.1 + 0.1 / 100, abs=0.015)
    replaced = shown[chosen & (shown != 4) & (shown != tokens)]
    assert replaced.min() < 3 and replaced.max() > 95  # any token of the vocabulary


def test_every_epoch_hides_other_words_and_the_seed_says_which() -> None:
    data = load("masked_lm", **SMALL).data
    assert data.validation.for_epoch(5) is data.validation, "held-out ones once for all"
    first, again, other = (data.train.for_epoch(seed) for seed in (1, 1, 2))
    assert torch.equal(first.inputs["input_ids"], again.inputs["input_ids"])
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(first.labels, other.labels)
    assert first.num_targets.tolist() == (first.labels != IGNORE).sum(1).tolist()
    # An epoch starts from the words, not from what the epoch before it has left of them.
    after_another = other.for_epoch(1)
    assert torch.equal(first.inputs["input_ids"], after_another.inputs["input_ids"])
    words = torch.where(first.labels == IGNORE, first.inputs["input_ids"], first.labels)
    others = torch.where(other.labels == IGNORE, other.inputs["input_ids"], other.labels)
    assert torch.equal(words, others)
    moved = data.train.to(torch.device("meta")).for_epoch(1)
    assert moved.labels.device.type == moved.inputs["input_ids"].device.type == "meta"
    assert moved.num_targets.device.type == "cpu"


def test_what_tests_of_pages_take_for_the_probes_tasks_is_what_it_lists() -> None:
    """`tests/helpers/tasks.json`; written anew by `json.dump` of what `asdict` gives of each."""
    assert tasks() == TASKS
