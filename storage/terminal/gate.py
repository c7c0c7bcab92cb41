"""The CI gate: finds the conditions of `--fail-if` that a comparison meets, with their numbers.

Each condition is checked for each backend. Without evidence a backend does not pass, because the
gate would otherwise be useless (docs/suites.md).
"""

from collections.abc import Callable, Iterator, Sequence

from breakeven.runner.arguments.conditions import SLOWER_THAN, Condition
from breakeven.runner.protocol.states import RunState
from breakeven.runner.texts import printable
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.numbers.formats import DASH, format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.intervals import sampling_margin
from breakeven.storage.statistics.parity import Parity
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.words.parity import parity_words, wrong_words

Judge = Callable[[Comparison, Result, Condition], str | None]
"""Why a backend meets a condition, with number and limit; None if it does not."""


def reasons(comparison: Comparison, conditions: Sequence[Condition]) -> list[str]:
    """One line for each condition that a backend meets, with run, number and limit."""
    across = [condition for condition in conditions if condition.name == SLOWER_THAN]
    conditions = [condition for condition in conditions if condition.name != SLOWER_THAN]
    failed = [reason for condition in across for reason in _slower_than(comparison, condition)]
    failed += [
        f"{run.label}: {condition}: beside {run.first_environment} {reason}"
        for condition in conditions
        for run in comparison.across
        if condition.name == "parity" and run.parity and (reason := _not_shown(run.parity))
    ]
    backends = [result for result in comparison.results if result.role == "backend"]
    if not backends:
        none = "the experiment has no backend to judge"
        return failed + [f"{condition}: {none}" for condition in conditions]
    return failed + [
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
    if backend.is_uncompiled:
        return "nothing was compiled, so there is no speed to compare"
    if backend.is_wrong:
        return f"its speed does not count, as its training is wrong: {wrong_words(backend)}"
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
    limit, first = 1 / (1 + condition.limit / 100), condition.environment
    for run in comparison.across:
        if run.speedup is None or run.speedup.high is None:
            yield f"{run.label}: {condition}: too few rounds are paired with {first}"
        elif run.speedup.high < limit:
            yield f"{run.label}: {condition}: speed {ratio_text(run.speedup)} of that in {first}"


def _parity(comparison: Comparison, backend: Result, condition: Condition) -> str | None:
    if comparison.spec.is_inference:
        return "forward passes have no loss to compare; the scenario accuracy compares answers"
    if backend.parity is None:
        return "it made no step to compare" if backend.state == RunState.FINISHED else None
    shown = _not_shown(backend.parity)
    return f"{shown}; {wrong_words(backend)}" if shown and backend.shortfall else shown


def _not_shown(parity: Parity) -> str | None:
    """Why a training is not shown to be the same, or as good; None if it is."""
    if parity.is_good:
        return None
    outcome = f"is {parity.verdict}"
    if not parity.is_wrong:
        outcome = f"could not be shown ({format_verdict(parity.verdict)})"
    ratios_by_name = {
        "band": METRICS["max_ratio_to_band"].format(parity.max_ratio_to_band),
        "interval": METRICS["max_ratio_to_interval"].format(parity.max_ratio_to_interval),
    }
    ratios = " and ".join(
        f"the {name} {ratio}" for name, ratio in ratios_by_name.items() if ratio != DASH
    )
    return f"it {outcome}: {parity_words(parity)}" + (
        f" (ratio to {ratios}, limit 1)" if ratios else ""
    )


def _accuracy(comparison: Comparison, backend: Result, condition: Condition) -> str | None:
    """Compares the accuracy of the last evaluation; for a task without accuracy, its loss."""
    baseline = comparison.baseline_of(backend.label)
    names = ("accuracy", "eval_loss")
    name = next(
        (candidate for candidate in names if baseline and baseline.value(candidate) is not None),
        None,
    )
    if baseline is None or name is None:
        return "the baseline has no evaluation to compare with"
    expected, reached = baseline.value(name), backend.value(name)
    if reached is None:
        return f"it has no {METRICS[name].title.lower()} to compare with the baseline's"
    quantity = "accuracy" if name == "accuracy" else "evaluation loss"
    readings = reversed(backend.parity.readings if backend.parity else ())
    last = next((reading for reading in readings if reading.quantity == quantity), None)
    if last is not None:
        return _worse(name, last.value, "equal trainings'", last.expected, last.limit)
    if name != "accuracy":
        return "without a control the effect of rounding on the loss is unknown"
    return _worse(
        name, reached, "the baseline's", expected, _sampling(comparison, expected, reached)
    )


def _worse(name: str, reached: float, whose: str, expected: float, limit: float) -> str | None:
    """A text if a number is worse by more than the limit; else None."""
    metric = METRICS[name]
    shortfall = expected - reached if metric.better == "higher" else reached - expected
    if shortfall <= limit:
        return None
    return (
        f"final {metric.title.lower()} {reached:.4g}, worse than {whose} {expected:.4g} by "
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


def _sampling(comparison: Comparison, expected: float, reached: float) -> float:
    """The difference of two accuracies that sampling explains."""
    spec = comparison.spec
    split = spec.evaluation.primary_split
    num_samples = {
        "train": spec.data.num_train_samples,
        "validation": spec.data.num_eval_samples,
        "test": spec.data.num_test_samples,
    }[split]
    return sampling_margin((expected + reached) / 2, max(1, num_samples))
