"""The experiments that are held against each other, each as a whole."""

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
    """One experiment; the first of several is what the others are compared with."""

    letter: str
    """Its name among the sides."""
    experiment_id: str
    name: str
    submitted: Any
    """A UTC timestamp, or NaT."""
    comparison: Comparison
    environment: dict[str, Any]
    """What its first run that says anything says of machine and software."""
    workload: dict[str, Any]
    """The same of model and data."""

    @property
    def spec(self) -> ExperimentSpec:
        return self.comparison.spec

    def result(self, label: str) -> Result | None:
        """What a backend, or baseline or control, shows here."""
        return next((one for one in self.comparison.results if one.label == label), None)


def load_sides(store: Store, experiment_ids: Sequence[str]) -> list[Side]:
    """The sides, in this order, each once and at most `MAX_SIDES`; raises `NotInStore`."""
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
    """What is lined up: every backend that any side has, in the order of the sides."""
    found = [one.label for side in sides for one in side.comparison.results
             if one.role == "backend"]  # fmt: skip
    return list(dict.fromkeys(found))


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
    """Weights and data are the same if their hashes are; unknown if a run recorded no hash."""
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


LEFT_OUT = ("name", "suite_run", "fallback_of", "replay_of", "confirms")
"""Settings that say who an experiment is, not what it does."""
LONGEST = 200
"""Characters of a value that are shown."""


@dataclass(frozen=True, kw_only=True)
class Differing:
    """Something that is not the same on all sides."""

    kind: str
    name: str
    values: tuple[str, ...]
    """One for each side, as text; a dash where nothing is known."""


def differing(sides: Sequence[Side]) -> list[Differing]:
    """Everything that is not the same on all sides, and nothing else."""
    kinds = (
        ("setting", [settings_of(side.spec) for side in sides]),
        ("environment", [environment_of(side.environment, side.experiment_id) for side in sides]),
        ("data", [facts_of(side.workload) for side in sides]),
    )
    return [one for kind, facts in kinds for one in unequal(kind, facts)]


def unequal(kind: str, facts: Sequence[Mapping[str, str]]) -> Iterator[Differing]:
    """Each name of which not all say the same."""
    for name in dict.fromkeys(name for one in facts for name in one):
        values = tuple(one.get(name, DASH) for one in facts)
        if len(set(values)) > 1:
            yield Differing(kind=kind, name=name, values=values)


def settings_of(spec: ExperimentSpec) -> dict[str, str]:
    """Every setting that says what an experiment does, as text, by its path."""
    return {
        field.path: _text(field.value_in(spec))
        for field in fields_of(ExperimentSpec)
        if field.path not in LEFT_OUT
    }


def environment_of(environment: Mapping[str, Any], experiment_id: str) -> dict[str, str]:
    """Machine and software of a run, as texts by name, without what names the run itself,
    such as its cache folder."""
    return facts_of({
        name: {key: value for key, value in entry.items() if experiment_id not in str(value)}
        if isinstance(entry, Mapping)
        else entry
        for name, entry in environment.items()
    })  # fmt: skip


def facts_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """Facts as texts by name: `versions.torch` and the like."""
    flat: dict[str, str] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": _text(entry) for key, entry in value.items()}
        else:
            flat[name] = _text(value)
    return flat


def _text(value: Any) -> str:
    if value is None:
        return DASH
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)  # a data frame with missing counts holds floats
    written = value if isinstance(value, str) else json.dumps(value, default=str)
    return written if len(written) <= LONGEST else f"{written[:LONGEST]} ..."
