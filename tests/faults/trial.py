"""A seeded experiment of planted faults and correct backends, trained in this process. Each run
writes the folder that a worker would write. `judging.py` judges them in a separate module, because
a machine with a GPU may lack the packages for that."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch._dynamo.backends.registry import list_backends, register_backend
from torch._dynamo.callback import callback_handler

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import (
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    RunSpec,
    TrainingSpec,
)
from breakeven.runner.specs.training import Precision
from breakeven.runner.specs.workload import SCRIPT_TASK
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.script.run_script import run_script
from breakeven.runner.worker.session import run_session
from tests.faults import late_faults, planted_faults
from tests.faults.dropout_faults import OWN_NUMBERS
from tests.faults.late_faults import LATE_FAULTS, WEAK_FAULTS
from tests.faults.rounding_backends import ROUNDING
from tests.helpers.loop import TurnsOnPaper, loaded_set_aside

TRIAL = "trial"
FOLDER = Path(__file__).resolve().parent
TORCHS_OWN = "relu_accuracy_error_TESTING_ONLY"
"""Adds 1 to the result of relu; shows only in a model with relu."""
SCALED = "scaled_gradients"
"""Shows only if the optimizer does not divide by the size of gradients, as Adam does."""
FIRST_EFFECTS = {
    "zeroed_gradients": 1,
    "dead_layer": 1,
    "stale_batch": planted_faults.RARELY,
    "skipped_update": planted_faults.RARELY + 1,
    "wrong_epsilon": 0,
    "silent_bfloat16": 0,
    TORCHS_OWN: 0,
}
"""First step whose loss each fault changes."""
NUM_STEPS = 80
SHARED = TrainingSpec(learning_rate=1e-3, batch_size=16, epochs=40, max_steps=NUM_STEPS)
WORKLOADS = {
    "relu net": ExperimentSpec(
        name="relu net",
        task="custom",
        model=ModelSpec(source=f"{FOLDER / 'relu_net.py'}:ReluNet"),
        data=DataSpec(
            source=f"{FOLDER / 'relu_net.py'}:samples", num_train_samples=1280, num_eval_samples=200
        ),
        training=replace(SHARED, losses=("CrossEntropyLoss",)),
        evaluation=EvaluationSpec(when="end", compiled=False),
        block_steps=20,
        profile_steps=0,
    ),
    "tiny BERT": ExperimentSpec(
        name="tiny BERT",
        data=DataSpec(num_train_samples=640, num_eval_samples=100, sequence_length=16),
        training=SHARED,
        evaluation=EvaluationSpec(when="end", compiled=False),
        block_steps=20,
        profile_steps=0,
    ),
}
"""Trainings of a second, by name."""
EVALUATIONS = 5


def _long(name: str, num_steps: int, training: TrainingSpec, **rest: Any) -> ExperimentSpec:
    return ExperimentSpec(
        name=name,
        training=replace(training, max_steps=num_steps),
        evaluation=EvaluationSpec(when="steps", every=num_steps // EVALUATIONS, compiled=False),
        block_steps=20,
        profile_steps=0,
        **rest,
    )


LONG_WORKLOADS = {
    "noisy net": _long(
        "noisy net",
        400,
        replace(
            SHARED,
            losses=("CrossEntropyLoss",),
            optimizer="SGD",
            learning_rate=0.1,
            optimizer_options={"momentum": 0.9},
        ),
        task="custom",
        model=ModelSpec(source=f"{FOLDER / 'relu_net.py'}:ReluNet"),
        data=DataSpec(
            source=f"{FOLDER / 'relu_net.py'}:noisy_samples",
            num_train_samples=1280,
            num_eval_samples=200,
        ),
    ),
    "tiny BERT": _long(
        "tiny BERT",
        300,
        replace(SHARED, optimizer="AdamW"),
        data=DataSpec(num_train_samples=1600, num_eval_samples=200, sequence_length=16),
    ),
    "small ViT": _long(
        "small ViT",
        200,
        replace(SHARED, optimizer="AdamW"),
        task="image_classification",
        model=ModelSpec(source="builtin:vit-small"),
        data=DataSpec(source="builtin:digits", num_train_samples=1280, num_eval_samples=200),
    ),
    "tiny GPT": _long(
        "tiny GPT",
        240,
        replace(SHARED, optimizer="AdamW", scheduler="cosine"),
        task="causal_lm",
        model=ModelSpec(source="builtin:gpt2-tiny"),
        data=DataSpec(num_train_samples=1600, num_eval_samples=100, sequence_length=16),
    ),
}
"""Trainings of some seconds, by name, in which a fault may begin late."""


def train_trial(
    folder: Path,
    workload: str,
    seed: int,
    backends: tuple[str, ...],
    *,
    device: str = "cpu",
    precision: Precision = "float32",
) -> None:
    """Trains baseline, control and the backends from one seed."""
    spec = replace(WORKLOADS[workload], backends=backends, devices=(device,))
    training = replace(spec.training, seed=seed, precision=precision)
    _train_all(folder, replace(spec, training=training), {})


def train_long_trial(
    folder: Path,
    workload: str,
    seed: int,
    backends: tuple[str, ...],
    *,
    controls: int,
    fault_begins: int,
    device: str = "cpu",
    precision: Precision = "float32",
    data: str | None = None,
) -> None:
    """Trains baseline, controls and the backends; late faults begin at the given step. Texts come
    from the file `data` where one is named."""
    spec = replace(
        LONG_WORKLOADS[workload], backends=backends, controls=controls, devices=(device,)
    )
    if data is not None and spec.task == "text_classification":
        spec = replace(spec, data=replace(spec.data, source=data, sequence_length=32))
    training = replace(spec.training, seed=seed, precision=precision)
    begins = {late_faults.BEGINS: str(fault_begins)}
    _train_all(folder, replace(spec, training=training), begins)


def train_run(data_dir: DataDir, spec: ExperimentSpec, label: str) -> None:
    """Trains one run of an experiment of this folder's workloads."""
    (arm,) = (arm for arm in spec.arms if arm.label == label)
    with mock.patch.dict(os.environ, {CODE_VARIABLE: str(FOLDER)}):
        train(data_dir, RunSpec(experiment_id=TRIAL, experiment=spec, arm=arm))


def train_arms(folder: Path, spec: ExperimentSpec) -> Iterator[Arm]:
    """Trains one run of an experiment after the other; gives each that was trained."""
    _register_faults()
    data_dir = DataDir(folder)
    for arm in spec.arms:
        train(data_dir, RunSpec(experiment_id=TRIAL, experiment=spec, arm=arm))
        yield arm


def _train_all(folder: Path, spec: ExperimentSpec, variables: dict[str, str]) -> None:
    with mock.patch.dict(os.environ, {CODE_VARIABLE: str(FOLDER), **variables}):
        for _ in train_arms(folder, spec):
            pass


def train(data_dir: DataDir, spec: RunSpec) -> None:
    """One run in this process, without compiled code of earlier runs."""
    torch._dynamo.reset()
    callback_handler.clear()
    run = data_dir.run_dir(spec.run_id)
    run.write_spec(spec)
    log = EventLog(run.events_file)
    work = run_script if spec.experiment.task == SCRIPT_TASK else run_session
    with loaded_set_aside():
        work(run, spec, log, TurnsOnPaper())
    log.close()


def _register_faults() -> None:
    known = list_backends(exclude_tags=None)
    for name in {*FIRST_EFFECTS, SCALED} - {TORCHS_OWN, *known}:
        register_backend(getattr(planted_faults, name), name=name)
    for name in {*LATE_FAULTS, *WEAK_FAULTS, "late_frozen_head"}.difference(known):
        register_backend(getattr(late_faults, name), name=name)
    for name, backend in (OWN_NUMBERS | ROUNDING).items():
        if name not in known:
            register_backend(backend, name=name)
