"""The CI gate: which conditions of `--fail-if` a comparison meets, and by which numbers.

Only backends are judged, each run by each condition. What could not be shown does not pass: a gate
that opens for want of evidence guards nothing (docs/ci-gate.md).
"""

from collections.abc import Callable, Iterator, Sequence

from runner.conditions import Condition
from runner.run_dir import RunState
from storage.metrics import METRICS
from storage.parity import LOSS_FLOORS, SAFETY_FACTORS, sampling_margin
from storage.results import SCORES, Comparison, Result

Judge = Callable[[Comparison, Result, Condition], str | None]
"""Why a backend meets a condition, with number and limit; None if it does not."""


def reasons(comparison: Comparison, conditions: Sequence[Condition]) -> list[str]:
    """One line for each backend and condition that it meets, naming run, number and limit."""
    backends = [result for result in comparison.results if result.role == "backend"]
    if not backends:
        return [f"{condition}: the experiment has no backend to judge" for condition in conditions]
    return [
        f"{backend.label}: {condition}: {reason}"
        for backend in backends
        for condition in conditions
        if (reason := JUDGES[condition.name](comparison, backend, condition)) is not None
    ]


def unfinished(comparison: Comparison) -> list[str]:
    """One line for each run that did not finish."""
    return [
        f"{result.label}: unfinished: its state is {result.state} after {result.num_steps} of "
        f"{comparison.spec.num_steps} steps"
        for result in comparison.results
        if result.state != RunState.FINISHED
    ]


def _slower(comparison: Comparison, backend: Result, condition: Condition) -> str | None:
    if backend.speed_verdict != "slower" or backend.speedup is None:
        return None
    speedup, low, high = (
        METRICS["speedup"].format(value)
        for value in (backend.speedup.median, backend.speedup.low, backend.speedup.high)
    )
    margin = METRICS["noise_floor"].format(comparison.noise_floor)
    return f"speedup {speedup} ({low} to {high}), clearly below 1; noise floor {margin}"


def _parity(comparison: Comparison, backend: Result, condition: Condition) -> str | None:
    parity = backend.parity
    if comparison.spec.is_inference:
        return "forward passes have no loss to compare; the scenario accuracy compares answers"
    if parity is None or parity.verdict == "holds":
        return None
    ratio = METRICS["max_ratio_to_band"].format(parity.max_ratio_to_band)
    said = "is broken" if parity.verdict == "broken" else f"could not be shown ({parity.verdict})"
    return f"it {said}: {parity.reason} (largest ratio to the band {ratio}, limit 1)"


def _accuracy(comparison: Comparison, backend: Result, condition: Condition) -> str | None:
    baseline = _find(comparison, "baseline")
    name = next(iter(_scores(baseline)), None) if baseline is not None else None
    if baseline is None or name is None:
        return "the baseline has no evaluation to compare with"
    theirs, mine = _scores(baseline)[name], _scores(backend).get(name)
    if mine is None:
        return f"it has no {name} to compare with the baseline's"
    allowed = _allowed(comparison, name, theirs, mine)
    if allowed is None:
        return f"without a control nobody knows how far rounding alone moves {name}"
    loss = theirs - mine if METRICS[name].better == "higher" else mine - theirs
    if loss <= allowed:
        return None
    return (
        f"final {name} {mine:.4g}, worse than the baseline's {theirs:.4g} by {loss:.4g}; "
        f"limit {allowed:.4g}"
    )


def _compile(comparison: Comparison, backend: Result, condition: Condition) -> str | None:
    limit, seconds = condition.limit_seconds, backend.compile_seconds
    assert limit is not None
    if seconds is None:
        has_compiled = backend.graph_breaks is not None
        return "it compiled, but no step without compiling tells how long" if has_compiled else None
    if seconds <= limit:
        return None
    return f"compile latency {seconds:.4g} s, limit {limit:.4g} s"


JUDGES: dict[str, Judge] = {
    "slower": _slower,
    "parity": _parity,
    "accuracy": _accuracy,
    "compile": _compile,
}


def _find(comparison: Comparison, role: str) -> Result | None:
    return next((result for result in comparison.results if result.role == role), None)


def _scores(result: Result) -> dict[str, float]:
    """Final scores of a run that are defined, the one that judges its task first."""
    return {name: score for name, score in _named_scores(result) if score is not None}


def _named_scores(result: Result) -> Iterator[tuple[str, float | None]]:
    yield "accuracy", result.accuracy
    for name in SCORES:
        yield name, result.metrics.get(name)


def _allowed(comparison: Comparison, name: str, theirs: float, mine: float) -> float | None:
    """How much worse rounding and sampling alone may make a final score; None if unknown.

    Rounding: as for losses, a multiple of what the control differs by. Sampling, which only an
    accuracy has a rule for: two standard errors of the difference of two shares.
    """
    spec, control = comparison.spec, _find(comparison, "control")
    sampling: float | None = None
    if name == "accuracy":
        split = next(iter(spec.evaluation.splits), "validation")
        num_samples = {
            "train": spec.data.num_train_samples,
            "validation": spec.data.num_eval_samples,
            "test": spec.data.num_test_samples,
        }[split]
        sampling = sampling_margin((theirs + mine) / 2, max(1, num_samples))
    perturbed = None if control is None else _scores(control).get(name)
    if perturbed is None:
        return sampling
    least = LOSS_FLOORS[spec.training.precision] * abs(theirs)
    return max(
        sampling or 0.0,
        SAFETY_FACTORS[spec.training.precision] * max(least, abs(perturbed - theirs)),
    )
