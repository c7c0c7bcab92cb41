"""Writes a comparison or an explanation as JSON with all digits, from the objects that pages show.

docs/suites.md describes the format.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd

from breakeven.storage.comparison.caution import Caution
from breakeven.storage.comparison.correctness import Check
from breakeven.storage.comparison.plan import Plan, own_plan
from breakeven.storage.comparison.results import IDENTITY, Comparison, Result
from breakeven.storage.investigation import Investigation
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.profile.explanation import Explanation
from breakeven.storage.profile.profiles import Profile
from breakeven.storage.terminal.causes import KnownCause, remedy_text
from breakeven.storage.terminal.caution_words import caution_words
from breakeven.storage.terminal.environment_words import environment_sentences
from breakeven.storage.terminal.finding_words import (
    bridge_words,
    finding_words,
    profile_words,
    remedy_words,
    unprofiled_words,
)
from breakeven.storage.terminal.investigation_words import facts, issue
from breakeven.storage.terminal.parity_words import parity_words
from breakeven.storage.terminal.plan_words import answer_words

INFINITE, NAN, NEVER = "infinite", "nan", "never"
"""Texts for numbers that JSON lacks; an infinite break-even is `NEVER`."""


def comparison_json(
    comparison: Comparison,
    latencies: Iterable[Any] = (),
    planned: Plan | None = None,
    causes: Iterable[KnownCause] = (),
) -> str:
    """A comparison as JSON; `latencies`: the results of compared compile caches by backend;
    `planned`: by default for the experiment's own length."""
    planned = planned or own_plan(comparison)
    rows = comparison.table().to_dict("records")
    document = {
        "experiment_id": comparison.experiment_id,
        "name": comparison.spec.name,
        "baseline": comparison.baseline,
        "noise_floor": comparison.noise_floor,
        "runs": [
            _run(one, row) | {"reason": comparison.why_ended(one.label)}
            for one, row in zip(comparison.results, rows, strict=True)
        ],
        "warnings": [_caution(one) for one in comparison.warnings],
        "notes": [_caution(one) for one in comparison.notes],
        "causes": [
            {
                "run": one.label,
                "kind": one.kind,
                "words": one.words,
                "remedies": {remedy_text(remedy): one.command(remedy) for remedy in one.remedies},
            }
            for one in causes
        ],
        "caches": [*latencies],
        "answer": planned.answer
        and {**_fields(planned.answer), "words": str(answer_words(planned))},
        "plan": None if planned.num_steps is None else _plan(planned),
        "environments": {
            "words": " ".join(environment_sentences(comparison)),
            "runs": [*comparison.across],
        },
    }
    return _written(document)


def checks_json(experiment_id: str, found: Iterable[Check]) -> str:
    """The checks of the scenario `accuracy` as JSON."""
    return _written({"experiment_id": experiment_id, "checks": [*found]})


def investigation_json(found: Investigation, cause: KnownCause) -> str:
    """An investigation as JSON."""
    return _written(
        {
            "experiment_id": found.record.experiment_id,
            "investigates": found.investigated,
            "state": found.record.state,
            "words": cause.words,
            "facts": facts(found),
            "remedies": {remedy_text(one): cause.command(one) for one in cause.remedies},
            "finding": found.finding,
            "trials": found.trials,
            "issue": issue(found),
        }
    )


def explanation_json(found: Explanation) -> str:
    document = {
        "experiment_id": found.comparison.experiment_id,
        "name": found.comparison.spec.name,
        "why_not": None if found.is_known else unprofiled_words(found),
        "profiles": [_profile(one) for one in found.profiles],
        "bridges": [
            {
                "label": label,
                "words": str(bridge_words(one, found.own_speedups.get(label))),
                "difference": one.difference,
                "parts": one.parts,
                "own_speedup": found.own_speedups.get(label),
            }
            for label, one in found.bridges.items()
        ],
        "findings": [
            {**_fields(one), "words": str(finding_words(one)), "advice": remedy_words(one)}
            for one in found.findings
        ],
    }
    return _written(document)


def _run(result: Result, row: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: value for name, value in row.items() if name not in IDENTITY}
    never = {name for name in METRICS if "break_even" in name}
    parity = result.parity
    return {
        "run_id": result.run_id,
        **{name: row[name] for name in IDENTITY},
        "numbers": {
            name: plain(value, NEVER if name in never else INFINITE)
            for name, value in numbers.items()
        },
        "speedup": result.speedup,
        "more_rounds": result.more_rounds,
        "break_even": plain(result.break_even, NEVER),
        "energy": plain(result.energy, NEVER),
        "parity": parity and {**_fields(parity), "words": str(parity_words(parity))},
        "shortfall": result.shortfall,
        "device_doubts": [_caution(one) for one in result.device_doubts],
    }


def _plan(planned: Plan) -> dict[str, Any]:
    return {
        "num_steps": planned.num_steps,
        "best": planned.best and planned.best.label,
        "is_sure": planned.is_sure,
        "seconds": planned.totals,
        "joules": planned.joules,
        "compile_joules": planned.compile_joules,
        "choices": plain(planned.choices, NEVER),
    }


def _caution(caution: Caution) -> dict[str, Any]:
    return {**_fields(caution), "words": str(caution_words(caution))}


def _profile(profile: Profile) -> dict[str, Any]:
    document = {"label": profile.label, "step_seconds": profile.step_seconds}
    if not profile.is_known:
        return {**document, "failures": profile.failures, "why_not": str(profile_words(profile))}
    return {
        **document,
        "busy_seconds": profile.busy_seconds,
        "idle_seconds": profile.idle_seconds,
        "by_class": profile.by_class.to_dict(),
        "unknown_share": profile.unknown_share,
        "unknown_kernels": profile.unknown_kernels,
        "cost_seconds": profile.cost_seconds,
        "kernels": profile.kernels,
        "failures": profile.failures,
    }


def _written(document: Mapping[str, Any]) -> str:
    return json.dumps(plain(document), indent=1, allow_nan=False)


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def plain(value: Any, infinite: str = INFINITE) -> Any:
    """The value in types of JSON; undefined values, and missing ones in tables, are null."""
    if is_dataclass(value) and not isinstance(value, type):
        value = _fields(value)
    if isinstance(value, pd.DataFrame):
        value = value.astype(object).where(value.notna(), None).to_dict("records")
    if isinstance(value, Mapping):
        return {str(name): plain(one, infinite) for name, one in value.items()}
    if isinstance(value, list | tuple | set | np.ndarray):
        return [plain(one, infinite) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isinf(value):
        return infinite if value > 0 else f"-{infinite}"
    if isinstance(value, float) and math.isnan(value):
        return NAN
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    return value if isinstance(value, bool | int | float | str) else str(value)
