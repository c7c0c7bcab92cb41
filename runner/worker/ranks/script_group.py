"""The ranks of a script, as one of them sees them.

The groups of torch.distributed belong to the script, which makes and destroys them when it likes.
So ranks exchange values over their sockets to the process of their run: a rank that waits there has
nothing pending on its device, and no watchdog of NCCL ends it.
"""

import base64
import pickle
from typing import Any

from breakeven.runner.errors import WorkloadError
from breakeven.runner.worker.context import RankGroup, Value
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.ranks.lifeline import Lifeline

UNEVEN = (
    "rank {fewest} made {few} steps in a block in which rank {most} made {many}: all ranks must "
    "make the same number of steps. Give every rank as many batches, for example with "
    "DistributedSampler(..., drop_last=True), or end all of them after the same step"
)
LEFT_BEHIND = (
    "rank {rank} ended its script after {steps} steps, and rank {own} waits for it in a further "
    "step: all ranks must make the same number of steps"
)


class ScriptGroup(RankGroup):
    """Ranks whose training belongs to a script."""

    def __init__(self, rank: int, size: int, lifeline: Lifeline) -> None:
        self.rank, self.size = rank, size
        self._lifeline = lifeline

    def share(self, value: Value | None) -> Value:
        shared: Value = self.gather(value)[0]  # type: ignore[assignment]
        return shared

    def gather(self, value: Value) -> list[Value]:
        self.is_waiting = True
        self._lifeline.send("value", value=base64.b64encode(pickle.dumps(value)).decode())
        given = self._lifeline.answers.get()
        self.is_waiting = False
        return [pickle.loads(base64.b64decode(text)) for text in given]

    def of_steps(self, values: list[Any]) -> list[list[Any]]:
        """Raises `WorkloadError` if ranks made different numbers of steps."""
        by_rank = self.gather(values)
        counts = [len(numbers) for numbers in by_rank]
        few, many = min(counts), max(counts)
        if few < many:
            fewest, most = counts.index(few), counts.index(many)
            raise WorkloadError(UNEVEN.format(fewest=fewest, few=few, most=most, many=many))
        return by_rank

    def report_failure(self, log: EventLog, status: int, fields: dict[str, Any]) -> None:
        self._lifeline.send("failed", status=status, **fields)

    def script_ended(self, num_steps: int) -> None:
        self._lifeline.send("ended", steps=num_steps)

    def script_starts_again(self) -> None:
        self._lifeline.ended.clear()

    def blocked(self, is_blocked: bool) -> None:
        self._lifeline.send("blocked", is_blocked=is_blocked)

    def left_behind(self) -> str | None:
        if self._lifeline.standstill is not None:
            return self._lifeline.standstill
        ended = {rank: n for rank, n in self._lifeline.ended.items() if rank != self.rank}
        if not ended:
            return None
        rank, num_steps = next(iter(ended.items()))
        return LEFT_BEHIND.format(rank=rank, steps=num_steps, own=self.rank)
