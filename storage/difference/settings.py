"""What differs between experiments: of their settings, their machines and software, their data."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import fields_of
from breakeven.storage.difference.sides import Side
from breakeven.storage.numbers.formats import DASH

Kind = Literal["setting", "environment", "data"]
LEFT_OUT = ("name", "suite_run", "fallback_of", "replay_of")
"""Settings that say who an experiment is, not what it does."""
LONGEST = 200
"""Characters of a value that are shown."""


@dataclass(frozen=True, kw_only=True)
class Differing:
    """Something that is not the same on all sides."""

    kind: Kind
    name: str
    values: tuple[str, ...]
    """One for each side, as text; a dash where nothing is known."""


def differing(sides: Sequence[Side]) -> list[Differing]:
    """Everything that is not the same on all sides, and nothing else."""
    found: list[Differing] = []
    kinds: tuple[tuple[Kind, list[dict[str, str]]], ...] = (
        ("setting", [settings_of(side.spec) for side in sides]),
        ("environment", [environment_of(side.environment, side.experiment_id) for side in sides]),
        ("data", [facts_of(side.workload) for side in sides]),
    )
    for kind, told in kinds:
        found += [Differing(kind=kind, name=name, values=values)
                  for name, values in unequal(told)]  # fmt: skip
    return found


def unequal(told: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each name of which not all say the same, with what each says; a dash for nothing."""
    for name in dict.fromkeys(name for one in told for name in one):
        values = tuple(one.get(name, DASH) for one in told)
        if len(set(values)) > 1:
            yield name, values


def settings_of(spec: ExperimentSpec) -> dict[str, str]:
    """Every setting that says what an experiment does, as text, by its path."""
    return {
        field.path: _text(field.value_in(spec))
        for field in fields_of(ExperimentSpec)
        if field.path not in LEFT_OUT
    }


def environment_of(environment: Mapping[str, Any], experiment_id: str) -> dict[str, str]:
    """Machine and software of a run, as texts by name, without what names the run itself."""
    return facts_of(_own(environment, experiment_id))


def _own(environment: Mapping[str, Any], experiment_id: str) -> dict[str, Any]:
    """Without what names the run itself, such as its cache folder."""
    return {
        name: {key: value for key, value in entry.items() if experiment_id not in str(value)}
        if isinstance(entry, Mapping)
        else entry
        for name, entry in environment.items()
    }


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
