"""What a block leaves in the journal: its steps, itself, and what callbacks recorded."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from runner.events import EventLog
from runner.turns import Turn
from runner.worker.callbacks import TrainingState
from runner.worker.measuring import MemoryUse
from runner.worker.plan import Block
from runner.worker.stepping import StepResult


@dataclass
class Steps:
    """The steps of a block so far. What they computed stays on the device until it is over; forward
    passes leave nothing but whether they compiled."""

    losses: list[Tensor] = field(default_factory=list)
    terms: list[Tensor] = field(default_factory=list)
    gradient_norms: list[Tensor] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    compiled: list[bool] = field(default_factory=list)

    def add(self, result: StepResult, learning_rate: float, *, copy: bool) -> None:
        """Keeps a step's results; `copy` where the next step overwrites them in place."""
        self.losses.append(result.loss.clone() if copy else result.loss)
        if result.terms is not None:
            self.terms.append(result.terms.clone() if copy else result.terms)
        if result.gradient_norm is not None:
            norm = result.gradient_norm
            self.gradient_norms.append(norm.clone() if copy else norm)
        self.learning_rates.append(learning_rate)

    def __len__(self) -> int:
        return len(self.compiled)


@dataclass(frozen=True, kw_only=True)
class BlockCost:
    """What the clock and the allocator said of a block."""

    seconds: list[float]
    memory: MemoryUse


class BlockRecorder:
    """Writes blocks down when they are over."""

    def __init__(self, log: EventLog, loss_names: tuple[str, ...], state: TrainingState) -> None:
        self._log = log
        self._loss_names = loss_names
        self._state = state

    def write(self, block: Block, turn: Turn, steps: Steps, cost: BlockCost) -> None:
        if not len(steps):
            return
        rows = self._rows(block, steps, cost)
        self._log.extend("step", rows, epoch=block.epoch, round=turn.round)
        self._log.append(
            "block",
            round=turn.round,
            position=turn.position,
            first_step=block.first_step,
            num_steps=len(steps),
            seconds=sum(cost.seconds),
            compiled=any(steps.compiled),
            warm_up=block.warm_up,
            peak_memory_bytes=cost.memory.peak_bytes,
            reserved_memory_bytes=cost.memory.reserved_bytes,
        )
        self.write_values()

    def write_values(self) -> None:
        """Writes the numbers that callbacks recorded since the last time."""
        for step, name, value in self._state.values:
            self._log.append("value", step=step, name=name, value=float(value))
        self._state.values.clear()

    def _rows(self, block: Block, steps: Steps, cost: BlockCost) -> Iterator[dict[str, Any]]:
        losses, norms = _read(steps.losses), _read(steps.gradient_norms)
        terms = torch.stack(steps.terms).tolist() if steps.terms else []
        rates = steps.learning_rates
        for index, (seconds, compiled) in enumerate(zip(cost.seconds, steps.compiled, strict=True)):
            row: dict[str, Any] = {
                "step": block.first_step + index,
                "loss": losses[index] if losses else None,
                "seconds": seconds,
                "compiled": compiled,
                "learning_rate": rates[index] if rates else None,
                "gradient_norm": norms[index] if norms else None,
            }
            if terms:
                row["losses"] = self._named(terms[index])
            yield row

    def _named(self, terms: list[float]) -> dict[str, float]:
        return dict(zip(self._loss_names, terms, strict=True))


def _read(tensors: list[Tensor]) -> list[float]:
    values: list[float] = torch.stack(tensors).tolist() if tensors else []
    return values
