"""Reads the cells of a suite run from its experiments."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from breakeven.runner.protocol.states import RunState, state_words
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import Part
from breakeven.runner.specs.scenarios.base import Compared
from breakeven.storage import queries
from breakeven.storage.comparison.cold_and_warm import cold_and_warm
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.correctness import PASS, checks
from breakeven.storage.comparison.evidence import of_role
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.result_caches import always, memo
from breakeven.storage.suite_runs.groups import Cell, Outcome, backend_under


def outcomes(store: Store, suite_run: str) -> list[Outcome]:
    """All cells of a suite run, in the order of the queue; raises `NotInStore`.

    If a cell was submitted several times, the latest experiment counts.
    """
    experiments = queries.suite_experiments(store, suite_run)
    if experiments.empty:
        raise NotInStore(f"no suite run {suite_run!r} in {store.data_dir.runs}")
    # By cell and scenario, so that a later experiment replaces the one that it repeats.
    latest: dict[tuple[Cell, str], Outcome] = {}
    for row in experiments.itertuples():
        version = (int(row.revision), int(row.num_runs))
        for outcome in _of_experiment(store, row.experiment_id, version):
            latest[outcome.cell, row.scenario] = outcome
    together: dict[Cell, Outcome] = {}
    for outcome in latest.values():
        known = together.get(outcome.cell)
        together[outcome.cell] = outcome if known is None else _joined(known, outcome)
    return list(together.values())


def _joined(first: Outcome, other: Outcome) -> Outcome:
    """Combines the outcomes of two scenarios for a cell."""
    known = {
        name: value
        for name, value in vars(other).items()
        if value not in (None, "", ()) and name not in ("cell", "experiments", "is_over")
    }
    return replace(
        first,
        experiments={**first.experiments, **other.experiments},
        is_over=first.is_over and other.is_over,
        **known,
    )


@memo(always)
def _of_experiment(
    store: Store, experiment_id: str, version: tuple[int, int]
) -> tuple[Outcome, ...]:
    """The outcomes of an experiment; `version` makes the cached answer valid."""
    spec = queries.experiment_spec(store, experiment_id)
    return tuple(READERS[spec.kind.compares](store, experiment_id, spec))


def _outcome(
    experiment_id: str, spec: ExperimentSpec, part: Part, backend: str, *, is_over: bool
) -> Outcome:
    model = spec.model.source.partition(":")[2] or spec.model.source
    return Outcome(
        cell=Cell(model, spec.training.precision, part, backend_under(spec.settings, backend)),
        experiments={spec.scenario: experiment_id},
        is_over=is_over,
    )


def _part(spec: ExperimentSpec) -> Part:
    return "training" if spec.trains else "inference"


def _checked(store: Store, experiment_id: str, spec: ExperimentSpec) -> Iterator[Outcome]:
    backends = {arm.label for arm in spec.arms if arm.role == "backend"}
    for check in checks(store, experiment_id, spec):
        if check.label in backends:
            is_over = check.status is not None or check.state.is_final
            plain = _outcome(experiment_id, spec, check.part, check.label, is_over=is_over)
            why = "" if check.status == PASS else check.explanation
            yield replace(plain, status=check.status, explanation=why)


def _timed(store: Store, experiment_id: str, spec: ExperimentSpec) -> Iterator[Outcome]:
    comparison = compare(store, experiment_id)
    baseline = of_role(comparison.results, "baseline")
    control = of_role(comparison.results, "control")
    for result in comparison.results:
        if result.role != "backend":
            continue
        states = (result.state, baseline.state if baseline else result.state)
        is_over = all(RunState(state).is_final for state in states)
        failure = _why_no_speed(comparison, baseline, result) if is_over else None
        yield replace(
            _outcome(experiment_id, spec, _part(spec), result.label, is_over=is_over),
            speedup=None if failure else result.speedup,
            speed_verdict=None if failure else result.speed_verdict,
            control=None if control is None else control.speedup,
            compile_seconds=result.measured.compile_seconds,
            memory_ratio=_memory_ratio(baseline, result),
            speed_failure=failure,
            warnings=result.device_warnings,
        )


def _cached(store: Store, experiment_id: str, spec: ExperimentSpec) -> Iterator[Outcome]:
    states = {run.label: run.state for run in queries.list_runs(store, experiment_id).itertuples()}
    known = {times.backend: times for times in cold_and_warm(compare(store, experiment_id))}
    is_over = all(RunState(state).is_final for state in states.values())
    ends = ", ".join(f"{label} {state_words(state)}" for label, state in states.items())
    for backend in spec.backends:
        times = known.get(backend)
        plain = _outcome(experiment_id, spec, _part(spec), backend, is_over=is_over)
        if times is not None:
            yield replace(plain, cold_seconds=times.cold_median, warm_seconds=times.warm_median)
        else:
            failure = f"no cold process and its warm one both have a compile latency: {ends}"
            yield replace(plain, speed_failure=failure if is_over else None)


def _memory_ratio(baseline: Result | None, result: Result) -> float | None:
    """Memory of the baseline over that of the backend, both of steady steps."""
    before = None if baseline is None else baseline.measured.peak_memory_bytes
    after = result.measured.peak_memory_bytes
    return before / after if before and after else None


def _why_no_speed(comparison: Comparison, baseline: Result | None, result: Result) -> str | None:
    if result.state != RunState.FINISHED:
        return f"it did not finish: {_ended(comparison, result)}"
    if baseline is None or baseline.state != RunState.FINISHED:
        if baseline is None:
            return "the baseline is missing"
        return f"the baseline did not finish: {_ended(comparison, baseline)}"
    if result.parity is not None and result.parity.is_wrong:
        return "it learns something else: parity is broken"
    return None if result.speedup is not None else "no round is paired with the baseline"


def _ended(comparison: Comparison, result: Result) -> str:
    reasons = [state_words(result.state), comparison.why_ended(result.label)]
    return ", ".join(filter(None, reasons))


READERS: dict[Compared, Callable[[Store, str, ExperimentSpec], Iterator[Outcome]]] = {
    "runs": _timed,
    "tensors": _checked,
    "caches": _cached,
    "causes": lambda store, experiment_id, spec: iter(()),  # belongs to no suite run
}
"""The function that reads an experiment, by the kind of its comparison."""
