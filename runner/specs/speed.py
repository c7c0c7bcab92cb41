"""What is timed in the scenario `speed`, and when enough of it was timed."""

from dataclasses import dataclass
from typing import Annotated

from breakeven.runner.specs.accuracy import Part
from breakeven.runner.specs.bounds import Bounds
from breakeven.runner.specs.validation import Spec, require

MIN_ROUNDS = 6
"""Fewer rounds have no 95 % interval of a median: all of them lie above it with 2 / 2^n."""
MAX_ROUNDS = 100_000
MAX_REPEATS = 20
WIDER_TELLS_NOTHING = "an interval as wide as the speedup itself tells nothing"
PRECISE_BY_THEN = "so many rounds tell differences that nobody could see"


@dataclass(frozen=True, kw_only=True)
class SpeedSpec(Spec, path="speed."):
    """Steps on a few fixed batches, timed by turns until the speedups are known well enough."""

    part: Part = "training"
    """What a step is: `training`, a full optimizer step; `inference`, a forward pass in evaluation
    mode, without gradients."""
    batches: Annotated[int, Bounds(1, 100_000, "the device holds all of them")] = 8
    """Batches that the steps cycle through, the same in the same order for every run."""
    warm_up_blocks: Annotated[int, Bounds(1, 1000, "none of them counts")] = 2
    """Turns at the beginning of each run that are timed apart and never count; compiling falls
    among them."""
    target_width: Annotated[float, Bounds(0, 1, WIDER_TELLS_NOTHING, above=True)] = 0.02
    """Relative width of the 95 % interval of a speedup, 0.02 for 2 %. Measuring ends once every
    interval is narrower."""
    min_rounds: Annotated[int, Bounds(MIN_ROUNDS, MAX_ROUNDS, PRECISE_BY_THEN)] = 20
    """Rounds that are measured in any case; a round is one turn of every run."""
    max_rounds: Annotated[int, Bounds(MIN_ROUNDS, MAX_ROUNDS, PRECISE_BY_THEN)] = 200
    """Rounds after which measuring ends in any case."""
    max_seconds: Annotated[float, Bounds(0, 604_800, "that is a week", above=True)] = 600.0
    """Time of steps after which measuring ends in any case: that of all runs together, warm-up and
    compiling not counted."""
    repeats: Annotated[int, Bounds(1, MAX_REPEATS, "everything is run as often")] = 1
    """Independent processes of every run. From 3 on, the interval of a speedup tells how much
    processes differ as well. Rounds and seconds are those of each repeat."""

    def check_rules(self) -> None:
        least, most = self.min_rounds, self.max_rounds
        rule = f"must not be below speed.min_rounds ({least})"
        require(most >= least, "speed.max_rounds", most, rule)

    @property
    def num_blocks(self) -> int:
        """Turns that a run takes at most, warm-up included."""
        return self.warm_up_blocks + self.max_rounds
