"""The CI gate: finds the conditions of `--fail-if` that a comparison meets, with their numbers.

Each condition is checked for each backend. Without evidence a backend does not pass, because the
gate would otherwise be useless (docs/suites.md).

For `--bisect-versions` it judges a version: whether it has a fault of the worst version, of which
both are compared with the same first environment.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from breakeven.runner.commands.conditions import SLOWER_THAN, Condition
from breakeven.runner.folders.states import RunState
from breakeven.runner.texts import printable
from breakeven.storage.comparison.results import Across, Comparison, Result
from breakeven.storage.errors import StoreError
from breakeven.storage.numbers.formats import DASH, format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.intervals import sampling_margin
from breakeven.storage.statistics.parity import Parity
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.terminal.environment_words import environment_sentences
from breakeven.storage.terminal.parity_words import parity_words

Judge = Callable[[Comparison, Result, Condition], str | None]
"""Why a backend meets a condition, with number and limit; None if it does not."""


def reasons(comparison: Comparison, conditions: Sequence[Condition]) -> list[str]:
    """One line for each condition that a backend meets, with run, number and limit."""
    across = [one for one in conditions if one.name == SLOWER_THAN]
    conditions = [one for one in conditions if one.name != SLOWER_THAN]
    found = [reason for condition in across for reason in _slower_than(comparison, condition)]
    found += [
        f"{one.label}: {condition}: beside {one.first_environment} {reason}"
        for condition in conditions
        for one in comparison.across
        if condition.name == "parity" and one.parity and (reason := _not_shown(one.parity))
    ]
    backends = [result for result in comparison.results if result.role == "backend"]
    if not backends:
        none = "the experiment has no backend to judge"
        return found + [f"{condition}: {none}" for condition in conditions]
    return found + [
        f"{backend.label}: {condition}: {reason}"
        for backend in backends
        for condition in conditions
        if (reason := JUDGES[condition.name](comparison, backend, condition)) is not None
    ]


def unfinished(comparison: Comparison) -> list[str]:
    """One line for each run that did not finish."""
    planned = comparison.spec.num_steps
    of_all = f" of {planned}" if planned else ""  # a script may have no planned number
    return [
        f"{result.label}: unfinished: its state is {result.state} after "
        f"{result.measured.num_steps}{of_all} steps"
        + (f": {printable(why)}" if (why := comparison.why_ended(result.label)) else "")
        for result in comparison.results
        if result.state != RunState.FINISHED
    ] + [
        f"{label}: unfinished: its run folder is missing or unreadable"
        for label in comparison.missing
    ]


def _slower(comparison: Comparison, backend: Result, condition: Condition) -> str | None:
    if backend.speedup is None or backend.speedup.high is None:
        return "too few rounds are paired with the baseline"
    if backend.speed_verdict != "slower":
        return None
    speedup = ratio_text(backend.speedup)
    margin = METRICS["noise_floor"].format(comparison.noise_floor)
    return f"speedup {speedup}, clearly below 1; noise floor {margin}"


def _slower_than(comparison: Comparison, condition: Condition) -> Iterator[str]:
    """A line for each run that is surely slower than the same run in another environment by more
    than the limit, or that cannot be compared with that run."""
    assert condition.limit is not None
    limit, first = 1 / (1 + condition.limit / 100), condition.of
    for one in comparison.across:
        if one.speedup is None or one.speedup.high is None:
            yield f"{one.label}: {condition}: too few rounds are paired with {first}"
        elif one.speedup.high < limit:
            yield f"{one.label}: {condition}: speed {ratio_text(one.speedup)} of that in {first}"


def _parity(comparison: Comparison, backend: Result, condition: Condition) -> str | None:
    if comparison.spec.is_inference:
        return "forward passes have no loss to compare; the scenario accuracy compares answers"
    return None if backend.parity is None else _not_shown(backend.parity)


def _not_shown(parity: Parity) -> str | None:
    """Why parity does not hold; None if it does."""
    if parity.verdict == "holds":
        return None
    outcome = "is broken"
    if parity.verdict != "broken":
        outcome = f"could not be shown ({format_verdict(parity.verdict)})"
    found = {
        "band": METRICS["max_ratio_to_band"].format(parity.max_ratio_to_band),
        "interval": METRICS["max_ratio_to_interval"].format(parity.max_ratio_to_interval),
    }
    ratios = " and ".join(f"the {name} {ratio}" for name, ratio in found.items() if ratio != DASH)
    return f"it {outcome}: {parity_words(parity)}" + (
        f" (ratio to {ratios}, limit 1)" if ratios else ""
    )


def _accuracy(comparison: Comparison, backend: Result, condition: Condition) -> str | None:
    """Compares the accuracy of the last evaluation; for a task without accuracy, its loss."""
    baseline = comparison.baseline_of(backend.label)
    names = ("accuracy", "eval_loss")
    name = next((one for one in names if baseline and baseline.value(one) is not None), None)
    if baseline is None or name is None:
        return "the baseline has no evaluation to compare with"
    theirs, mine = baseline.value(name), backend.value(name)
    if mine is None:
        return f"it has no {METRICS[name].title.lower()} to compare with the baseline's"
    quantity = "accuracy" if name == "accuracy" else "evaluation loss"
    readings = reversed(backend.parity.readings if backend.parity else ())
    last = next((one for one in readings if one.quantity == quantity), None)
    if last is not None:
        return _worse(name, last.value, "equal trainings'", last.expected, last.limit)
    if name != "accuracy":
        return "without a control the effect of rounding on the loss is unknown"
    return _worse(name, mine, "the baseline's", theirs, _sampling(comparison, theirs, mine))


def _worse(name: str, mine: float, whose: str, theirs: float, limit: float) -> str | None:
    """A text if a number is worse by more than the limit; else None."""
    metric = METRICS[name]
    shortfall = theirs - mine if metric.better == "higher" else mine - theirs
    if shortfall <= limit:
        return None
    return (
        f"final {metric.title.lower()} {mine:.4g}, worse than {whose} {theirs:.4g} by "
        f"{shortfall:.4g}; limit {limit:.4g}"
    )


def _compile(comparison: Comparison, backend: Result, condition: Condition) -> str | None:
    limit, seconds = condition.limit, backend.measured.compile_seconds
    assert limit is not None
    if seconds is None:
        has_compiled = backend.measured.graph_breaks is not None
        return "it has no steady step, so its latency is unknown" if has_compiled else None
    if seconds <= limit:
        return None
    return f"compile latency {seconds:.4g} s, limit {limit:.4g} s"


JUDGES: dict[str, Judge] = {
    "slower": _slower,
    "parity": _parity,
    "accuracy": _accuracy,
    "compile": _compile,
}


def _sampling(comparison: Comparison, theirs: float, mine: float) -> float:
    """The difference of two accuracies that sampling explains."""
    spec = comparison.spec
    split = spec.evaluation.primary_split
    num_samples = {
        "train": spec.data.num_train_samples,
        "validation": spec.data.num_eval_samples,
        "test": spec.data.num_test_samples,
    }[split]
    return sampling_margin((theirs + mine) / 2, max(1, num_samples))


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
        raise StoreError(f"{first}, with which versions are compared, failed: {reason}")


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
    if kind == "failure":  # A lost process says nothing about the version: a reboot ends it, too.
        is_lost = RunState.LOST in (now.state, before.state)
        return None if is_lost else _failed(now) and not _failed(before)
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
    return " ".join([*failed, *environment_sentences(found)])


def _failed(result: Result) -> bool:
    return RunState(result.state).is_failed
