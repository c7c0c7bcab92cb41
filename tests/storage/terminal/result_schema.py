"""The JSON Schema of `--json`, from the types. To write docs/result.schema.json again:

python -m tests.storage.terminal.result_schema
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.follow_ups import Finding
from breakeven.storage.comparison.answer_decision import Answer
from breakeven.storage.comparison.cold_and_warm import ColdWarm
from breakeven.storage.comparison.correctness import Check
from breakeven.storage.comparison.device_warnings import DISTURBANCES, Disturbed
from breakeven.storage.comparison.energy import EnergySaving
from breakeven.storage.comparison.plan import Compiling, TimeToLoss
from breakeven.storage.comparison.results import SCORES, VALUES, Across, Choice
from breakeven.storage.comparison.run_numbers import RunNumbers
from breakeven.storage.comparison.shortfall import Shortfall
from breakeven.storage.comparison.warnings import classes_of_warnings, kind_of
from breakeven.storage.investigation import Trial
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.break_even import BreakEven, BreakEvenVerdict
from breakeven.storage.statistics.outcomes import LossCheck
from breakeven.storage.statistics.parity import Parity, ParityVerdict
from breakeven.storage.statistics.speedups import Ratio, SpeedVerdict
from breakeven.storage.terminal.as_json import INFINITE, NAN, NEVER

FILE = Path(__file__).parents[3] / "docs" / "result.schema.json"
Schema = dict[str, Any]
NUMBER = {"anyOf": [{"type": "number"}, {"enum": [NEVER, INFINITE, f"-{INFINITE}", NAN]}]}
SIMPLE: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"$ref": "#/$defs/number"},
    NoneType: {"type": "null"},
    Any: {},
}
WORDS = {"words": str}
"""Sentences that stand beside the facts."""
VERDICTS: dict[str, Any] = {
    "speed_verdict": SpeedVerdict,
    "break_even_verdict": BreakEvenVerdict,
    "parity": ParityVerdict,
    "training_loss_check": LossCheck,
}


class Writer:
    """Collects the definitions of classes."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {"number": NUMBER}

    def for_type(self, hint: Any) -> Schema:
        """The schema of a type; a mapping of names to types is an object with these fields."""
        if isinstance(hint, dict):
            return self._object(hint)
        if hint in SIMPLE:
            return SIMPLE[hint]
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self.for_type(inner[0])
        if origin is Literal:
            return {"enum": list(inner)}
        if origin in (Union, UnionType):
            return {"anyOf": [self.for_type(part) for part in inner]}
        if origin in (tuple, list, Sequence):
            return {"type": "array", "items": self.for_type(inner[0])}
        if origin in (dict, Mapping):
            return {"type": "object", "additionalProperties": self.for_type(inner[1])}
        if isinstance(hint, type) and issubclass(hint, Enum):
            return {"enum": [entry.value for entry in hint]}
        assert is_dataclass(hint), hint
        return self._definition(hint.__name__, fields_of(hint))

    def _definition(self, name: str, members: Mapping[str, Any]) -> Schema:
        if name not in self.definitions:
            self.definitions[name] = {}  # A class may have members of its own class.
            self.definitions[name] = self._object(members)
        return {"$ref": f"#/$defs/{name}"}

    def _object(self, members: Mapping[str, Any]) -> Schema:
        properties = {name: self.for_type(hint) for name, hint in members.items()}
        return {"type": "object", "properties": properties, "required": [*members]}

    def warnings(self) -> Schema:
        """Any warning; that of disturbances names the kind of the disturbance as its own."""
        classes = {kind: fields_of(kind) for kind in classes_of_warnings() if kind is not Disturbed}
        classes |= {kind: fields_of(Disturbed) | {"runs": dict[str, kind]} for kind in DISTURBANCES}
        ours = (kind for kind in classes if kind.__module__.startswith("breakeven."))
        return {"anyOf": [self._warning(kind, classes[kind]) for kind in sorted(ours, key=kind_of)]}

    def _warning(self, kind: type, members: Mapping[str, Any]) -> Schema:
        made = self.for_type({**members, **WORDS})
        made["properties"]["kind"] = {"const": kind_of(kind)}
        made["required"].append("kind")
        self.definitions[f"warning {kind_of(kind)}"] = made
        return {"$ref": f"#/$defs/warning%20{kind_of(kind)}".replace(" ", "%20")}

    def numbers(self) -> Schema:
        """Every number of a run; a task may have further scores."""
        of_run = get_type_hints(RunNumbers)
        made = self._object(
            {name: VERDICTS.get(name, of_run.get(name, float)) | None for name in VALUES}
        )
        for name, member in made["properties"].items():
            member["description"] = METRICS[name].axis_title
        made["properties"] |= {name: self.for_type(float | None) for name in SCORES}
        return made


def fields_of(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def schema() -> Schema:
    """The schema of what `run`, `compare` and `show` print as JSON."""
    writer = Writer()
    writer.definitions["warning"] = writer.warnings()
    run = {
        "run_id": str,
        "label": str,
        "role": Literal["baseline", "control", "backend"],
        "backend": str | None,
        "state": RunState,
        "reason": str | None,
        "speedup": Ratio | None,
        "more_rounds": int | None,
        "break_even": BreakEven | None,
        "energy": EnergySaving | None,
        "shortfall": Shortfall | None,
        "time_to_loss": TimeToLoss | None,
    }
    plan = {
        "num_steps": int | float,
        "starts": int,
        "compiling": dict[str, Compiling],
        "best": str | None,
        "is_sure": bool,
        "seconds": dict[str, float],
        "joules": dict[str, float],
        "compile_joules": dict[str, float],
        "choices": tuple[Choice, ...],
    }
    cause = {"run": str, "kind": str, "words": str, "remedies": dict[str, str | None]}
    comparison = {
        "experiment_id": str,
        "name": str,
        "baseline": str,
        "noise_floor": float | None,
        "environments": {"words": str, "runs": tuple[Across, ...]},
        "caches": tuple[ColdWarm, ...],
    }
    of_run = writer.for_type(run)
    of_run["properties"] |= {
        "numbers": writer.numbers(),
        "parity": _or_null(writer.for_type(fields_of(Parity) | WORDS)),
        "device_warnings": {"type": "array", "items": {"$ref": "#/$defs/warning"}},
    }
    of_run["required"] = [*of_run["properties"]]
    result = writer.for_type(comparison)
    result["properties"] |= {
        "family": _or_null(writer.for_type({"name": str, "place": int, "level": float})),
        "runs": {"type": "array", "items": of_run},
        "warnings": {"type": "array", "items": {"$ref": "#/$defs/warning"}},
        "causes": {"type": "array", "items": writer.for_type(cause)},
        "answer": _or_null(writer.for_type(fields_of(Answer) | WORDS)),
        "plan": _or_null(writer.for_type(plan)),
    }
    result["required"] = [*result["properties"]]
    checks = writer.for_type({"experiment_id": str, "checks": tuple[Check, ...]})
    investigation = writer.for_type(
        {
            "experiment_id": str,
            "investigates": str,
            "state": RunState,
            "words": str,
            "facts": tuple[str, ...],
            "remedies": dict[str, str | None],
            "finding": Finding,
            "trials": tuple[Trial, ...],
            "issue": str,
        }
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Result of breakeven run, compare and show, as JSON",
        "description": "docs/suites.md says what the fields mean; new versions may add fields.",
        "oneOf": [result, checks, investigation],
        "$defs": writer.definitions,
    }


def _or_null(usual: Schema) -> Schema:
    return {"anyOf": [usual, {"type": "null"}]}


def strict(part: Any) -> Any:
    """The same schema, which refuses fields that it does not name."""
    if isinstance(part, list):
        return [strict(entry) for entry in part]
    if not isinstance(part, dict):
        return part
    closed = {name: strict(entry) for name, entry in part.items()}
    if "required" in closed and "additionalProperties" not in closed:
        closed["additionalProperties"] = False
    return closed


def text() -> str:
    """One line for each class."""
    document = schema()
    classes = document.pop("$defs")
    lines = [f'  "{name}": {json.dumps(definition)}' for name, definition in classes.items()]
    parts = [f' "{name}": {json.dumps(value)}' for name, value in document.items()]
    return "{\n" + ",\n".join([*parts, ' "$defs": {\n' + ",\n".join(lines) + "\n }"]) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text())
