"""What differs between experiments: of their settings, their machines and software, their data."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from runner.commands.options import spec_options
from storage.difference.sides import Side
from storage.numbers.formats import DASH

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
        ("setting", [_settings(side) for side in sides]),
        ("environment", [_flat(_own(side.environment, side.experiment_id)) for side in sides]),
        ("data", [_flat(side.workload) for side in sides]),
    )
    for kind, told in kinds:
        for name in dict.fromkeys(name for one in told for name in one):
            values = tuple(one.get(name, DASH) for one in told)
            if len(set(values)) > 1:
                found.append(Differing(kind=kind, name=name, values=values))
    return found


def _settings(side: Side) -> dict[str, str]:
    return {
        option.path: _text(option.value_in(side.spec))
        for option in spec_options()
        if option.path not in LEFT_OUT
    }


def _own(environment: Mapping[str, Any], experiment_id: str) -> dict[str, Any]:
    """Without what names the run itself, such as its cache folder."""
    return {
        name: {key: value for key, value in entry.items() if experiment_id not in str(value)}
        if isinstance(entry, Mapping)
        else entry
        for name, entry in environment.items()
    }


def _flat(facts: Mapping[str, Any]) -> dict[str, str]:
    """`versions.torch` and the like."""
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
