"""One seeded experiment of planted faults and correct backends, trained in this process.

Each run writes the folder that a worker would write. Judging them is another module's
(`judging.py`), because a machine with a GPU may lack what that needs.
"""

import os
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch
from torch._dynamo.backends.registry import list_backends, register_backend
from torch._dynamo.callback import callback_handler

from runner.run_dir import DataDir
from runner.spec import (
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    RunSpec,
    TrainingSpec,
)
from runner.training_spec import Precision
from runner.user_code import CODE_VARIABLE
from runner.worker.event_log import EventLog
from runner.worker.session import run_session
from tests.faults import planted_faults
from tests.loop import TurnsOnPaper

TRIAL = "trial"
FOLDER = Path(__file__).resolve().parent
TORCHS_OWN = "relu_accuracy_error_TESTING_ONLY"
"""Adds 1 where relu is meant; shows only in a model with relu."""
FIRST_EFFECTS = {
    "zeroed_gradients": 1,
    "dead_layer": 1,
    "stale_batch": planted_faults.RARELY,
    "skipped_update": planted_faults.RARELY + 1,
    "other_dropout": 0,
    "wrong_epsilon": 0,
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
    ),
    "tiny BERT": ExperimentSpec(
        name="tiny BERT",
        data=DataSpec(num_train_samples=640, num_eval_samples=100, sequence_length=16),
        training=SHARED,
        evaluation=EvaluationSpec(when="end", compiled=False),
        block_steps=20,
    ),
}
"""Trainings of a second, by name."""


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
    _register_faults()
    spec = WORKLOADS[workload]
    training = replace(spec.training, seed=seed, precision=precision)
    spec = replace(spec, backends=backends, training=training, devices=(device,))
    data_dir = DataDir(folder)
    with mock.patch.dict(os.environ, {CODE_VARIABLE: str(FOLDER)}):
        for variant in spec.variants:
            _train(data_dir, RunSpec(experiment_id=TRIAL, experiment=spec, variant=variant))


def _train(data_dir: DataDir, spec: RunSpec) -> None:
    torch._dynamo.reset()
    callback_handler.clear()
    run = data_dir.run_dir(spec.run_id)
    run.write_spec(spec)
    log = EventLog(run.events_file)
    run_session(run, spec, log, TurnsOnPaper())
    log.close()


def _register_faults() -> None:
    known = list_backends(exclude_tags=None)
    for name in FIRST_EFFECTS.keys() - {TORCHS_OWN, *known}:
        register_backend(getattr(planted_faults, name), name=name)
