"""Judges a version for a search: whether it has a fault of the worst version, of which both are
compared with the same first environment."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from breakeven.runner.commands.conditions import SLOWER_THAN, Condition
from breakeven.runner.folders.states import RunState
from breakeven.runner.texts import printable
from breakeven.storage.comparison.environments import Across
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.errors import StoreError
from breakeven.storage.terminal.environment_words import environment_headline

Kind = Literal["failure", "parity", "compile", "speed", "verdict"]
"""`speed` has a limit of the user; `verdict`, one that follows from the worst version's speed."""
Faults = Mapping[tuple[str | None, Kind], float]
"""The limits of faults, by backend and kind: 0 for kinds without a limit, not a number where the
speed is inconclusive."""
Verdict = Literal["good", "bad", "open"]


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Whether a version is bad, with the evidence."""

    verdict: Verdict
    words: str


def judge_environment(
    found: Comparison, worst: Comparison, conditions: Sequence[Condition]
) -> Judgement:
    """A version is bad if it surely has one of the worst version's faults, and good if it surely
    has none of them. Raises `StoreError` if the first environment's baseline failed."""
    results = {one.label: one for one in found.results}
    _require_first(found, results)
    sought = _sought(worst, conditions)
    faults = {fault for fault, has in _has_each(sought, worst).items() if has}
    has = _has_each({one: sought[one] for one in faults or sought}, found)
    verdict: Verdict = "good"
    if any(has.values()):
        verdict = "bad"
    elif not has or None in has.values():
        verdict = "open"
    return Judgement(verdict=verdict, words=_words(found, results))


def _require_first(found: Comparison, results: Mapping[str, Result]) -> None:
    first = found.baseline
    if _failed(results[first]):
        reason = printable(found.why_ended(first) or results[first].state)
        raise StoreError(f"{first} is what versions are compared with, and it failed: {reason}")


def _sought(found: Comparison, conditions: Sequence[Condition]) -> Faults:
    """What counts as a fault of the second environment, with limits: a run that fails, and what the
    conditions name, or else a broken parity and a lower speed."""
    limits = {one.name: one.limit for one in conditions}
    sought: dict[tuple[str | None, Kind], float] = {}
    for one in found.across:
        sought[one.backend, "failure"] = 0.0
        if (not conditions or "parity" in limits) and one.parity is not None:
            sought[one.backend, "parity"] = 0.0
        if (limit := limits.get("compile")) is not None and one.backend is not None:
            sought[one.backend, "compile"] = limit
        if (limit := limits.get(SLOWER_THAN)) is not None:
            sought[one.backend, "speed"] = 1 / (1 + limit / 100)
        elif not conditions and one.verdict == "slower" and one.speedup is not None:
            sought[one.backend, "verdict"] = math.sqrt(one.speedup.median)  # half of the loss
        elif not conditions and one.verdict == "unsure":
            sought[one.backend, "verdict"] = math.nan
    return sought


def _has_each(faults: Faults, found: Comparison) -> dict[tuple[str | None, Kind], bool | None]:
    results = {one.label: one for one in found.results}
    by_backend = {one.backend: one for one in found.across}
    return {(backend, kind): _has(kind, limit, by_backend[backend], results)
            for (backend, kind), limit in faults.items()}  # fmt: skip


def _has(kind: Kind, limit: float, one: Across, results: Mapping[str, Result]) -> bool | None:
    """Whether a run has a fault that the first environment lacks; None if that is not known."""
    before, now = (results[label] for label in one.both)
    if kind == "failure":
        return _failed(now) and not _failed(before)
    if kind == "parity":
        if before.parity is not None and before.parity.verdict == "broken":
            return False
        known = {"broken": True, "holds": False}
        return None if one.parity is None else known.get(one.parity.verdict)
    if kind == "compile":
        if one.first_compile_seconds is not None and one.first_compile_seconds > limit:
            return False
        return None if one.compile_seconds is None else one.compile_seconds > limit
    if one.speedup is None or one.speedup.low is None or one.speedup.high is None:
        return None
    if math.isnan(limit):  # no speed is known to be a fault
        return None
    if one.speedup.low <= limit <= one.speedup.high:
        return None
    is_below = one.speedup.high < limit
    if is_below and kind == "verdict" and one.verdict != "slower":
        return None  # Two equal runs differ by as much.
    return is_below


def _words(found: Comparison, results: Mapping[str, Result]) -> str:
    failed = [
        f"{one.label} failed: {printable(found.why_ended(one.label) or 'no reason is known')}."
        for one in found.across
        if _failed(results[one.label])
    ]
    headline = environment_headline(found.across, is_inference=found.spec.is_inference)
    return " ".join([*failed, headline])


def _failed(result: Result) -> bool:
    return RunState(result.state).is_failed
