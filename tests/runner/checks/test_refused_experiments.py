"""What is known not to work on this machine is refused before anything starts, with its reason."""

import os
from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner.checks.refused_experiments import check
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.machine.cpus import memory_bytes
from breakeven.runner.specs.experiment import EvaluationSpec, ExperimentSpec
from tests.helpers.machine import MACHINE
from tests.helpers.workloads import spec

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize(
    ("task", "changes", "field", "said"),
    [
        (
            "image_classification",
            {"model": "builtin:bert-tiny"},
            "model.source",
            "(BERT, 2 layers of 128, random weights) does not fit task = 'image_classification'",
        ),
        ("text_classification", {"data": "builtin:digits"}, "data.source", "takes builtin:reviews"),
        ("causal_lm", {"model": "net.py:make"}, "model.source", "a function in a Python file"),
        (
            "custom",
            {"model": "net.py:make", "data": "builtin:reviews"},
            "data.source",
            "takes functions in Python files",
        ),
    ],
)
def test_sources_that_do_not_fit_the_task_are_refused(
    task: str, changes: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(InvalidSpec) as caught:
        check(spec(task, **changes), MACHINE)
    assert caught.value.field == field and said in caught.value.rule


def test_a_metric_that_the_task_does_not_measure_is_refused() -> None:
    judged = replace(spec("causal_lm"), evaluation=EvaluationSpec(metric="f1"))
    with pytest.raises(InvalidSpec, match="choose loss or accuracy or perplexity"):
        check(judged, MACHINE)


def test_more_threads_than_cpus_are_refused() -> None:
    cpus = len(os.sched_getaffinity(0))
    check(replace(spec("causal_lm"), cpu_threads=cpus), MACHINE)
    with pytest.raises(InvalidSpec, match=f"must be at most {cpus}: a run may use") as caught:
        check(replace(spec("causal_lm"), cpu_threads=cpus + 1), MACHINE)
    assert caught.value.field == "cpu_threads"


def test_samples_beyond_this_machines_memory_are_refused() -> None:
    memory = memory_bytes()
    assert memory is not None
    # 8,192 tokens of 16 bytes are 2^17 bytes for each text; 31 of them are held out.
    fitting = memory // 2**17 - 31
    sizes = {"num_eval_samples": 20, "num_test_samples": 11, "sequence_length": 8192}
    check(spec("causal_lm", num_train_samples=fitting, **sizes), MACHINE)
    with pytest.raises(InvalidSpec, match=r"texts of 8192 tokens take \d+ GB in every run"):
        check(spec("causal_lm", num_train_samples=fitting + 1, **sizes), MACHINE)


def test_what_every_task_offers_passes() -> None:
    for name, task in MACHINE.tasks.items():
        if task.samples in ("texts", "images"):
            for model in task.models:
                check(ExperimentSpec.from_json(spec(name, model).to_json()), MACHINE)
