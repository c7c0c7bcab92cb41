"""How often compiling is timed, cold and warm, in the scenario `cache`."""

from dataclasses import dataclass

from runner.accuracy_spec import Part
from runner.validation import Spec, require

MAX_REPEATS = 9


@dataclass(frozen=True, kw_only=True)
class CacheSpec(Spec):
    """Cold and warm processes of each backend."""

    part: Part = "training"
    """What is compiled: `training`, full optimizer steps; `inference`, forward passes alone."""
    repeats: int = 1
    """Pairs per backend: a process with empty compile caches, then one on the caches it left."""
    steps: int = 20
    """Optimizer steps, or forward passes, of each process. The first block compiles; the others
    tell what a step takes without compiling, and are as many blocks as it takes."""

    def check_rules(self) -> None:
        repeats, steps = self.repeats, self.steps
        require(
            1 <= repeats <= MAX_REPEATS, "cache.repeats", repeats, f"must be 1 to {MAX_REPEATS}"
        )
        require(steps >= 2, "cache.steps", steps, "must be at least 2")
