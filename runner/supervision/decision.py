"""What a decider says after each round: which runs end, which join, and how long blocks are."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from breakeven.runner.protocol.endings import Ending
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.specs.arm_fields import Arm


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The decision after a round."""

    dropped: Mapping[str, Ending] = field(default_factory=dict)
    """Runs that end with their next turn, by label."""
    joining: tuple[Arm, ...] = ()
    """Candidates that join."""
    over: Ending | None = None
    """Why all runs end; None if they continue."""
    profiled: Collection[str] | None = None
    """Labels of the runs that profile steps when all end; None for all that are left."""
    block_steps: int | None = None
    """Most steps of the blocks after the next turns; None for those of the experiment. All runs of
    a round have the same, because only blocks of equally many steps are compared later."""

    again: bool = False
    """Whether trainings that end start again, because more rounds are needed."""

    def ending(self, label: str) -> Ending | None:
        """Why a run ends with its next turn; None if it continues."""
        if label in self.dropped:
            return replace(self.dropped[label], is_profiled=False)
        is_profiled = self.profiled is None or label in self.profiled
        return self.over and replace(self.over, is_profiled=is_profiled)

    def turn(self, label: str, round_number: int, position: int) -> Turn:
        """The run's next turn."""
        return Turn(
            round=round_number,
            position=position,
            last=self.ending(label),
            block_steps=self.block_steps,
            again=self.again,
        )


class Decider(Protocol):
    """Decides after each round from what the runs have measured."""

    def decide(self, living: Sequence[str]) -> Decision:
        """`living`: labels of the runs that continue."""
        ...
