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

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.correctness import Check
from breakeven.storage.comparison.plan import Plan, own_plan, time_to_loss
from breakeven.storage.comparison.results import IDENTITY, Comparison, Result
from breakeven.storage.comparison.warnings import ComparisonWarning
from breakeven.storage.investigation import Investigation
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.profile.explanation import Explanation
from breakeven.storage.profile.recorded_profiles import Profile
from breakeven.storage.words.answer_sentence import answer_words
from breakeven.storage.words.environments import environment_sentences
from breakeven.storage.words.findings import finding_words, remedy_words
from breakeven.storage.words.investigation import facts, issue
from breakeven.storage.words.known_causes import KnownCause, remedy_text
from breakeven.storage.words.parity import parity_words
from breakeven.storage.words.profile import bridge_words, profile_words, unprofiled_words

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
        "family": _family(comparison.spec),
        "runs": [
            _run(result, row)
            | {
                "reason": comparison.why_ended(result.label),
                "time_to_loss": time_to_loss(result, comparison.baseline_of(result.label)),
            }
            for result, row in zip(comparison.results, rows, strict=True)
        ],
        "warnings": [_warning(warning) for warning in comparison.warnings],
        "causes": [
            {
                "run": cause.label,
                "kind": cause.kind,
                "words": cause.words,
                "remedies": {
                    remedy_text(remedy): cause.command(remedy) for remedy in cause.remedies
                },
            }
            for cause in causes
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


def checks_json(experiment_id: str, checks: Iterable[Check]) -> str:
    """The checks of the scenario `accuracy` as JSON."""
    return _written({"experiment_id": experiment_id, "checks": [*checks]})


def investigation_json(investigation: Investigation, cause: KnownCause) -> str:
    """An investigation as JSON."""
    return _written(
        {
            "experiment_id": investigation.record.experiment_id,
            "investigates": investigation.investigated,
            "state": investigation.record.state,
            "words": cause.words,
            "facts": facts(investigation),
            "remedies": {remedy_text(remedy): cause.command(remedy) for remedy in cause.remedies},
            "finding": investigation.finding,
            "trials": investigation.trials,
            "issue": issue(investigation),
        }
    )


def explanation_json(explanation: Explanation) -> str:
    document = {
        "experiment_id": explanation.comparison.experiment_id,
        "name": explanation.comparison.spec.name,
        "why_not": None if explanation.is_known else unprofiled_words(explanation),
        "profiles": [_profile(profile) for profile in explanation.profiles],
        "bridges": [
            {
                "label": label,
                "words": str(bridge_words(bridge, explanation.own_speedups.get(label))),
                "difference": bridge.difference,
                "parts": bridge.parts,
                "own_speedup": explanation.own_speedups.get(label),
            }
            for label, bridge in explanation.bridges.items()
        ],
        "findings": [
            {
                **_fields(finding),
                "words": str(finding_words(finding)),
                "advice": remedy_words(finding),
            }
            for finding in explanation.findings
        ],
    }
    return _written(document)


def _family(spec: ExperimentSpec) -> dict[str, Any] | None:
    """The place of an experiment in its family, and the p-value that it needs there."""
    if spec.family_level is None:
        return None
    return {"name": spec.family, "place": spec.family_place, "level": spec.family_level}


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
        "device_warnings": [_warning(warning) for warning in result.device_warnings],
    }


def _plan(planned: Plan) -> dict[str, Any]:
    return {
        "num_steps": planned.num_steps,
        "starts": planned.starts,
        "compiling": planned.compiling,
        "best": planned.best and planned.best.label,
        "is_sure": planned.is_sure,
        "seconds": planned.totals,
        "joules": planned.joules,
        "compile_joules": planned.compile_joules,
        "choices": plain(planned.choices, NEVER),
    }


def _warning(warning: ComparisonWarning) -> dict[str, Any]:
    return {"kind": warning.kind, **_fields(warning), "words": str(warning.words())}


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
        return {str(name): plain(member, infinite) for name, member in value.items()}
    if isinstance(value, list | tuple | set | np.ndarray):
        return [plain(member, infinite) for member in value]
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
