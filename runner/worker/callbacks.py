"""Hooks into the training loop, for users' callbacks and for Breakeven's own.

A callback is a class with any of the methods of `Callback`. The loop calls its own callbacks first,
then the experiment's `callbacks` in their order. Their work inside a step is timed with the step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

Hook = Literal[
    "train_begin", "train_end", "epoch_begin", "epoch_end", "batch_begin", "batch_end",
    "after_backward", "after_optimizer_step", "evaluation_begin", "evaluation_end", "block_end",
]  # fmt: skip


OwnValue = tuple[int, str, float | Tensor]
"""A recorded number: steps done, name, value."""


@dataclass
class TrainingState:
    """The state of training, for callbacks. Reading it costs nothing; `loss.item()` waits for the
    device."""

    model: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    step: int = 0
    """Optimizer steps done so far."""
    epoch: int = 0
    """Number of the epoch, from 0."""
    loss: Tensor | None = None
    """Loss of the last step, 0-dimensional, on the device."""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    """Loss and metrics of the last evaluation, by name, on its first split."""
    scores_step: int | None = None
    """Steps done at that evaluation."""
    stop_reason: str | None = None
    values: list[OwnValue] = field(default_factory=list)
    """Numbers recorded since the last block."""

    def stop(self, reason: str) -> None:
        """Ends training after the current step; `reason` is a sentence for the record."""
        self.stop_reason = self.stop_reason or reason

    def record(self, name: str, value: float | Tensor) -> None:
        """Records a number at the current step, for a chart on the run's page. A 0-dimensional
        tensor may stay on the device: it is read when the block is over."""
        self.values.append((self.step, name, value))


class Callback:
    """Base of callbacks; every method is optional and does nothing here.

    `batch_begin` and `batch_end` surround an optimizer step. `after_backward` sees the gradients of
    all its micro-batches, before clipping; `after_optimizer_step` sees the new weights. With either
    of these two, the optimizer is compiled apart from forward and backward. `block_end` follows a
    block and its evaluation: slow work belongs there, since no clock runs.
    """

    def train_begin(self, state: TrainingState) -> None: ...

    def train_end(self, state: TrainingState) -> None: ...

    def epoch_begin(self, state: TrainingState) -> None: ...

    def epoch_end(self, state: TrainingState) -> None: ...

    def batch_begin(self, state: TrainingState) -> None: ...

    def batch_end(self, state: TrainingState) -> None: ...

    def after_backward(self, state: TrainingState) -> None: ...

    def after_optimizer_step(self, state: TrainingState) -> None: ...

    def evaluation_begin(self, state: TrainingState) -> None: ...

    def evaluation_end(self, state: TrainingState) -> None: ...

    def block_end(self, state: TrainingState) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        """The callback's part of a checkpoint: numbers, texts, tensors, lists and dicts."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state that `state_dict` returned."""


class Hooks:
    """Calls the methods that the callbacks define, and no others: an unused hook costs nothing."""

    def __init__(self, callbacks: Sequence[Any], state: TrainingState) -> None:
        self.callbacks = callbacks
        self._state = state
        self._methods: dict[str, list[Callable[[TrainingState], None]]] = {
            hook: [getattr(one, hook) for one in callbacks if _defines(one, hook)]
            for hook in get_args(Hook)
        }

    def call(self, hook: Hook) -> None:
        for method in self._methods[hook]:
            method(self._state)

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Calls no callbacks, during steps outside of the training."""
        methods, self._methods = self._methods, {hook: [] for hook in self._methods}
        try:
            yield
        finally:
            self._methods = methods

    @property
    def between_backward_and_update(self) -> bool:
        """Whether a callback is called between backward and the end of a step."""
        return bool(self._methods["after_backward"] or self._methods["after_optimizer_step"])

    def state_dict(self) -> list[dict[str, Any]]:
        return [one.state_dict() if _defines(one, "state_dict") else {} for one in self.callbacks]

    def load_state_dict(self, states: Sequence[dict[str, Any]]) -> None:
        for one, state in zip(self.callbacks, states, strict=True):
            if _defines(one, "load_state_dict"):
                one.load_state_dict(state)


def _defines(callback: Any, method: str) -> bool:
    own = getattr(type(callback), method, None)
    return own is not None and own is not getattr(Callback, method, None)
