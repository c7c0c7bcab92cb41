"""What a block leaves in the journal: its steps, itself, and what callbacks recorded."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from breakeven.runner.supervision.turns import Turn
from breakeven.runner.worker.callbacks import OwnValue
from breakeven.runner.worker.device.measuring import MemoryUse
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.ranks.group import ALONE, Group
from breakeven.runner.worker.ranks.together import whole
from breakeven.runner.worker.step.stepping import StepResult
from breakeven.runner.worker.training.plan import Block


@dataclass
class Steps:
    """The steps of a block so far. What they computed stays on the device until it is over; forward
    passes leave nothing but whether they compiled."""

    losses: list[Tensor | None] = field(default_factory=list)
    terms: list[Tensor] = field(default_factory=list)
    gradient_norms: list[Tensor] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    compiled: list[bool] = field(default_factory=list)
    samples: list[int | None] = field(default_factory=list)
    """Of a script, which tells them, or None, in each step; like `tokens`."""
    tokens: list[int | None] = field(default_factory=list)

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
    cpu_seconds: float = 0.0
    """Of all threads of this process."""


class BlockRecorder:
    """Writes blocks down when they are over."""

    def __init__(
        self,
        log: EventLog,
        loss_names: tuple[str, ...] = (),
        values: list[OwnValue] | None = None,
        group: Group = ALONE,
    ) -> None:
        """`values` is emptied when they are written; whoever records one appends to it. `group`:
        the ranks, each of which has a part of every loss."""
        self._group = group
        self._log = log
        self._loss_names = loss_names
        self._values = [] if values is None else values

    def write(self, block: Block, turn: Turn, steps: Steps, cost: BlockCost) -> None:
        if not len(steps):
            return
        rows = self._rows(block, steps, cost)
        self._write_ranks(block, turn, cost)
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
            samples=_sum(steps.samples),
            tokens=_sum(steps.tokens),
        )
        self.write_values()

    def _write_ranks(self, block: Block, turn: Turn, cost: BlockCost) -> None:
        """What each rank's own clocks and allocator said of the block."""
        if self._group.size == 1:
            return
        mine = {
            "seconds": sum(cost.seconds),
            "cpu_seconds": cost.cpu_seconds,
            "peak_memory_bytes": cost.memory.peak_bytes,
            "reserved_memory_bytes": cost.memory.reserved_bytes,
        }
        rows = [{"rank": rank, **one} for rank, one in enumerate(self._group.gather(mine))]
        self._log.extend("rank_block", rows, round=turn.round, first_step=block.first_step)

    def write_values(self) -> None:
        """Writes the numbers that callbacks recorded since the last time."""
        for step, name, value in self._values:
            self._log.append("value", step=step, name=name, value=float(value))
        self._values.clear()

    def _rows(self, block: Block, steps: Steps, cost: BlockCost) -> list[dict[str, Any]]:
        """The fields of the steps' events."""
        unknown = [None] * len(steps)
        columns = zip(
            self._averaged(_read(steps.losses)) or unknown,
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
            by_step = torch.stack(steps.terms).tolist()
            for row, terms in zip(rows, map(self._averaged, by_step), strict=True):
                row["losses"] = dict(zip(self._loss_names, terms, strict=True))
        return rows

    def _averaged(self, values: list[Any]) -> list[Any]:
        """Weighed numbers of the ranks as those of the whole batch."""
        if self._group.size == 1 or not values:
            return values
        by_step = zip(*self._group.gather(values), strict=True)
        return [sum(of_ranks) / self._group.size for of_ranks in by_step]


def _sum(counts: Sequence[int | None]) -> int | None:
    """None unless all are known."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _read(tensors: Sequence[Tensor | None]) -> list[float | None]:
    """Their values, waited for once."""
    known = [whole(tensor) for tensor in tensors if tensor is not None]
    if len({(one.device, one.dtype) for one in known}) > 1:  # as a script may give them
        known = [one.to(known[0].device, torch.float32) for one in known]
    values = iter(torch.stack(known).tolist() if known else [])
    return [None if tensor is None else next(values) for tensor in tensors]
