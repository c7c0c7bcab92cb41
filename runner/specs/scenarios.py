"""The scenarios: what runs do, and what is made of it; all that is known of one is its entry.

A new one is an entry here, the function that runs it (`runner/worker/session.py`), and, if it
compares something new, its part of the page (`views/compare.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from breakeven.runner.specs.accuracy import AccuracySpec, Part
from breakeven.runner.specs.cache import CacheSpec
from breakeven.runner.specs.speed import SpeedSpec
from breakeven.runner.specs.training import TrainingSpec

ScenarioName = Literal["train", "speed", "accuracy", "cache"]
Compared = Literal["runs", "tensors", "caches"]


class Asked(Protocol):
    """What of an experiment decides how much is done."""

    @property
    def training(self) -> TrainingSpec: ...
    @property
    def speed(self) -> SpeedSpec: ...
    @property
    def accuracy(self) -> AccuracySpec: ...
    @property
    def cache(self) -> CacheSpec: ...
    @property
    def block_steps(self) -> int: ...
    @property
    def steps_per_epoch(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What each run does, and what is made of it."""

    name: ScenarioName
    text: str
    """What it does, for people."""
    compares: Compared
    """What is judged: each run's times and losses by the baseline's (`runs`), each backend's
    outputs and gradients by a reference's (`tensors`), or compiling with what an earlier process
    left by compiling without (`caches`)."""
    parts: Callable[[Asked], tuple[Part, ...]]
    """What is worked on: full optimizer steps, forward passes alone, or both."""
    num_steps: Callable[[Asked], int]
    """Steps of one run, or the most that it makes."""
    trains_fully: bool = False
    """Whether each run is a whole training, which is evaluated as one asks."""
    cycles_batches: bool = False
    """Whether steps go over a few batches again and again, and not over epochs of the data."""
    ends_by_width: bool = False
    """Whether measuring ends by itself once every speedup is known exactly enough."""

    @property
    def compares_runs(self) -> bool:
        return self.compares == "runs"

    @property
    def compares_tensors(self) -> bool:
        return self.compares == "tensors"

    @property
    def compares_caches(self) -> bool:
        return self.compares == "caches"


_ALL = (
    Scenario(
        name="train",
        text="a race of trainings.",
        compares="runs",
        parts=lambda asked: ("training",),
        num_steps=lambda asked: (
            asked.training.max_steps or asked.steps_per_epoch * asked.training.epochs
        ),
        trains_fully=True,
    ),
    Scenario(
        name="speed",
        text="a race on a few batches, timed until the answer is exact enough; nothing is "
        "evaluated.",
        compares="runs",
        parts=lambda asked: (asked.speed.part,),
        num_steps=lambda asked: asked.speed.num_blocks * asked.block_steps,
        cycles_batches=True,
        ends_by_width=True,
    ),
    Scenario(
        name="accuracy",
        text="no race; each backend's outputs, loss and gradients on one batch are compared with "
        "a reference in double precision.",
        compares="tensors",
        parts=lambda asked: asked.accuracy.parts,
        num_steps=lambda asked: asked.accuracy.iterations,
    ),
    Scenario(
        name="cache",
        text="no race; compiling is timed with empty compile caches and with filled ones.",
        compares="caches",
        parts=lambda asked: (asked.cache.part,),
        num_steps=lambda asked: asked.cache.steps,
    ),
)
SCENARIOS: dict[ScenarioName, Scenario] = {one.name: one for one in _ALL}
