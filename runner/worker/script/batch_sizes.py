"""How much a batch holds, as far as its tensors tell."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def num_samples(batch: Any) -> int | None:
    """Length of the first tensor in it; None without one."""
    return next((len(tensor) for tensor in _tensors(batch) if tensor.ndim), None)


def num_tokens(batch: Any) -> int | None:
    """Tokens, padding included, of a batch that has them by the name `input_ids`."""
    tokens = batch.get("input_ids") if isinstance(batch, Mapping) else None
    return tokens.numel() if isinstance(tokens, Tensor) else None


def _tensors(batch: Any) -> list[Tensor]:
    if isinstance(batch, Tensor):
        return [batch]
    entries = batch.values() if isinstance(batch, Mapping) else batch
    return [one for one in entries if isinstance(one, Tensor)] if _is_many(entries) else []


def _is_many(entries: Any) -> bool:
    return isinstance(entries, (list, tuple)) or hasattr(entries, "__iter__")


class StepSize:
    """Loss, samples and tokens of an optimizer step, gathered over its micro-batches."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.loss: Tensor | None = None
        self.samples = 0
        self.tokens = 0

    def add(self, loss: Tensor | None, batch: Any = None) -> None:
        """`loss` is the micro-batch's share of the step's."""
        if loss is not None:
            loss = loss.detach()
            self.loss = loss if self.loss is None else self.loss + loss
        self.samples += num_samples(batch) or 0
        self.tokens += num_tokens(batch) or 0

    def take(self) -> tuple[Tensor | None, int | None, int | None]:
        """What was gathered, None for what is not known; the next step begins."""
        taken = self.loss, self.samples or None, self.tokens or None
        self.clear()
        return taken
