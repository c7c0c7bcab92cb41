"""What is timed in the scenario `speed`, and when enough of it was timed."""

from dataclasses import dataclass

from runner.accuracy_spec import Part
from runner.validation import Spec, require

MIN_ROUNDS = 6
"""Fewer rounds have no 95 % interval of a median: all of them lie above it with 2 / 2^n."""
MAX_REPEATS = 20


@dataclass(frozen=True, kw_only=True)
class SpeedSpec(Spec):
    """Steps on a few fixed batches, timed by turns until the speedups are known well enough."""

    part: Part = "training"
    """What a step is: `training`, a full optimizer step; `inference`, a forward pass in evaluation
    mode, without gradients."""
    batches: int = 8
    """Batches that the steps cycle through, the same in the same order for every run."""
    warm_up_blocks: int = 2
    """Turns at the beginning of each run that are timed apart and never count; compiling falls
    among them."""
    target_width: float = 0.02
    """Relative width of the 95 % interval of a speedup, 0.02 for 2 %. Measuring ends once every
    interval is narrower."""
    min_rounds: int = 20
    """Rounds that are measured in any case; a round is one turn of every run."""
    max_rounds: int = 200
    """Rounds after which measuring ends in any case."""
    max_seconds: float = 600.0
    """Time of steps after which measuring ends in any case: that of all runs together, warm-up and
    compiling not counted."""
    repeats: int = 1
    """Independent processes of every run. From 3 on, the interval of a speedup tells how much
    processes differ as well. Rounds and seconds are those of each repeat."""

    def check_rules(self) -> None:
        for name in ("batches", "warm_up_blocks"):
            value = getattr(self, name)
            require(value >= 1, f"speed.{name}", value, "must be at least 1")
        for name in ("target_width", "max_seconds"):
            value = getattr(self, name)
            require(value > 0, f"speed.{name}", value, "must be above 0")
        least, most, repeats = self.min_rounds, self.max_rounds, self.repeats
        rule = f"must be at least {MIN_ROUNDS}: fewer rounds have no interval"
        require(least >= MIN_ROUNDS, "speed.min_rounds", least, rule)
        rule = f"must not be below speed.min_rounds ({least})"
        require(most >= least, "speed.max_rounds", most, rule)
        rule = f"must be 1 to {MAX_REPEATS}"
        require(1 <= repeats <= MAX_REPEATS, "speed.repeats", repeats, rule)

    @property
    def num_blocks(self) -> int:
        """Turns that a run takes at most, warm-up included."""
        return self.warm_up_blocks + self.max_rounds
