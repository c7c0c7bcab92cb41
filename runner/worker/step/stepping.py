"""One optimizer step, with or without a compiler: precision, loss, backward, optimizer."""

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, get_total_norm

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.arm_fields import Scope
from breakeven.runner.specs.experiment import ExperimentSpec, TrainingSpec
from breakeven.runner.worker.callbacks import Hooks, TrainingState
from breakeven.runner.worker.compiler.compile_with_backend import Compile, leave_alone
from breakeven.runner.worker.context import ParallelModel
from breakeven.runner.worker.data.splits import MicroBatch
from breakeven.runner.worker.step.optimizers import make_optimizers

AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
Terms = tuple[Tensor, Tensor | None]
LossOf = Callable[[Any, Tensor], Terms]
"""Computes the loss from a model's output and a batch's labels: an `Objective` or a wrapper."""


class StepResult(NamedTuple):
    """The results of a step, still on the device."""

    loss: Tensor
    terms: Tensor | None
    """The terms of the loss before weighting; None if there is only one."""
    gradient_norm: Tensor | None
    """The norm of gradients; None unless it is recorded."""


Step = Callable[[Sequence[MicroBatch]], StepResult]
"""Trains on the micro-batches of one optimizer step."""


class MixedPrecision:
    """Autocast in the specification's precision, and loss scaling for fp16."""

    def __init__(self, training: TrainingSpec, device: torch.device) -> None:
        self._device_type = device.type
        self._dtype = AUTOCAST_DTYPES.get(training.precision)
        try:
            self.scaler = torch.amp.GradScaler(
                device.type,
                enabled=training.precision == "fp16",
                **cast(dict[str, Any], training.scaler_options),
            )
        except (TypeError, AssertionError) as error:
            options = f"training.scaler_options = {training.scaler_options!r}"
            raise WorkloadError(f"{options} do not fit torch.amp.GradScaler: {error}") from error

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of a forward pass; does nothing without mixed precision."""
        if self._dtype is None:
            return nullcontext()
        return torch.autocast(self._device_type, dtype=self._dtype)


class StepMaker:
    """Makes the step function of one run.

    In scope `iteration` a step of one micro-batch is one function: forward, loss, backward,
    optimizer, zero_grad. With accumulation, with a callback that reads gradients, and in scope
    `forward_backward`, the micro-batch (forward, loss, backward) and the update are two functions,
    so that the code does not depend on the number of micro-batches, even in a last, smaller window.
    In scope `blocks` the model's blocks are compiled in place, so this class compiles nothing.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: LossOf,
        optimizers: Sequence[torch.optim.Optimizer],
        precision: MixedPrecision,
        training: TrainingSpec,
        hooks: Hooks | None = None,
        parallel: ParallelModel | None = None,
        *,
        like_harness: bool = False,
    ) -> None:
        """`hooks` call the callbacks; `parallel` is for several ranks. With `like_harness` a step
        copies its inputs and clears the gradients before its forward pass, as PyTorch's harness
        does. Otherwise it clears them at its end, while the device still works."""
        self._model = model
        self._stepped = model if parallel is None else parallel.stepped
        self._gradients: Callable[..., AbstractContextManager[None]] = (
            (lambda *, is_last: nullcontext()) if parallel is None else parallel.gradients
        )
        self._weighs = parallel is not None and parallel.group.size > 1
        self._objective = objective
        self._optimizers = optimizers
        self._precision = precision
        self._training = training
        self._hooks = hooks or Hooks([], TrainingState(model=model, optimizers=optimizers))
        self._like_harness = like_harness

    def make(self, scope: Scope, compile: Compile) -> Step:
        """Makes a whole optimizer step; `compile` compiles the part within the scope."""
        forward: Callable[..., Any] = self._stepped
        if scope == "forward":
            forward = compile(forward)
        if scope in ("forward", "blocks"):
            compile = leave_alone
        in_two = self._training.gradient_accumulation > 1 or self._hooks.between_backward_and_update
        if in_two or scope == "forward_backward":
            return self._in_two(compile(self._backward(forward)), compile(self._update()))
        step = compile(self._iterate(forward))
        if self._weighs:
            return lambda batches: step(batches[0].inputs, batches[0].share)
        return lambda batches: step(batches[0].inputs, None)

    # `iterate` repeats the lines of `backward` instead of calling it: Dynamo cannot go on inside a
    # called function after the break at loss.backward(), and would break the graph once more.
    def _iterate(
        self, forward: Callable[..., Any]
    ) -> Callable[[dict[str, Tensor], Tensor | None], StepResult]:
        """A step of one micro-batch. `share`: weight of this rank's part, if there are several."""
        precision, objective, optimizers = self._precision, self._objective, self._optimizers
        clears_first = self._like_harness and not self._weighs
        update, scaler = self._update(clears=not clears_first), precision.scaler
        scales_loss = scaler.is_enabled()

        def clear() -> None:
            for optimizer in optimizers:
                optimizer.zero_grad()

        def iterate(batch: dict[str, Tensor], share: Tensor | None) -> StepResult:
            if clears_first:
                batch = {name: tensor.clone() for name, tensor in batch.items()}
                clear()
            with precision.autocast():
                loss, terms = objective(forward(**batch), batch["labels"])
                if share is not None:
                    loss, terms = loss * share, None if terms is None else terms * share
            (scaler.scale(loss) if scales_loss else loss).backward()  # type: ignore[no-untyped-call]
            return StepResult(loss.detach(), terms, update())

        return iterate

    def _backward(self, forward: Callable[..., Any]) -> Callable[[MicroBatch], Terms]:
        precision, objective = self._precision, self._objective
        scaler = precision.scaler
        scales_loss = scaler.is_enabled()

        def backward(batch: MicroBatch) -> Terms:
            with precision.autocast():
                loss, terms = objective(forward(**batch.inputs), batch.inputs["labels"])
                # The share is a tensor, because each new plain number would compile again.
                loss = loss * batch.share
            (scaler.scale(loss) if scales_loss else loss).backward()  # type: ignore[no-untyped-call]
            return loss.detach(), None if terms is None else terms * batch.share

        return backward

    def _in_two(
        self, backward: Callable[[MicroBatch], Terms], update: Callable[[], Tensor | None]
    ) -> Step:
        hooks, gradients = self._hooks, self._gradients

        def step(batches: Sequence[MicroBatch]) -> StepResult:
            last = len(batches) - 1
            with gradients(is_last=last == 0):
                loss, terms = backward(batches[0])
            # Copies, because a captured CUDA graph overwrites its outputs at the next replay.
            loss, terms = loss.clone(), None if terms is None else terms.clone()
            for number, batch in enumerate(batches[1:], 1):
                with gradients(is_last=number == last):
                    more_loss, more_terms = backward(batch)
                loss += more_loss
                if terms is not None and more_terms is not None:
                    terms += more_terms
            hooks.call("after_backward")
            norm = update()
            hooks.call("after_optimizer_step")
            return StepResult(loss, terms, norm)

        return step

    def _update(self, *, clears: bool = True) -> Callable[[], Tensor | None]:
        """Clips, steps the optimizers, clears the gradients; returns the norm before clipping."""
        optimizers, scaler = self._optimizers, self._precision.scaler
        scales_loss = scaler.is_enabled()
        clip = self._clip()

        def update() -> Tensor | None:
            if scales_loss and clip is not None:
                for optimizer in optimizers:
                    scaler.unscale_(optimizer)
            norm = None if clip is None else clip()
            for optimizer in optimizers:
                if scales_loss:
                    scaler.step(optimizer)
                else:
                    optimizer.step()
            if scales_loss:
                scaler.update()
            if clears:
                for optimizer in optimizers:
                    optimizer.zero_grad()
            return norm

        return update

    def _clip(self) -> Callable[[], Tensor | None] | None:
        """A function that clips and returns the norm before, if it is needed; None for no work."""
        training, parameters = self._training, list(self._model.parameters())
        wants_norm = training.clip_norm is not None or training.record_gradient_norm
        if not wants_norm and training.clip_value is None:
            return None

        def clip() -> Tensor | None:
            norm = None
            if training.clip_norm is not None:
                norm = clip_grad_norm_(parameters, training.clip_norm)
            elif wants_norm:
                norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
            if training.clip_value is not None:
                clip_grad_value_(parameters, training.clip_value)
            return norm

        return clip


def uncompiled_step(
    model: nn.Module,
    objective: LossOf,
    optimizers: Sequence[torch.optim.Optimizer],
    precision: MixedPrecision,
    experiment: ExperimentSpec,
    parallel: ParallelModel | None = None,
) -> Step:
    """The experiment's step without a compiler and callbacks."""
    step = StepMaker(
        model,
        objective,
        optimizers,
        precision,
        experiment.training,
        parallel=parallel,
        like_harness=experiment.steps_like_harness,
    ).make("forward", leave_alone)

    def uncompiled(batches: Sequence[MicroBatch]) -> StepResult:
        # Otherwise blocks that were compiled in place would run compiled here, too.
        with torch.compiler.set_stance("force_eager"):
            return step(batches)

    return uncompiled


def uncompiled_copy(
    model: nn.Module, objective: LossOf, experiment: ExperimentSpec, device: torch.device
) -> Step:
    """The experiment's step on a copy of the model, with new optimizers; the model itself does not
    change. Raises `torch.OutOfMemoryError`."""
    copied = copy.deepcopy(model)
    training = experiment.training
    optimizers = make_optimizers(training, copied, device)
    precision = MixedPrecision(training, device)
    return uncompiled_step(copied, objective, optimizers, precision, experiment)
