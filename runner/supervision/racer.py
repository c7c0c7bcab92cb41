"""What the journal of a run says: its times, losses and memory."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple, get_args

from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.training import Precision


@dataclass
class Racer:
    """The times and losses in the journal of a run."""

    arm: Arm
    blocks: dict[int, float] = field(default_factory=dict)
    """Seconds of the blocks that count, by round."""
    steps: dict[int, int] = field(default_factory=dict)
    """Steps of these blocks. A step of a larger batch counts as several of the baseline's."""
    loading_shares: list[float] = field(default_factory=list)
    """Share of each of these blocks in which a script waited for its data loaders."""
    warm_up_step_seconds: float | None = None
    """Seconds per step of the last block that does not count, but in which nothing compiled."""
    has_trained: bool = False
    """Whether it has completed a block, of any kind."""
    has_failed: bool = False
    compiling: list[tuple[float, int]] = field(default_factory=list)
    """Seconds and steps of the blocks in which something compiled."""
    losses: dict[int, float] = field(default_factory=dict)
    precision: Precision | None = None
    """Precision that the run of a script observed."""
    fixed_settings: frozenset[str] = frozenset()
    """Settings that no candidate can change, because the script chooses them."""
    has_started_again: bool = False
    """Whether it trains once more, or on, for further rounds alone."""
    again_seconds: float = 0.0
    """Seconds of starting again and of compiling since."""
    again_since: float | None = None
    """When it last began to start again; None once it has, and in a new process, which loads beside
    others."""
    has_just_loaded: bool = False
    """Whether its process has no block yet."""
    steps_done: int = 0
    num_steps: int = 0
    """Steps of its whole training; 0 if unknown."""
    memory_bytes: int = 0
    """Largest memory of the device that PyTorch held for a block."""
    device_bytes: int | None = None
    """Memory of its GPU."""

    @property
    def label(self) -> str:
        return self.arm.label

    @property
    def step_seconds(self) -> float | None:
        """Median seconds per step of its blocks; None before the first block that counts."""
        times = [seconds / self.steps[number] for number, seconds in self.blocks.items()]
        return median(times) if times else None

    @property
    def compile_seconds(self) -> float:
        """Seconds that blocks with compilation took longer than their steps take now."""
        step = self.step_seconds or 0.0
        return sum(max(0.0, seconds - steps * step) for seconds, steps in self.compiling)

    def take(self, event: Mapping[str, Any]) -> None:
        """Records an event; raises `KeyError`, `TypeError` or `ValueError` for wrong values."""
        if event["kind"] == "step" and event.get("loss") is not None:
            self.losses[int(event["step"])] = float(event["loss"])
        elif event["kind"] == "workload":
            self.num_steps = int(event.get("num_steps") or 0)
            self.fixed_settings = frozenset(event.get("fixed_settings") or ())
            if event.get("precision") in get_args(Precision):
                self.precision = event["precision"]
        elif event["kind"] == "environment":
            self.device_bytes = event.get("gpu_memory_bytes")
            self.has_just_loaded = True
        elif event["kind"] == "block":
            self._take_block(event)
        elif event["kind"] == "resumed":
            self.steps_done = int(event["step"])
            self.has_started_again = event.get("file") is None and self.steps_done > 0
            restarts = self.has_started_again and not self.has_just_loaded
            self.again_since = float(event["time"]) if restarts else None
        elif event["kind"] == "phase" and event["phase"] == "waiting" and self.again_since:
            self.again_seconds += max(0.0, float(event["time"]) - self.again_since)
            self.again_since = None
        elif event["kind"] == "error":
            self.has_failed = True

    def _take_block(self, event: Mapping[str, Any]) -> None:
        seconds = float(event["seconds"])
        steps = int(event["num_steps"]) * self.arm.batch_times
        if not (0 < seconds < math.inf and steps > 0):
            return
        self.has_trained, self.has_just_loaded = True, False
        end = int(event.get("first_step", 0)) + int(event["num_steps"])
        self.steps_done = max(self.steps_done, end)
        self.memory_bytes = max(self.memory_bytes, event.get("reserved_memory_bytes") or 0)
        if event["compiled"] and self.has_started_again:
            # The training itself pays for compiling once.
            self.again_seconds += 0.0 if self.again_since else seconds
        elif event["compiled"]:
            self.compiling.append((seconds, steps))
        elif event.get("warm_up"):
            self.warm_up_step_seconds = seconds / steps
        else:
            self.blocks[int(event["round"])] = seconds
            self.steps[int(event["round"])] = steps
            if event.get("loading_seconds") is not None:
                self.loading_shares.append(min(1.0, float(event["loading_seconds"]) / seconds))


class Family(NamedTuple):
    """A compiler or none, with or without CUDA graphs. All families are neighbours of each other: a
    training that waits for the host may gain from CUDA graphs alone."""

    compiler: str | None
    replays_graphs: bool
    """Whether it replays its steps as CUDA graphs."""


def family_of(arm: Arm) -> Family:
    return Family(arm.backend, arm.captures_cuda_graphs)


def step_ratios(racer: Racer, other: Racer, last: float = math.inf) -> list[float]:
    """Ratio of their step times in each round that they share, up to the round `last`."""
    return [
        racer.blocks[number] / racer.steps[number] * other.steps[number] / other.blocks[number]
        for number in sorted(racer.blocks.keys() & other.blocks.keys())
        if number <= last
    ]
