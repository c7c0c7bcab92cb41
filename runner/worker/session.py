"""One run from its specification to its last event."""

import transformers
from torch import nn

from runner.events import EventLog
from runner.spec import RunSpec
from runner.worker.data import Dataset, load_dataset
from runner.worker.environment import describe_environment, find_device, set_precision
from runner.worker.models import build_model, perturb, weights_sha256
from runner.worker.training import Trainer
from runner.worker.turn_source import TurnSource

AUTO_DROPOUT_REASON = "a backend that captures CUDA graphs draws random numbers of its own"
CUDAGRAPHS_MEMORY_NOTE = (
    "peak memory leaves out what captured graphs keep in their private pools; see the "
    "reserved memory instead."
)


def run_session(spec: RunSpec, log: EventLog, turns: TurnSource) -> bool:
    """Sets up, waits for the first turn, trains; True if all steps were done, False if stopped."""
    experiment = spec.experiment
    transformers.utils.logging.disable_progress_bar()
    _enter(log, "preparing")
    device = find_device(experiment.device)
    set_precision(experiment.training.precision)
    log.append("environment", **describe_environment(device))
    seed = experiment.training.seed
    data = load_dataset(experiment.data, experiment.model, seed)
    model = build_model(experiment, data)
    _describe_workload(log, spec, model, data)
    if spec.variant.perturbation:
        perturb(model, spec.variant.perturbation, seed)
    trainer = Trainer(spec, model, data, device, log)
    _enter(log, "waiting")
    turns.ready()
    finished = not turns.stop_requested and trainer.train(turns)
    if finished:
        _enter(log, "done")
    return finished


def _enter(log: EventLog, phase: str) -> None:
    log.append("phase", phase=phase)
    log.flush(durable=True)


def _describe_workload(log: EventLog, spec: RunSpec, model: nn.Module, data: Dataset) -> None:
    experiment = spec.experiment
    is_text = data.vocabulary_size is not None
    samples = experiment.training.batch_size * experiment.training.gradient_accumulation
    log.append(
        "workload",
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        num_labels=len(data.labels),
        labels=data.labels,
        num_train_samples=len(data.train),
        num_eval_samples=len(data.evaluation),
        num_steps=experiment.num_steps,
        steps_per_epoch=experiment.steps_per_epoch,
        block_steps=experiment.block_steps,
        samples_per_step=samples,
        tokens_per_step=samples * experiment.data.sequence_length if is_text else None,
        majority_share=data.majority_share,
        weights_sha256=weights_sha256(model),
        data_sha256=data.sha256,
        notes=_notes(spec),
    )
    log.flush()


def _notes(spec: RunSpec) -> list[str]:
    """What a reader of the results must know and would not guess."""
    experiment = spec.experiment
    notes = []
    if experiment.data.source == "builtin:reviews":
        notes.append("The reviews are written by a generator, not by people.")
    if not experiment.has_dropout:
        reason = "" if experiment.model.dropout == "off" else f" ({AUTO_DROPOUT_REASON})"
        notes.append(f"Dropout is switched off{reason}.")
    if spec.variant.captures_cuda_graphs:
        notes.append(f"{spec.variant.label}: {CUDAGRAPHS_MEMORY_NOTE}")
    left_out = experiment.data.num_train_samples % experiment.training.batch_size
    if left_out:
        notes.append(f"Each epoch leaves out {left_out} samples that do not fill a batch.")
    return notes
