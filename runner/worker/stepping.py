"""What one optimizer step is: precision, loss, backward, optimizer."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from runner.errors import WorkloadError
from runner.spec import TrainingSpec

AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
Step = Callable[[dict[str, Tensor]], Tensor]
"""Trains on one batch and returns its loss, still on the device."""


class MixedPrecision:
    """Autocast as the specification asks for it, and loss scaling for fp16."""

    def __init__(self, training: TrainingSpec, device: torch.device) -> None:
        self._device_type = device.type
        self._dtype = AUTOCAST_DTYPES.get(training.precision)
        self.scaler = torch.amp.GradScaler(device.type, enabled=training.precision == "fp16")

    def autocast(self) -> torch.autocast:
        return torch.autocast(self._device_type, dtype=self._dtype, enabled=self._dtype is not None)


def make_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, precision: MixedPrecision
) -> Step:
    """One whole iteration: forward, loss, backward, optimizer step, zero_grad."""
    scaler = precision.scaler

    def step(batch: dict[str, Tensor]) -> Tensor:
        with precision.autocast():
            loss: Tensor = model(**batch).loss
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    def scaled_step(batch: dict[str, Tensor]) -> Tensor:
        with precision.autocast():
            loss: Tensor = model(**batch).loss
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    return scaled_step if scaler.is_enabled() else step


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
    options: dict[str, Any] = {}
    if device.type == "cuda" and "capturable" in inspect.signature(kind).parameters:
        # Keeps the optimizer's step count on the device, so that CUDA graphs can hold the step.
        options["capturable"] = True
    make: Callable[..., torch.optim.Optimizer] = kind
    return make(model.parameters(), lr=training.learning_rate, **options)
