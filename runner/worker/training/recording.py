"""What a block leaves in the journal: its steps, itself, and what callbacks recorded."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from runner.supervision.turns import Turn
from runner.worker.callbacks import OwnValue
from runner.worker.device.measuring import MemoryUse
from runner.worker.event_log import EventLog
from runner.worker.step.stepping import StepResult
from runner.worker.training.plan import Block


@dataclass
class Steps:
    """The steps of a block so far. What they computed stays on the device until it is over; forward
    passes leave nothing but whether they compiled."""

    losses: list[Tensor | None] = field(default_factory=list)
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

    def __init__(
        self,
        log: EventLog,
        loss_names: tuple[str, ...] = (),
        values: list[OwnValue] | None = None,
    ) -> None:
        """`values` is emptied when they are written; whoever records one appends to it."""
        self._log = log
        self._loss_names = loss_names
        self._values = [] if values is None else values

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
        for step, name, value in self._values:
            self._log.append("value", step=step, name=name, value=float(value))
        self._values.clear()

    def _rows(self, block: Block, steps: Steps, cost: BlockCost) -> list[dict[str, Any]]:
        """The fields of the steps' events."""
        unknown = [None] * len(steps)
        columns = zip(
            _read(steps.losses) or unknown,
            cost.seconds,
            steps.compiled,
            steps.learning_rates or unknown,
            _read(steps.gradient_norms) or unknown,
            strict=True,
        )
        rows: list[dict[str, Any]] = [
            {
                "step": step,
                "loss": loss,
                "seconds": seconds,
                "compiled": compiled,
                "learning_rate": rate,
                "gradient_norm": norm,
            }
            for step, (loss, seconds, compiled, rate, norm) in enumerate(columns, block.first_step)
        ]
        if steps.terms:
            for row, terms in zip(rows, torch.stack(steps.terms).tolist(), strict=True):
                row["losses"] = dict(zip(self._loss_names, terms, strict=True))
        return rows


def _read(tensors: Sequence[Tensor | None]) -> list[float | None]:
    """Their values, waited for once."""
    known = [tensor for tensor in tensors if tensor is not None]
    if len({(one.device, one.dtype) for one in known}) > 1:  # as a script may give them
        known = [one.to(known[0].device, torch.float32) for one in known]
    values = iter(torch.stack(known).tolist() if known else [])
    return [None if tensor is None else next(values) for tensor in tensors]
