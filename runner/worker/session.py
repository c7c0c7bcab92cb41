"""One run from its specification to its last event; describes its environment (hardware, versions)
and workload (sizes, hashes, costs)."""

import copy
import os
import platform
import re
import socket
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from breakeven.runner.experiments.continuing import require_same_work, steps_measured
from breakeven.runner.machine.capabilities import PLUGINS, PROVIDERS, installed_version
from breakeven.runner.machine.cpus import cpu_allowance, explain_threads
from breakeven.runner.machine.placement import given_devices
from breakeven.runner.machine.run_variables import WITHHELD_VARIABLE, named_variables
from breakeven.runner.masking import MASKED, is_secret_name
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.specs.place import write_cpus
from breakeven.runner.worker.before_torch import name_of_visible
from breakeven.runner.worker.compiler.compile_with_backend import (
    block_paths,
    explained,
    set_ddp_mode,
)
from breakeven.runner.worker.compiler.observer import save_outputs
from breakeven.runner.worker.context import ALONE, RankGroup, RunContext
from breakeven.runner.worker.correctness.accuracy import AccuracyCheck
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.device.device_kinds import cpu_name, open_device
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.model.loaded_workload import Workload, load_workload
from breakeven.runner.worker.model.losses import Objective
from breakeven.runner.worker.model.transformers_models import perturb, weights_sha256
from breakeven.runner.worker.training.forward_passes import ForwardPasses
from breakeven.runner.worker.training.training_loop import Trainer
from breakeven.runner.worker.turn_source import Turns
from breakeven.runner.worker.user_code import keep_sources

PACKAGES = ("transformers", "datasets", "tokenizers", "numpy", "triton", "scikit-learn")
VARIABLE_PREFIXES = ("TORCH", "CUDA", "NCCL", "OMP_", "MKL_", "TRITON", "PYTORCH")
OF_ONE_RUN = "TORCHELASTIC_"
"""Prefix of variables that torchrun sets for ranks; they are not settings."""
NUM_SAMPLES = 2
"""Batch size of a count, enough for layers that normalize over the batch."""
AUTO_DROPOUT_REASON = "a backend that captures CUDA graphs draws random numbers of its own"
LEFT_OVER_NOTES = {
    "drop": "Each epoch leaves out {} samples that do not fill a batch.",
    "pad": "Each epoch's last batch holds {} samples; the rest is filled up and does not count.",
    "dynamic": "Each epoch's last batch holds {} samples; compiled code takes batches of any size.",
}


def run_session(
    run: RunDir,
    spec: RunSpec,
    log: EventLog,
    turns: Turns,
    device: Device | None = None,
    group: RankGroup = ALONE,
) -> bool:
    """Sets up, waits for the first turn and executes the scenario; False if it was stopped.

    A run on several devices passes the `device` of this process.
    """
    context = open_context(run, spec, log, device, group)
    experiment, device = spec.experiment, context.device
    workload = load_workload(experiment)
    workload.model.to(device.torch_device)
    log.append("workload", **describe_workload(spec, workload, device.torch_device))
    if context.only_times:
        if group.rank == 0:
            log.flush()
            require_same_work(run)
        log.append("resumed", step=steps_measured(run), attempt=run.attempt, caches=run.caches)
    if spec.arm.perturbation:
        seed = experiment.training.seed + spec.arm.perturbation_seed
        perturb(workload.model, spec.arm.perturbation, seed)
    work = _work(context, workload)
    log.enter("waiting")
    turns.ready()
    with explained(spec.arm):
        finished = not turns.stop_requested and work(turns)
    if finished:
        log.enter("done")
    return finished


def local_device_name(spec: RunSpec) -> str:
    """The run's device as this process names it; a script sees no other one."""
    sees_no_other = spec.experiment.workload.selects_device
    return name_of_visible(spec.device) if sees_no_other else spec.device


def apply_precision(experiment: ExperimentSpec, arm: Arm, device: Device) -> None:
    """Sets what float32 products and unfused attention may round to in this process."""
    by_experiment = experiment.training.precision == "tf32" or experiment.settings == "harness"
    device.allow_tf32(by_experiment or arm.tf32)
    device.reduce_math_attention(arm.math_attention == "reduced")


def open_context(
    run: RunDir,
    spec: RunSpec,
    log: EventLog,
    device: Device | None = None,
    group: RankGroup = ALONE,
) -> RunContext:
    """Opens the device with the run's settings, and records what the run executes on."""
    log.enter("preparing")
    device = device or open_device(local_device_name(spec))
    apply_precision(spec.experiment, spec.arm, device)
    set_ddp_mode(spec.arm)
    context = RunContext(spec, run, device, log, group)
    record_environment(context)
    return context


def _work(context: RunContext, workload: Workload) -> Callable[[Turns], bool]:
    """The function that uses the run's turns, by scenario; it returns whether it finished."""
    if context.experiment.kind.has_checks:
        return AccuracyCheck(context, workload).check
    if context.experiment.is_inference:
        return ForwardPasses(context, workload).measure
    return Trainer(context, workload).train


def record_environment(context: RunContext) -> None:
    """Writes the `environment` event; rank 0 also keeps sources and the compiler's outputs."""
    experiment, run, log = context.experiment, context.run, context.log
    log.append("environment", **_environment(context))
    if context.group.rank == 0:
        keep_sources(experiment, run, log)
        save_outputs(experiment, run, log)
        if experiment.times_later_starts and context.arm.backend is not None:
            # Imported only where it is needed: it loads Inductor.
            from breakeven.runner.worker.compiler.cache_keys import CacheKeys

            CacheKeys(log)


def _environment(context: RunContext) -> dict[str, Any]:
    allowance = cpu_allowance()
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "python": sys.version.split()[0],
        # Torch's own version names its build (+cpu, +cu130); its package's may not.
        "versions": {
            "torch": torch.__version__,
            **{
                name: version
                for name in (*PACKAGES, *_of_backends(context.experiment))
                if (version := installed_version(name))
            },
        },
        "cpu_model": cpu_name(),
        "num_cpus": os.cpu_count(),
        "usable_cpus": allowance.usable,
        "cpus": write_cpus(allowance.cpus),
        "devices": given_devices(os.environ),
        "cpu_threads": torch.get_num_threads(),
        "cpu_threads_reason": explain_threads(context.experiment.cpu_threads, allowance),
        "interop_threads": torch.get_num_interop_threads(),
        **context.device.describe(context.spec.experiment_id),
        "variables": {
            name: MASKED if is_secret_name(name) else value
            for name, value in sorted(os.environ.items())
            if (name.startswith(VARIABLE_PREFIXES) and not name.startswith(OF_ONE_RUN))
            or name in named_variables(os.environ)
        },
        "withheld_variables": [*filter(None, os.environ.get(WITHHELD_VARIABLE, "").split(","))],
    }


def _of_backends(experiment: ExperimentSpec) -> Iterator[str]:
    """The packages of all backends, so that runs of one environment have the same versions."""
    for backend in {arm.backend or "" for arm in experiment.possible_arms}:
        for plugin in metadata.entry_points(group=PLUGINS, name=backend):
            yield from [plugin.dist.name] if plugin.dist else []
        if module := re.split("[.:]", backend)[0] if ":" in backend else PROVIDERS.get(backend):
            yield from metadata.packages_distributions().get(module, [])


def describe_workload(spec: RunSpec, workload: Workload, device: torch.device) -> dict[str, Any]:
    """The fields of the `workload` event; the model is on the device with its initial weights."""
    experiment, model, data = spec.work, workload.model, workload.data
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
        "blocks": block_paths(model) if spec.arm.scope == "blocks" else None,
    }


def _flops_per_sample(
    spec: RunSpec, workload: Workload, device: torch.device, notes: list[str]
) -> float | None:
    """Floating-point operations of a step's passes for one sample; None with a note on failure.

    `torch.utils.flop_counter` counts matrix products, convolutions and attention; an addition and a
    multiplication are two operations. A copy of the model runs, on the model's device. Attention
    runs as plain matrix products, which the counter knows on every device.
    """
    objective, split = Objective(spec.experiment.training, workload), workload.data.train
    try:
        trial = copy.deepcopy(workload.model).train()
        inputs = split.batch(torch.arange(min(NUM_SAMPLES, len(split))))
        batch = {name: tensor.to(device) for name, tensor in inputs.items()}
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            loss, _ = objective(trial(**batch), batch["labels"])
            if not spec.experiment.is_inference:
                loss.backward()  # type: ignore[no-untyped-call]
        total: int = counter.get_total_flops()
        return total / len(batch["labels"])
    except Exception as error:
        # A model that cannot be copied may still train.
        notes.append(f"Floating-point operations could not be counted: {error}")
        return None


def _notes(spec: RunSpec) -> list[str]:
    """Facts that a reader of the results needs and would not guess."""
    experiment, training = spec.experiment, spec.experiment.training
    notes = []
    if experiment.data.source == "builtin:reviews":
        notes.append("The reviews are written by a generator, not by people.")
    if not experiment.has_dropout:
        is_asked = experiment.model.dropout == "off" or experiment.kind.has_checks
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
