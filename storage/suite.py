"""A suite run: what each model comes to under each backend, and what they come to together.

`docs/metrics.md` defines the numbers. Nothing is clipped, no failure is left out silently.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

from runner.accuracy_spec import Part
from storage import queries
from storage.comparison import compare
from storage.correctness import PASS, checks
from storage.errors import NotInStore
from storage.latency import cold_and_warm
from storage.results import Comparison, Result
from storage.statistics import Ratio, SpeedVerdict
from storage.store import Store
from storage.summary import geometric_mean


class Cell(NamedTuple):
    """What is compared between suite runs: a model under a backend, under the same conditions."""

    model: str
    """As its suite calls it; with a stroke and a number where it was made smaller."""
    precision: str
    part: Part
    backend: str
    """Label of the run."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What is known of a cell, of all its scenarios. None is not known, or was not asked for."""

    cell: Cell
    experiment_ids: tuple[str, ...]
    """Where it comes from, a scenario each."""
    is_over: bool
    status: str | None = None
    """Of the accuracy check, in the harness's words."""
    explanation: str = ""
    """Why the check did not pass."""
    speedup: Ratio | None = None
    speed_verdict: SpeedVerdict | None = None
    compile_seconds: float | None = None
    memory_ratio: float | None = None
    cold_seconds: float | None = None
    warm_seconds: float | None = None
    speed_failure: str | None = None
    """Why there is no speed, though one was asked for."""

    @property
    def failure(self) -> str | None:
        """Why the cell gives no speedup that may be averaged: what computes something else has no
        speed. None where it gives one, or where none was asked for."""
        wrong = self.status is not None and self.status != PASS
        if wrong and (self.speedup is not None or self.speed_failure is not None):
            return f"the accuracy check says {self.status}"
        return self.speed_failure

    @property
    def counted_speedup(self) -> float | None:
        return None if self.failure or self.speedup is None else self.speedup.median


@dataclass(frozen=True, kw_only=True)
class Group:
    """All models under one backend in one precision and part: a row of the summary."""

    backend: str
    precision: str
    part: Part
    outcomes: tuple[Outcome, ...]

    @property
    def num_checked(self) -> int:
        return sum(one.status is not None for one in self.outcomes)

    @property
    def num_passed(self) -> int:
        return sum(one.status == PASS for one in self.outcomes)

    @property
    def pass_rate(self) -> float | None:
        return self.num_passed / self.num_checked if self.num_checked else None

    @property
    def speedups(self) -> dict[str, float]:
        """What counts, by model."""
        return {
            one.cell.model: speedup
            for one in self.outcomes
            if (speedup := one.counted_speedup) is not None
        }

    @property
    def geomean_speedup(self) -> float | None:
        return geometric_mean(self.speedups.values())

    @property
    def failures(self) -> dict[str, str]:
        """Models without a speed that counts, and why."""
        return {one.cell.model: one.failure for one in self.outcomes if one.failure}

    @property
    def mean_compile_seconds(self) -> float | None:
        known = [one.compile_seconds for one in self.outcomes if one.compile_seconds is not None]
        return sum(known) / len(known) if known else None

    @property
    def memory_ratio(self) -> float | None:
        known = [one.memory_ratio for one in self.outcomes if one.memory_ratio is not None]
        return geometric_mean(known)

    @property
    def compile_time_saved(self) -> float | None:
        pairs = [
            (one.cold_seconds, one.warm_seconds)
            for one in self.outcomes
            if one.cold_seconds and one.warm_seconds is not None
        ]
        return (
            1 - sum(warm for _, warm in pairs) / sum(cold for cold, _ in pairs) if pairs else None
        )

    @property
    def num_open(self) -> int:
        return sum(not one.is_over for one in self.outcomes)


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


def groups(found: Sequence[Outcome]) -> list[Group]:
    """One for each backend, precision and part, in the order of the outcomes."""
    keys = dict.fromkeys((one.cell.backend, one.cell.precision, one.cell.part) for one in found)
    return [
        Group(
            backend=backend,
            precision=precision,
            part=part,
            outcomes=tuple(o for o in found if o.cell[1:] == (precision, part, backend)),
        )
        for backend, precision, part in keys
    ]


def _joined(one: Outcome, other: Outcome) -> Outcome:
    """What two scenarios say of a cell."""
    told = {
        name: value
        for name, value in vars(other).items()
        if value not in (None, "") and name not in ("cell", "experiment_ids", "is_over")
    }
    return replace(
        one,
        experiment_ids=(*one.experiment_ids, *other.experiment_ids),
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
        experiment_ids=(comparison.experiment_id,),
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
