"""Runs one model on one batch, always from the same weights, and returns all resulting tensors.

Forward hooks collect the outputs of layers. They exist before compilation, so Dynamo traces them
with the layers, and each output becomes an output of the graph. This changes the graph: outputs are
written to memory, so kernels are split, and a fault of their fusion may vanish.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from breakeven.runner.specs.arm_fields import NEED_NO_COMPILER, Arm
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import Part
from breakeven.runner.specs.training import MODEL_LOSS
from breakeven.runner.worker.callbacks import Callback, Hooks, TrainingState
from breakeven.runner.worker.compiler.compile_with_backend import compile_blocks, make_compiler
from breakeven.runner.worker.data.splits import MicroBatch, Split
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.model.loaded_workload import Workload
from breakeven.runner.worker.model.losses import Objective, find_logits
from breakeven.runner.worker.step.inference import Inference
from breakeven.runner.worker.step.optimizers import make_optimizers
from breakeven.runner.worker.step.stepping import MixedPrecision, StepMaker

MAX_LAYERS = 100
MAX_ELEMENTS = 2**17
"""Elements sampled from each output (1 MB in double precision). Outputs of equal size are sampled
at the same positions."""
SEED = 15
BASELINE = Arm(label="baseline", role="baseline")


def uncompiled(arm: Arm) -> Arm:
    """The arm without its compiler, with the settings that need none; perhaps the baseline."""
    return replace(BASELINE, **{name: getattr(arm, name) for name in NEED_NO_COMPILER})


class TensorName(NamedTuple):
    """What a tensor of an outcome is, and its name."""

    quantity: Literal["activation", "output", "loss", "gradient", "parameter", "buffer"]
    tensor: str


Outcome = dict[TensorName, Tensor]
"""The tensors that a trial computes, on the device."""


@contextmanager
def layer_outputs(model: nn.Module) -> Iterator[list[tuple[str, Tensor]]]:
    """Collects the names of layers and their outputs, in the order of their calls."""
    outputs: list[tuple[str, Tensor]] = []
    handles = [
        layer.register_forward_hook(_collector(outputs, name))
        for name, layer in watched(model).items()
    ]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def _by_layer(outputs: list[tuple[str, Tensor]]) -> Outcome:
    """Samples of the outputs; further calls of a layer have their number after its name."""
    calls: Counter[str] = Counter()
    samples: Outcome = {}
    for layer, output in outputs:
        calls[layer] += 1
        title = layer if calls[layer] == 1 else f"{layer} (call {calls[layer]})"
        samples[TensorName("activation", title)] = _sampled(output)
    return samples


def watched(model: nn.Module) -> dict[str, nn.Module]:
    """The layers whose outputs are collected, by name: up to `MAX_LAYERS`, in whole levels of the
    model from the outside in, so that equal blocks are treated alike."""
    levels: dict[int, dict[str, nn.Module]] = {}
    for name, layer in model.named_modules():
        # Lists are never called; dropouts and identities return their inputs.
        if name and not isinstance(layer, (nn.ModuleList, nn.ModuleDict, _DropoutNd, nn.Identity)):
            levels.setdefault(name.count("."), {})[name] = layer
    chosen: dict[str, nn.Module] = {}
    for _, layers in sorted(levels.items()):
        if len(chosen) + len(layers) > MAX_LAYERS:
            break
        chosen |= layers
    return chosen


def _collector(outputs: list[tuple[str, Tensor]], name: str) -> Callable[..., None]:
    def collect(layer: nn.Module, arguments: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) and len(output) > 0 else output
        if isinstance(first, Tensor) and first.is_floating_point():
            outputs.append((name, first.detach()))

    return collect


def _sampled(output: Tensor) -> Tensor:
    flat = output.flatten()
    if len(flat) <= MAX_ELEMENTS:
        return flat.clone()
    generator = torch.Generator().manual_seed(SEED)
    places = torch.randint(len(flat), (MAX_ELEMENTS,), generator=generator)
    return flat[places.to(flat.device)]


class Trial:
    """Trains copies of the workload's model, or runs inference, on the first batch of samples."""

    def __init__(self, experiment: ExperimentSpec, workload: Workload, device: Device):
        """The workload's model is on the device already; it never changes."""
        self._experiment = experiment
        self._workload = workload
        self._train = partial(_train, capturable=device.captures_graphs)
        samples = _first(workload.data.train.for_epoch(0), experiment.training.batch_size)
        self._samples = samples.to(device.torch_device)

    def run(self, part: Part, arm: Arm, *, layers: bool = False) -> Outcome:
        """The outcome under an arm, in the experiment's precision. `layers` adds the outputs
        of layers and makes only one iteration: later iterations start from other weights."""
        model = copy.deepcopy(self._workload.model)
        if arm.scope == "blocks" and arm.backend is not None:
            compile_blocks(model, arm)
        return self._run(part, arm, model, self._samples, self._experiment, layers)

    def reference(self, part: Part, *, layers: bool = False) -> Outcome:
        """The baseline's outcome in double precision; `layers` as in `run`."""
        training = replace(self._experiment.training, precision="float32", scaler_options={})
        return self._run(
            part,
            BASELINE,
            copy.deepcopy(self._workload.model).double(),
            _double(self._samples),
            replace(self._experiment, training=training),
            layers,
        )

    def _run(
        self,
        part: Part,
        arm: Arm,
        model: nn.Module,
        samples: Split,
        experiment: ExperimentSpec,
        layers: bool,
    ) -> Outcome:
        torch.manual_seed(experiment.training.seed)
        work = self._train if part == "training" else _answer
        workload = replace(self._workload, model=model)
        if not layers:
            return work(model, workload, samples, experiment, arm)
        once = replace(experiment, accuracy=replace(experiment.accuracy, iterations=1))
        with layer_outputs(model) as outputs:
            outcome = work(model, workload, samples, once, arm)
        return {**_by_layer(outputs), **outcome}


class _LogitsObjective(Objective):
    """Returns the logits in place of the terms of the loss."""

    def __call__(self, output: Any, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        total, _ = super().__call__(output, labels)
        return total, find_logits(output).detach()


class _Gradients(Callback):
    """Holds the gradients of the last step; a parameter without one has a gradient of 0."""

    def __init__(self, scaler: torch.amp.GradScaler) -> None:
        self.by_name: dict[str, Tensor] = {}
        self._scaler = scaler

    @torch.no_grad()
    def after_backward(self, state: TrainingState) -> None:
        scale = self._scaler.get_scale() if self._scaler.is_enabled() else 1.0
        self.by_name = {
            name: torch.zeros_like(p) if p.grad is None else p.grad.to_dense() / scale
            for name, p in state.model.named_parameters()
        }


def _train(
    model: nn.Module,
    workload: Workload,
    samples: Split,
    experiment: ExperimentSpec,
    arm: Arm,
    *,
    capturable: bool,
) -> Outcome:
    """Trains; returns the last step's loss, logits and gradients, and all weights and buffers."""
    training, device = experiment.training, samples.labels.device
    precision = MixedPrecision(training, device)
    optimizers = make_optimizers(
        training, model.train(), device, capturable=capturable, form=arm.optimizer
    )
    gradients = _Gradients(precision.scaler)
    hooks = Hooks([gradients], TrainingState(model=model, optimizers=optimizers))
    objective = _LogitsObjective(training, workload)
    maker = StepMaker(model, objective, optimizers, precision, training, hooks)
    step = maker.make(arm.scope, make_compiler(arm))
    inputs = samples.batch(torch.arange(len(samples), device=device))
    batch = MicroBatch(inputs, torch.ones((), device=device))
    for _ in range(experiment.accuracy.iterations):
        if arm.captures_cuda_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        result = step([batch])
    assert result.terms is not None
    return {
        TensorName("output", "logits"): result.terms,
        TensorName("loss", "loss"): result.loss,
        **{TensorName("gradient", name): tensor for name, tensor in gradients.by_name.items()},
        **{TensorName("parameter", name): p.detach() for name, p in model.named_parameters()},
        **{TensorName("buffer", n): b for n, b in model.named_buffers() if b.is_floating_point()},
    }


@torch.no_grad()
def _answer(
    model: nn.Module,
    workload: Workload,
    samples: Split,
    experiment: ExperimentSpec,
    arm: Arm,
) -> Outcome:
    """Makes forward passes; returns loss and logits of the last one."""
    training = experiment.training
    objective = Objective(training, workload)
    inference = Inference(
        model,
        MixedPrecision(training, samples.labels.device),
        arm,
        len(samples),
        own_loss=MODEL_LOSS in objective.names,
    )
    for _ in range(experiment.accuracy.iterations):
        compiled = arm.backend is not None
        (answer,) = [
            question.answer(compiled=compiled) for question in inference.questions(samples)
        ]
        loss, _terms = objective(answer.output, answer.labels)
    return {TensorName("output", "logits"): answer.logits, TensorName("loss", "loss"): loss}


def _first(split: Split, count: int) -> Split:
    return replace(
        split,
        inputs={name: tensor[:count] for name, tensor in split.inputs.items()},
        labels=split.labels[:count],
        num_targets=split.num_targets[:count],
    )


def _double(split: Split) -> Split:
    def widened(tensor: Tensor) -> Tensor:
        return tensor.double() if tensor.is_floating_point() else tensor

    inputs = {name: widened(tensor) for name, tensor in split.inputs.items()}
    return replace(split, inputs=inputs, labels=widened(split.labels))
