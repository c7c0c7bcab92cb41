"""What the tasks make of built-in models and data."""

import runpy
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import nn

import breakeven.runner.worker.tasks
from breakeven.runner.errors import InvalidSpec, WorkloadError
from breakeven.runner.project import PACKAGE
from breakeven.runner.specs import workload
from breakeven.runner.specs.experiment import (
    ExperimentSpec,
    ModelSpec,
    TrainingSpec,
    check_task_fits,
)
from breakeven.runner.specs.training import EvaluationSpec, Metric
from breakeven.runner.specs.workload import BUILTIN_DATA, BUILTIN_MODELS, RANDOM_DATA
from breakeven.runner.worker import probe
from breakeven.runner.worker.model.losses import Objective
from breakeven.runner.worker.model.models import BUILTIN_CONFIGURATIONS, perturb, weights_sha256
from breakeven.runner.worker.model.workload import load_workload
from breakeven.runner.worker.probe import tasks
from tests.helpers.machine import TASKS
from tests.helpers.workloads import BUILTIN, load, spec

ONE_LAYER = {
    name: (kind, {size: 1 if "layer" in size else number for size, number in sizes.items()})
    for name, (kind, sizes) in BUILTIN_CONFIGURATIONS.items()
}
CLASS_METRICS = ("accuracy", "f1", "precision", "recall", "roc_auc")


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
    own = Objective(TrainingSpec(), loaded)
    named = Objective(TrainingSpec(losses=("CrossEntropyLoss",)), loaded)
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
            assert load_workload(chosen).metrics == fits.metrics
        else:
            with pytest.raises(InvalidSpec, match="does not fit"):
                check_task_fits(chosen, fits)


def test_every_builtin_source_fits_some_task_and_every_task_names_existing_ones() -> None:
    every = tasks().values()
    models = {model for task in every for model in task.models}
    assert {model for model in models if ModelSpec(source=model).is_builtin} == {*BUILTIN_MODELS}
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
    found = runpy.run_path(str(tmp_path / "specs" / "workload.py"))["TASKS"]
    assert found == ("better",)
    for module in (workload, probe):
        monkeypatch.setattr(module, "TASKS", found)
    monkeypatch.setattr(breakeven.runner.worker.tasks, "__path__", [str(folder)])
    (told,) = tasks().values()
    assert (told.learns, told.models) == ("the better text", ("builtin:bert-tiny",))
    load_workload(ExperimentSpec(name="x", task="better"))


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


def test_weights_that_are_no_numbers_are_hashed_but_not_perturbed() -> None:
    model = nn.BatchNorm1d(4)  # counts its batches in a whole number without dimensions
    model.register_parameter("table", nn.Parameter(torch.arange(3), requires_grad=False))
    before = weights_sha256(model)
    perturb(model, 1e-3, seed=0)
    assert model.table.tolist() == [0, 1, 2]
    assert weights_sha256(model) != before


def test_what_tests_of_pages_take_for_the_probes_tasks_is_what_it_lists() -> None:
    """`tests/helpers/tasks.json`; written anew by `json.dump` of what `asdict` gives of each."""
    assert tasks() == TASKS
