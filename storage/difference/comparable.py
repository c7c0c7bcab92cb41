"""What of two experiments may be compared, and why the rest may not."""

from dataclasses import dataclass
from typing import Literal

from breakeven.storage.difference.sides import Side

Obstacle = Literal["scenario", "task", "model", "weights", "data", "part", "unknown"]
OF_SPEED: tuple[Obstacle, ...] = ("scenario", "part", "task", "model")
"""With one of these, times are those of other work. Other batch sizes, precisions, devices and
versions are what one compares for."""
OF_LEARNING: tuple[Obstacle, ...] = (*OF_SPEED, "weights", "data", "unknown")
"""With one of these, losses and accuracies are those of another training."""


@dataclass(frozen=True, kw_only=True)
class Comparable:
    """What stands between two experiments; nothing where all of it may be compared."""

    obstacles: tuple[Obstacle, ...]

    @property
    def speed(self) -> bool:
        """Whether speedups, times and memory may be compared."""
        return not set(self.obstacles) & set(OF_SPEED)

    @property
    def learning(self) -> bool:
        """Whether losses and accuracies may be compared."""
        return not set(self.obstacles) & set(OF_LEARNING)


def comparable(one: Side, other: Side) -> Comparable:
    """Weights and data are the same if their hashes are; where a run did not tell one, nobody
    knows."""
    found: list[Obstacle] = []
    if one.spec.kind.compares != other.spec.kind.compares or not one.spec.kind.compares_runs:
        found.append("scenario")
    if one.spec.is_inference != other.spec.is_inference:
        found.append("part")
    if one.spec.task != other.spec.task:
        found.append("task")
    if _model(one) != _model(other):
        found.append("model")
    for obstacle, name in (("weights", "weights_sha256"), ("data", "data_sha256")):
        hashes = one.workload.get(name), other.workload.get(name)
        if None in hashes:
            found.append("unknown")
        elif hashes[0] != hashes[1]:
            found.append(obstacle)  # type: ignore[arg-type]
    return Comparable(obstacles=tuple(dict.fromkeys(found)))


def _model(side: Side) -> tuple[object, ...]:
    """The source alone may lie elsewhere on another machine, or hold something else by now."""
    size = side.workload.get("num_parameters")
    name = side.spec.model.source.rstrip("/").rpartition("/")[2]
    return name, size
