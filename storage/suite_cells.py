"""The cells of a suite run, read from its experiments."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

from runner.accuracy_spec import Part
from storage import queries
from storage.comparison import compare
from storage.correctness import PASS, checks
from storage.errors import NotInStore
from storage.latency import cold_and_warm
from storage.results import Comparison, Result
from storage.store import Store
from storage.suite import Cell, Outcome


class _Kept(NamedTuple):
    revision: tuple[int, int]
    scenario: str
    outcomes: tuple[Outcome, ...]


_kept: WeakKeyDictionary[Store, dict[str, _Kept]] = WeakKeyDictionary()


def outcomes(store: Store, suite_run: str) -> list[Outcome]:
    """Every cell of a suite run, in the order in which they were queued; raises `NotInStore`.

    Of a cell that was asked for several times the latest experiment counts.
    """
    experiments = queries.suite_experiments(store, suite_run)
    if experiments.empty:
        raise NotInStore(f"no suite run {suite_run!r} in {store.data_dir.runs}")
    # By cell and scenario, so that what was queued again replaces what it repeats.
    latest: dict[tuple[Cell, str], Outcome] = {}
    for experiment_id in experiments["experiment_id"]:
        experiment = _of_experiment(store, experiment_id)
        for outcome in experiment.outcomes:
            latest[outcome.cell, experiment.scenario] = outcome
    together: dict[Cell, Outcome] = {}
    for outcome in latest.values():
        known = together.get(outcome.cell)
        together[outcome.cell] = outcome if known is None else _joined(known, outcome)
    return list(together.values())


def _joined(one: Outcome, other: Outcome) -> Outcome:
    """What two scenarios say of a cell."""
    told = {
        name: value
        for name, value in vars(other).items()
        if value not in (None, "") and name not in ("cell", "experiments", "is_over")
    }
    return replace(
        one,
        experiments={**one.experiments, **other.experiments},
        is_over=one.is_over and other.is_over,
        **told,
    )


def _of_experiment(store: Store, experiment_id: str) -> _Kept:
    """Kept until the store takes in something new of the experiment."""
    kept = _kept.setdefault(store, {})
    revision = queries.revision(store, experiment_id)
    known = kept.get(experiment_id)
    if known is None or known.revision != revision:
        comparison = compare(store, experiment_id)
        scenario = comparison.spec.scenario
        read = {"accuracy": _checked, "cache": _cached}.get(scenario, _timed)
        known = _Kept(revision, scenario, tuple(read(store, comparison)))
        kept[experiment_id] = known
    return known


def _outcome(comparison: Comparison, part: Part, backend: str, is_over: bool) -> Outcome:
    spec = comparison.spec
    model = spec.model.source.partition(":")[2] or spec.model.source
    return Outcome(
        cell=Cell(model, spec.training.precision, part, backend),
        experiments={spec.scenario: comparison.experiment_id},
        is_over=is_over,
    )


def _checked(store: Store, comparison: Comparison) -> Iterator[Outcome]:
    backends = _labels(comparison)
    for check in checks(store, comparison.experiment_id, comparison.spec):
        if check.label in backends:
            is_over = check.status is not None or check.state not in queries.OPEN_STATES
            plain = _outcome(comparison, check.part, check.label, is_over)
            passed = check.status == PASS
            yield replace(plain, status=check.status,
                          explanation="" if passed else check.explanation)  # fmt: skip


def _timed(store: Store, comparison: Comparison) -> Iterator[Outcome]:
    baseline = next((one for one in comparison.results if one.role == "baseline"), None)
    part: Part = "training" if comparison.spec.trains else "inference"
    for result in _backends(comparison):
        states = (result.state, baseline.state if baseline else result.state)
        is_over = not any(state in queries.OPEN_STATES for state in states)
        failure = _why_no_speed(baseline, result) if is_over else None
        yield replace(
            _outcome(comparison, part, result.label, is_over),
            speedup=None if failure else result.speedup,
            speed_verdict=None if failure else result.speed_verdict,
            compile_seconds=result.compile_seconds,
            memory_ratio=_memory_ratio(baseline, result),
            speed_failure=failure,
        )


def _cached(store: Store, comparison: Comparison) -> Iterator[Outcome]:
    known = {one.backend: one for one in cold_and_warm(store, comparison.experiment_id)}
    is_over = not any(result.state in queries.OPEN_STATES for result in comparison.results)
    for backend in comparison.spec.backends:
        found = known.get(backend)
        plain = _outcome(comparison, "training", backend, is_over)
        if found is not None:
            yield replace(plain, cold_seconds=found.cold_median, warm_seconds=found.warm_median)
        else:
            failed = [f"{one.label}: {one.state}" for one in comparison.results]
            why = f"no cold and warm process both ended well: {', '.join(failed)}"
            yield replace(plain, speed_failure=why if is_over else None)


def _backends(comparison: Comparison) -> Iterable[Result]:
    return (result for result in comparison.results if result.role == "backend")


def _labels(comparison: Comparison) -> set[str]:
    return {result.label for result in _backends(comparison)}


def _memory_ratio(baseline: Result | None, result: Result) -> float | None:
    """Baseline's peak over the backend's, both of steady steps."""
    if baseline is None or not baseline.peak_memory_bytes or not result.peak_memory_bytes:
        return None
    return baseline.peak_memory_bytes / result.peak_memory_bytes


def _why_no_speed(baseline: Result | None, result: Result) -> str | None:
    if result.state != "finished":
        return f"it did not finish: {result.state.replace('_', ' ')}"
    if baseline is None or baseline.state != "finished":
        state = "is missing" if baseline is None else f"did not finish: {baseline.state}"
        return f"the baseline {state}".replace("_", " ")
    return None if result.speedup is not None else "no round is paired with the baseline"
