"""The rows that record a block: its steps, its times, its memory."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from breakeven.runner.protocol.turns import Turn
from breakeven.runner.worker.callbacks import OwnValue
from breakeven.runner.worker.context import ALONE, RankGroup, full_tensor, mean_of_ranks
from breakeven.runner.worker.device.base import MemoryUse
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.ranks.rank_weights import describe_weights
from breakeven.runner.worker.step.stepping import StepResult
from breakeven.runner.worker.training.blocks import Block


@dataclass
class Steps:
    """The steps of a block so far. Their results stay on the device until the block is over;
    forward passes record only whether they compiled."""

    losses: list[Tensor | None] = field(default_factory=list)
    terms: list[Tensor] = field(default_factory=list)
    gradient_norms: list[Tensor] = field(default_factory=list)
    learning_rates: list[float | Tensor | None] = field(default_factory=list)
    compiled: list[bool] = field(default_factory=list)
    samples: list[int | None] = field(default_factory=list)
    """Samples of each step that a script reports, or None."""
    tokens: list[int | None] = field(default_factory=list)
    """Tokens of each step that a script reports, or None."""
    loading: list[float] = field(default_factory=list)
    """Seconds of each step of a script in which it waited for its data loaders."""

    def add(self, result: StepResult, learning_rate: float, *, copy: bool) -> None:
        """Adds a step's results; `copy` if the next step overwrites them in place."""
        self.losses.append(result.loss.clone() if copy else result.loss)
        if result.terms is not None:
            self.terms.append(result.terms.clone() if copy else result.terms)
        if result.gradient_norm is not None:
            norm = result.gradient_norm
            self.gradient_norms.append(norm.clone() if copy else norm)
        self.learning_rates.append(learning_rate)

    def complete(self) -> None:
        """Does the work on the steps that was put off until the block is over."""

    def __len__(self) -> int:
        return len(self.compiled)


@dataclass(frozen=True, kw_only=True)
class BlockCost:
    """Measurements of a block by clock and allocator."""

    seconds: list[float]
    memory: MemoryUse
    cpu_seconds: float = 0.0
    """CPU time of all threads of this process."""
    compile_seconds: float = 0.0
    """Time in which this process compiled."""


class BlockRecorder:
    """Records blocks when they are over."""

    def __init__(
        self,
        log: EventLog,
        loss_names: tuple[str, ...] = (),
        values: list[OwnValue] | None = None,
        group: RankGroup = ALONE,
        weights: Callable[[], Iterable[Tensor]] = tuple,
        *,
        with_steps: bool = True,
    ) -> None:
        """Callbacks append numbers to `values`; writing empties it. Each rank of `group` has a
        part of every loss, and `weights` of its own."""
        self._group, self._weights = group, weights
        self.with_steps = with_steps
        """Whether to record single steps, too."""
        self._log = log
        self._loss_names = loss_names
        self._values = [] if values is None else values

    def write(self, block: Block, turn: Turn, steps: Steps, cost: BlockCost) -> None:
        own = zip(
            _read(steps.losses) or [None] * len(steps), steps.compiled, cost.seconds, strict=True
        )
        by_rank = self._group.of_steps(list(own))
        if not len(steps):
            return
        losses = [[loss for loss, _, _ in of_rank] for of_rank in by_rank]
        compiled = [
            any(compiled for _, compiled, _ in ranks) for ranks in zip(*by_rank, strict=True)
        ]
        seconds = [
            max(seconds for _, _, seconds in ranks) if compiled[place] else cost.seconds[place]
            for place, ranks in enumerate(zip(*by_rank, strict=True))
        ]
        rows = self._rows(block, steps, mean_of_ranks(losses), compiled, seconds)
        self._write_ranks(block, turn, cost, losses)
        self._log.extend(
            "step", rows if self.with_steps else [], epoch=block.epoch, round=turn.round
        )
        self._log.append(
            "block",
            round=turn.round,
            position=turn.position,
            first_step=block.first_step,
            num_steps=len(steps),
            seconds=sum(seconds),
            compiled=any(compiled),
            warm_up=block.warm_up,
            peak_memory_bytes=cost.memory.peak_bytes,
            reserved_memory_bytes=cost.memory.reserved_bytes,
            samples=_sum(steps.samples),
            tokens=_sum(steps.tokens),
            loading_seconds=_sum(steps.loading),
        )
        self.write_values()

    def _write_ranks(
        self, block: Block, turn: Turn, cost: BlockCost, losses: list[list[float | None]]
    ) -> None:
        """Records the block by each rank's own clock and allocator, its losses and weights."""
        if self._group.size == 1:
            return
        own_fields = {
            "seconds": sum(cost.seconds),
            "cpu_seconds": cost.cpu_seconds,
            "compile_seconds": cost.compile_seconds,
            "peak_memory_bytes": cost.memory.peak_bytes,
            "reserved_memory_bytes": cost.memory.reserved_bytes,
            **describe_weights(self._weights()),
        }
        rows = [
            {"rank": rank, **rank_fields, "losses": losses[rank] if self.with_steps else []}
            for rank, rank_fields in enumerate(self._group.gather(own_fields))
        ]
        self._log.extend("rank_block", rows, round=turn.round, first_step=block.first_step)

    def write_values(self) -> None:
        """Writes the numbers that callbacks recorded since the last call."""
        for step, name, value in self._values:
            self._log.append("value", step=step, name=name, value=float(value))
        self._values.clear()

    def _rows(
        self,
        block: Block,
        steps: Steps,
        losses: list[Any],
        compiled: list[bool],
        seconds: list[float],
    ) -> list[dict[str, Any]]:
        """The fields of the steps' events."""
        unknown = [None] * len(steps)
        columns = zip(
            losses,
            seconds,
            compiled,
            [None if rate is None else float(rate) for rate in steps.learning_rates] or unknown,
            _read(steps.gradient_norms) or unknown,
            strict=True,
        )
        rows: list[dict[str, Any]] = [
            {
                "step": step,
                "loss": loss,
                "seconds": duration,
                "compiled": has_compiled,
                "learning_rate": rate,
                "gradient_norm": norm,
            }
            for step, (loss, duration, has_compiled, rate, norm) in enumerate(
                columns, block.first_step
            )
        ]
        if steps.terms:
            by_step = torch.stack(steps.terms).tolist()
            for row, terms in zip(rows, map(self._group.averaged, by_step), strict=True):
                row["losses"] = dict(zip(self._loss_names, terms, strict=True))
        return rows


def _sum(counts: Sequence[float | None]) -> float | None:
    """The sum; None unless all counts are known."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _read(tensors: Sequence[Tensor | None]) -> list[float | None]:
    """The values of all tensors; waits for the device once."""
    known = [full_tensor(tensor) for tensor in tensors if tensor is not None]
    if len({(tensor.device, tensor.dtype) for tensor in known}) > 1:  # a script's losses may differ
        known = [tensor.to(known[0].device, torch.float32) for tensor in known]
    values = iter(torch.stack(known).tolist() if known else [])
    return [None if tensor is None else next(values) for tensor in tensors]
