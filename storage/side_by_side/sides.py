"""The sides of a comparison of experiments: their settings, environments and comparability."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import fields_of
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import DASH

LETTERS = "ABCDEFGH"
MAX_SIDES = len(LETTERS)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One experiment of a comparison; the first side is the reference."""

    letter: str
    """Name of the side."""
    experiment_id: str
    name: str
    submitted: Any
    """A UTC timestamp, or NaT."""
    comparison: Comparison
    environment: dict[str, Any]
    """Machine and software of its first run with a record."""
    workload: dict[str, Any]
    """Model and data of its first run with a record."""

    @property
    def spec(self) -> ExperimentSpec:
        return self.comparison.spec

    def result(self, label: str) -> Result | None:
        """The result of a backend, baseline or control; None if it is missing."""
        return next((result for result in self.comparison.results if result.label == label), None)


def load_sides(store: Store, experiment_ids: Sequence[str]) -> list[Side]:
    """The sides in this order, without duplicates, at most `MAX_SIDES`; raises `NotInStore`."""
    ids = list(dict.fromkeys(experiment_ids))[:MAX_SIDES]
    listed = queries.list_experiments(store).set_index("experiment_id")
    return [_side(store, key, letter, listed) for key, letter in zip(ids, LETTERS, strict=False)]


def _side(store: Store, experiment_id: str, letter: str, listed: pd.DataFrame) -> Side:
    comparison = compare(store, experiment_id)
    return Side(
        letter=letter,
        experiment_id=experiment_id,
        name=str(listed.loc[experiment_id, "name"]),
        submitted=listed.loc[experiment_id, "submitted"],
        comparison=comparison,
        environment=_first(queries.environments(store, experiment_id)),
        workload=_first(queries.workloads(store, experiment_id)),
    )


def _first(frame: pd.DataFrame) -> dict[str, Any]:
    return queries.fields_of(frame, str(frame["run_id"].iloc[0])) if len(frame) else {}


def labels(sides: Sequence[Side]) -> list[str]:
    """The labels of all backends of all sides, in the order of the sides."""
    backends = [
        result.label
        for side in sides
        for result in side.comparison.results
        if result.role == "backend"
    ]
    return list(dict.fromkeys(backends))


Obstacle = Literal["scenario", "task", "model", "weights", "data", "part", "unknown"]
OF_SPEED: tuple[Obstacle, ...] = ("scenario", "part", "task", "model")
"""Obstacles to comparing times, because the work differs. Different batch sizes, precisions,
devices and versions are no obstacles, but reasons to compare."""
OF_LEARNING: tuple[Obstacle, ...] = (*OF_SPEED, "weights", "data", "unknown")
"""Obstacles to comparing losses and accuracies, because the training differs."""


@dataclass(frozen=True, kw_only=True)
class Comparable:
    """Obstacles to comparing two experiments; empty if all numbers may be compared."""

    obstacles: tuple[Obstacle, ...]

    @property
    def speed(self) -> bool:
        """Whether speedups, times and memory may be compared."""
        return not set(self.obstacles) & set(OF_SPEED)

    @property
    def learning(self) -> bool:
        """Whether losses and accuracies may be compared."""
        return not set(self.obstacles) & set(OF_LEARNING)


def comparable(side: Side, other: Side) -> Comparable:
    """Finds obstacles; weights and data are compared by hashes, and unknown without a hash."""
    obstacles: list[Obstacle] = []
    if not (side.spec.kind.has_speedups and other.spec.kind.has_speedups):
        obstacles.append("scenario")
    if side.spec.is_inference != other.spec.is_inference:
        obstacles.append("part")
    if side.spec.task != other.spec.task:
        obstacles.append("task")
    if _model(side) != _model(other):
        obstacles.append("model")
    for obstacle, name in (("weights", "weights_sha256"), ("data", "data_sha256")):
        hashes = side.workload.get(name), other.workload.get(name)
        if None in hashes:
            obstacles.append("unknown")
        elif hashes[0] != hashes[1]:
            obstacles.append(obstacle)  # type: ignore[arg-type]
    return Comparable(obstacles=tuple(dict.fromkeys(obstacles)))


def _model(side: Side) -> tuple[object, ...]:
    """Name and size of the model, because paths differ between machines and contents change."""
    size = side.workload.get("num_parameters")
    name = side.spec.model.source.rstrip("/").rpartition("/")[2]
    return name, size


LEFT_OUT = (
    "name",
    "family",
    "family_place",
    "family_level",
    "suite_run",
    "fallback_of",
    "confirms",
    "investigates",
)
"""Settings that identify an experiment without changing its work."""
LONGEST = 200
"""Largest number of shown characters of a value."""


@dataclass(frozen=True, kw_only=True)
class Differing:
    """A fact that differs between sides."""

    kind: str
    name: str
    values: tuple[str, ...]
    """One text for each side; a dash if unknown."""


def differing(sides: Sequence[Side]) -> list[Differing]:
    """All facts that differ between the sides."""
    kinds = (
        ("setting", [settings_of(side.spec) for side in sides]),
        ("environment", [environment_of(side.environment, side.experiment_id) for side in sides]),
        ("data", [facts_of(side.workload) for side in sides]),
    )
    return [difference for kind, facts in kinds for difference in unequal(kind, facts)]


def unequal(kind: str, facts: Sequence[Mapping[str, str]]) -> Iterator[Differing]:
    """Yields each name with different values."""
    for name in dict.fromkeys(name for side_facts in facts for name in side_facts):
        values = tuple(side_facts.get(name, DASH) for side_facts in facts)
        if len(set(values)) > 1:
            yield Differing(kind=kind, name=name, values=values)


def settings_of(spec: ExperimentSpec) -> dict[str, str]:
    """All settings that define an experiment's work, as texts, by their paths."""
    return {
        field.path: text_of(field.value_in(spec))
        for field in fields_of(ExperimentSpec)
        if field.path not in LEFT_OUT
    }


def environment_of(environment: Mapping[str, Any], experiment_id: str) -> dict[str, str]:
    """Machine and software of a run, as texts by name, without values that contain its own id, such
    as its cache folder."""
    return facts_of(
        {
            name: {key: value for key, value in entry.items() if experiment_id not in str(value)}
            if isinstance(entry, Mapping)
            else entry
            for name, entry in environment.items()
        }
    )


def facts_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """Facts as texts by name: `versions.torch` and the like."""
    flat: dict[str, str] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": text_of(entry) for key, entry in value.items()}
        else:
            flat[name] = text_of(value)
    return flat


def text_of(value: Any) -> str:
    """A value as the table shows it; long ones are cut."""
    if value is None:
        return DASH
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)  # a data frame stores counts with missing values as floats
    if value and isinstance(value, list | tuple) and all(isinstance(entry, str) for entry in value):
        are_sentences = all(text.endswith(".") for text in value)
        value = (" " if are_sentences else ", ").join(value)
    written = value if isinstance(value, str) else json.dumps(value, default=str)
    return written if len(written) <= LONGEST else f"{written[:LONGEST]} ..."
