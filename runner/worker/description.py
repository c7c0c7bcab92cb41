"""What a workload is, for the record: sizes, hashes, costs, and what a reader would not guess."""

from typing import Any

import torch

from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.worker.model.flops import count_flops_per_sample
from breakeven.runner.worker.model.losses import Objective
from breakeven.runner.worker.model.models import weights_sha256
from breakeven.runner.worker.model.workload import Workload

AUTO_DROPOUT_REASON = "a backend that captures CUDA graphs draws random numbers of its own"

LEFT_OVER_NOTES = {
    "drop": "Each epoch leaves out {} samples that do not fill a batch.",
    "pad": "Each epoch's last batch holds {} samples; the rest is filled up and does not count.",
    "dynamic": "Each epoch's last batch holds {} samples; compiled code takes batches of any size.",
}


def describe_workload(spec: RunSpec, workload: Workload, device: torch.device) -> dict[str, Any]:
    """The fields of the `workload` event, of a model on the device with its initial weights."""
    experiment, model, data = spec.experiment, workload.model, workload.data
    samples = experiment.training.batch_size * experiment.batches_per_step
    has_tokens = data.vocabulary_size is not None
    notes = _notes(spec)
    flops = _flops_per_sample(spec, workload, device, notes)
    return {
        "task": experiment.task,
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "num_labels": len(data.labels),
        "labels": data.labels,
        "num_train_samples": len(data.train),
        "num_eval_samples": len(data.validation),
        "num_test_samples": 0 if data.test is None else len(data.test),
        "num_steps": experiment.num_steps,
        "steps_per_epoch": experiment.steps_per_epoch,
        "block_steps": experiment.block_steps,
        "samples_per_step": samples,
        "tokens_per_step": samples * experiment.data.sequence_length if has_tokens else None,
        "padding_share": data.padding_share,
        "flops_per_step": None if flops is None else flops * samples,
        "majority_share": data.majority_share,
        "weights_sha256": weights_sha256(model),
        "data_sha256": data.sha256,
        "notes": notes,
    }


def _flops_per_sample(
    spec: RunSpec, workload: Workload, device: torch.device, notes: list[str]
) -> float | None:
    objective = Objective(spec.experiment.training, workload)
    backward = not spec.experiment.is_inference
    try:
        return count_flops_per_sample(
            workload.model, objective, workload.data.train, device, backward=backward
        )
    except Exception as error:
        # Whatever a copy of somebody's model may not like, training itself need not.
        notes.append(f"Floating-point operations could not be counted: {error}")
        return None


def _notes(spec: RunSpec) -> list[str]:
    """What a reader of the results must know and would not guess."""
    experiment, training = spec.experiment, spec.experiment.training
    notes = []
    if experiment.data.source == "builtin:reviews":
        notes.append("The reviews are written by a generator, not by people.")
    if not experiment.has_dropout:
        is_asked = experiment.model.dropout == "off" or experiment.kind.compares_tensors
        reason = "" if is_asked else f" ({AUTO_DROPOUT_REASON})"
        notes.append(f"Dropout is switched off{reason}.")
    if experiment.stopping.nonfinite:
        notes.append("Every step waits for the device, to see whether its loss is finite.")
    if experiment.kind.cycles_batches:
        notes.append(_fixed_batches(experiment))
        return notes
    left_over = experiment.data.num_train_samples % training.batch_size
    if left_over:
        notes.append(LEFT_OVER_NOTES[training.last_batch].format(left_over))
    return notes


def _fixed_batches(experiment: ExperimentSpec) -> str:
    what = "forward pass, without gradients" if experiment.is_inference else "full optimizer step"
    count = experiment.speed.batches
    batches = "the same batch" if count == 1 else f"the same {count} batches"
    return f"A step is a {what}; steps go over {batches} again and again."
