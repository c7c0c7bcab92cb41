"""What one optimizer step is: precision, loss, backward, clipping, optimizer."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, get_total_norm

from runner.errors import WorkloadError
from runner.spec import TrainingSpec
from runner.variants import Scope
from runner.worker.compiling import Compile
from runner.worker.schedules import is_constant

AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
Batch = dict[str, Tensor]


class StepResult(NamedTuple):
    """What a step leaves behind, still on the device; the norm is None unless it is recorded."""

    loss: Tensor
    gradient_norm: Tensor | None


Step = Callable[[Sequence[Batch]], StepResult]
"""Trains on the micro-batches of one optimizer step."""


class MixedPrecision:
    """Autocast as the specification asks for it, and loss scaling for fp16."""

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

    def autocast(self) -> torch.autocast:
        return torch.autocast(self._device_type, dtype=self._dtype, enabled=self._dtype is not None)


def make_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    precision: MixedPrecision,
    training: TrainingSpec,
    scope: Scope,
    compile: Compile,
) -> Step:
    """One whole iteration, of which `compile` is given what lies in its scope.

    In scope `iteration` a step of one micro-batch is one function: forward, loss, backward,
    optimizer, zero_grad. With accumulation, and in scope `forward_backward`, the micro-batch
    (forward, loss, backward) and the update are two, so that the code does not grow with the number
    of micro-batches, and a last, smaller window fits it too. Scope `blocks` has nothing left to do
    here: the model's blocks are compiled in place.
    """
    forward: Callable[..., Any] = compile(model) if scope == "forward" else model
    update = _make_update(model, optimizer, precision, training)
    scaler = precision.scaler
    scales_loss = scaler.is_enabled()

    # `iterate` repeats the three lines of `backward` rather than calling it: Dynamo cannot go on
    # inside a called function after the break at loss.backward(), and would split it once more.
    def backward(batch: Batch, share: Tensor) -> Tensor:
        with precision.autocast():
            loss: Tensor = forward(**batch).loss * share
        (scaler.scale(loss) if scales_loss else loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def iterate(batch: Batch) -> StepResult:
        with precision.autocast():
            loss: Tensor = forward(**batch).loss
        (scaler.scale(loss) if scales_loss else loss).backward()  # type: ignore[no-untyped-call]
        return StepResult(loss.detach(), update())

    if scope in ("forward", "blocks"):
        compile = _leave_alone
    if scope == "forward_backward" or training.gradient_accumulation > 1:
        return _accumulating(compile(backward), compile(update))
    whole = compile(iterate)
    return lambda batches: whole(batches[0])


def _leave_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _accumulating(
    backward: Callable[[Batch, Tensor], Tensor], update: Callable[[], Tensor | None]
) -> Step:
    shares: dict[int, Tensor] = {}

    def step(batches: Sequence[Batch]) -> StepResult:
        # A window of n micro-batches weighs each by 1/n, also the last one of an epoch, which may
        # be smaller. As a tensor, because another plain number would compile once more.
        size = len(batches)
        if size not in shares:
            shares[size] = torch.tensor(1 / size, device=batches[0]["labels"].device)
        # A copy, because a captured CUDA graph overwrites its outputs at the next replay.
        loss = backward(batches[0], shares[size]).clone()
        for batch in batches[1:]:
            loss += backward(batch, shares[size])
        return StepResult(loss, update())

    return step


def _make_update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    precision: MixedPrecision,
    training: TrainingSpec,
) -> Callable[[], Tensor | None]:
    """Clips, steps the optimizer and clears the gradients; returns their norm before clipping."""
    scaler, parameters = precision.scaler, list(model.parameters())
    scales_loss = scaler.is_enabled()
    wants_norm = training.clip_norm is not None or training.record_gradient_norm
    touches_gradients = wants_norm or training.clip_value is not None

    def update() -> Tensor | None:
        norm = None
        if scales_loss and touches_gradients:
            scaler.unscale_(optimizer)
        if training.clip_norm is not None:
            norm = clip_grad_norm_(parameters, training.clip_norm)
        elif wants_norm:
            gradients = [p.grad for p in parameters if p.grad is not None]
            norm = get_total_norm(gradients)
        if training.clip_value is not None:
            clip_grad_value_(parameters, training.clip_value)
        if scales_loss:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()
        return norm

    return update


def make_optimizer(
    training: TrainingSpec, model: nn.Module, device: torch.device
) -> torch.optim.Optimizer:
    """Any optimizer of `torch.optim` by name; raises `WorkloadError` for one that is not there."""
    kind: Any = getattr(torch.optim, training.optimizer, None)
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        raise WorkloadError(
            f"training.optimizer = {training.optimizer!r}: torch.optim has no such optimizer; "
            "Adam, AdamW and SGD are usual"
        )
    options: dict[str, Any] = dict(training.optimizer_options)
    if device.type == "cuda" and "capturable" in inspect.signature(kind).parameters:
        # Keeps the optimizer's step count on the device, so that CUDA graphs can hold the step.
        options.setdefault("capturable", True)
    rate: float | Tensor = training.learning_rate
    if not is_constant(training):
        rate = torch.tensor(rate, device=device)
    make: Callable[..., torch.optim.Optimizer] = kind
    try:
        return make(model.parameters(), lr=rate, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise WorkloadError(
            f"training.optimizer_options = {training.optimizer_options!r} do not fit "
            f"torch.optim.{training.optimizer}: {error}"
        ) from error
