"""The callback that records what the gradient of every parameter looks like."""

import torch
from torch import Tensor

from breakeven.runner.worker.callbacks import Callback, TrainingState
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.ranks.together import whole

STATISTICS = ("norm", "mean", "deviation", "largest", "zeros")


class GradientStatistics(Callback):
    """Every so many steps: norm, mean, standard deviation, largest size, and share of zeros.

    They are computed on the device, before clipping, and read when the block is over. With fp16
    they are divided by the scale of the loss.
    """

    def __init__(self, every: int, scaler: torch.amp.GradScaler, log: EventLog) -> None:
        self._every = every
        self._scaler = scaler
        self._log = log
        self._taken: list[tuple[int, list[str], Tensor]] = []

    @torch.no_grad()
    def after_backward(self, state: TrainingState) -> None:
        if state.step % self._every:
            return
        # A parameter without a gradient took no part in the loss; it is left out.
        named = [(n, p.grad) for n, p in state.model.named_parameters() if p.grad is not None]
        scale = self._scaler.get_scale() if self._scaler.is_enabled() else 1.0
        rows = torch.stack([_statistics(whole(grad).float() / scale) for _, grad in named])
        self._taken.append((state.step, [name for name, _ in named], rows))

    def block_end(self, state: TrainingState) -> None:
        for step, names, rows in self._taken:
            tensors = [
                {"name": name, **dict(zip(STATISTICS, row, strict=True))}
                for name, row in zip(names, rows.tolist(), strict=True)
            ]
            self._log.append("gradient_statistics", step=step, tensors=tensors)
        self._taken.clear()


def _statistics(gradient: Tensor) -> Tensor:
    zeros = (gradient == 0).float().mean()
    largest = gradient.abs().max()
    deviation = gradient.std(correction=0)
    return torch.stack([gradient.norm(), gradient.mean(), deviation, largest, zeros])
