"""The experiments that are held against each other, each as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.index.store import Store

LETTERS = "ABCDEFGH"
MAX_SIDES = len(LETTERS)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One experiment; the first of several is what the others are compared with."""

    letter: str
    """What it is called beside the others."""
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
