"""Ends runs that start once more with their compile caches, when it is known what that costs.

A later start makes the steps in which the first process compiled, until a block compiles nothing,
but for at most a minute: what the first process compiled after these steps counts as cold.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from breakeven.runner.protocol.endings import Ending
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.supervision.decision import Decision
from breakeven.runner.supervision.stopping_rule import JournalTails

MOST_SECONDS = 60.0
"""Longest time of a later start's steps, compiling included."""


class LaterStartWatch:
    """Decides from the journals of the runs."""

    def __init__(self, labels: Mapping[RunDir, str]) -> None:
        self._labels = labels
        self._starts = {label: LaterStart() for label in labels.values()}
        self._tails = JournalTails()

    def decide(self, living: Sequence[str]) -> Decision:
        for run, label in self._labels.items():
            for event in self._tails.read(run):
                # Damaged events are ignored.
                with suppress(KeyError, TypeError, ValueError):
                    self._starts[label].take(event)
        ending = Ending(cause="compiled", target_width=0.0)
        over = {label: ending for label, start in self._starts.items() if start.is_over}
        return Decision(dropped=over, again=True)


@dataclass
class LaterStart:
    """What a run's journal says of compiling in its first process, and since it started later."""

    compiled_until: int = 0
    """The step after the last one that the first process compiled for in its training."""
    trains_again: bool = False
    """Whether the first process trained once more, which pays for nothing of the training."""
    begins: int | None = None
    """Number in the journal of the later start's first step; None before it."""
    num_steps: int = 0
    seconds: float = 0.0
    has_compiled: bool = False
    """Whether something compiled in its last block."""

    @property
    def is_over(self) -> bool:
        is_settled = self.num_steps >= max(1, self.compiled_until) and not self.has_compiled
        return self.begins is not None and (is_settled or self.seconds >= MOST_SECONDS)

    def take(self, event: Mapping[str, Any]) -> None:
        """Records an event; raises `KeyError`, `TypeError` or `ValueError` for wrong values."""
        if event["kind"] == "resumed" and event.get("caches"):
            self.begins = int(event["step"])
        elif event["kind"] == "resumed":
            self.trains_again = True
        elif event["kind"] == "block":
            end = int(event["first_step"]) + int(event["num_steps"])
            if self.begins is not None:
                self.num_steps = end - self.begins
                self.seconds += float(event["seconds"])
                self.has_compiled = bool(event["compiled"])
            elif event["compiled"] and not self.trains_again:
                self.compiled_until = end
