"""How often compiling is timed, cold and warm, in the scenario `cache`."""

from dataclasses import dataclass
from typing import Annotated

from breakeven.runner.specs.accuracy import Part
from breakeven.runner.specs.bounds import Bounds
from breakeven.runner.specs.validation import Spec

MAX_REPEATS = 9


@dataclass(frozen=True, kw_only=True)
class CacheSpec(Spec, path="cache."):
    """Cold and warm processes of each backend."""

    part: Part = "training"
    """What is compiled: `training`, full optimizer steps; `inference`, forward passes alone."""
    repeats: Annotated[int, Bounds(1, MAX_REPEATS, "each compiles everything anew")] = 1
    """Pairs per backend: a process with empty compile caches, then one on the caches it left."""
    steps: Annotated[int, Bounds(2, 100_000, "compiling is over after a few")] = 20
    """Optimizer steps, or forward passes, of each process. The first block compiles; the others
    tell what a step takes without compiling, and are as many blocks as it takes."""
