"""Computes the comparison of an experiment's runs: every number and verdict that Breakeven shows.

`docs/metrics.md` defines them. `storage.comparison.loading` reads all that was recorded; from there
on, nothing goes back to the store. While runs go on, the comparison covers their present data; once
all have ended, `storage.result_caches` stores it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from breakeven.runner.experiments.continuing import why_no_rounds
from breakeven.runner.judged_outcome import Outcome
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.arm_fields import ENVIRONMENT_MARK
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage import queries
from breakeven.storage.comparison.compiler_warnings import (
    COMPILER_WARNINGS,
    GivenUpFunction,
    LatencyMeasuredOnce,
)
from breakeven.storage.comparison.device_warnings import (
    DISTURBANCES,
    Disturbed,
    OtherProcess,
    disturbances,
    find_device_warnings,
)
from breakeven.storage.comparison.energy import EnergySaving, energy_savings
from breakeven.storage.comparison.evidence import Evidence, of_role
from breakeven.storage.comparison.loading import load_evidence, pool
from breakeven.storage.comparison.measuring_warnings import MEASURING_WARNINGS
from breakeven.storage.comparison.pairs import (
    Timing,
    in_first_environment,
    no_rounds,
    pair_all,
    savings,
    speedup_of,
    timing_of,
)
from breakeven.storage.comparison.plan import choices
from breakeven.storage.comparison.results import (
    Across,
    Choice,
    Comparison,
    Result,
    StoredComparison,
    with_parity_across,
    without_speed,
)
from breakeven.storage.comparison.run_numbers import (
    CapturedGraphs,
    RunNumbers,
    captured,
    measure,
    memory_needed,
)
from breakeven.storage.comparison.run_parity import EqualTrainings, judge_parity, no_band
from breakeven.storage.comparison.run_warnings import RUN_WARNINGS, UnequalWork, find_missing
from breakeven.storage.comparison.shortfall import Shortfall, find_shortfall
from breakeven.storage.comparison.warnings import ComparisonWarning, Measured, classes_of_warnings
from breakeven.storage.index.store import Store
from breakeven.storage.result_caches import memo, revision, stored
from breakeven.storage.statistics.break_even import BreakEven, break_even
from breakeven.storage.statistics.outcomes import Reading, loss_excess
from breakeven.storage.statistics.parity import (
    Parity,
    ParityFinding,
    break_parity,
    doubt_fault,
    judge_inference,
)
from breakeven.storage.statistics.speedups import (
    Ratio,
    SpeedVerdict,
    holm,
    in_family,
    noise_floor,
    rounds_missing,
    speed_doubt,
    speed_verdict,
)

STORED_CLASSES = (
    StoredComparison,
    Result,
    Across,
    Choice,
    RunNumbers,
    CapturedGraphs,
    Timing,
    Ratio,
    BreakEven,
    EnergySaving,
    Parity,
    ParityFinding,
    Outcome,
    Reading,
    Shortfall,
    RunState,
    *classes_of_warnings(),
    GivenUpFunction,
    UnequalWork,
    *DISTURBANCES,
    OtherProcess,
)


@memo(revision)
def compare(store: Store, experiment_id: str) -> Comparison:
    """Compares the present data of an experiment's runs; raises `NotInStore`."""
    judged = _judged(store, experiment_id)
    baseline = of_role(judged.results, "baseline")
    return Comparison(
        **vars(judged),
        experiment_id=experiment_id,
        spec=queries.experiment_spec(store, experiment_id),
        baseline="baseline" if baseline is None else baseline.label,
    )


@stored("comparison", *STORED_CLASSES)
def _judged(store: Store, experiment_id: str) -> StoredComparison:
    return _compare(store, experiment_id)


def _compare(store: Store, experiment_id: str) -> StoredComparison:
    spec, processes = load_evidence(store, experiment_id)
    return judge(spec, processes, queries.faults_not_repeated(store, experiment_id))


def judge(
    spec: ExperimentSpec, processes: Sequence[Evidence], not_repeated: Mapping[str, int]
) -> StoredComparison:
    """Compares the runs of each environment with its own baseline, then environments, from all
    that was recorded. `not_repeated`: by the ids of runs with a fault, the number of trials of an
    investigation in which it did not come back."""
    runs = pool(spec, processes)
    pairs = pair_all(spec, runs)
    environments = spec.environment_by_label
    parts = [
        _compare_environment(
            spec,
            [run for run in processes if environments[run.label] == name],
            [run for run in runs if environments[run.label] == name],
            pairs,
            not_repeated,
        )
        for name in spec.environment_names
    ]
    results = tuple(result for part in parts for result in part.results)
    floor = max((part.noise_floor for part in parts if part.noise_floor is not None), default=None)
    beside_first = across(spec, runs, pairs, floor)
    with_baseline = (part for part in parts if of_role(part.results, "baseline") is not None)
    first = next(with_baseline, None)
    return StoredComparison(
        results=results,
        warnings=(
            *find_missing(spec, processes),
            *_distinct(warning for part in parts for warning in part.warnings),
        ),
        noise_floor=floor,
        across=beside_first,
        choices=choices(spec, with_parity_across(results, beside_first)),
        band=no_band() if first is None else first.band,
    )


def _distinct(warnings: Iterable[ComparisonWarning]) -> list[ComparisonWarning]:
    distinct: list[ComparisonWarning] = []
    distinct += (warning for warning in warnings if warning not in distinct)
    return distinct


@dataclass(frozen=True, kw_only=True)
class _Raced:
    """A run beside its baseline, before any verdict."""

    run: Evidence
    timing: Timing
    speedup: Ratio | None
    disturbed: tuple[Disturbed, ...]

    @property
    def p_value(self) -> float | None:
        """The p-value to correct, that of a backend's speedup; None for other runs."""
        return self.speedup.p_value if self.speedup and self.run.role == "backend" else None


def _compare_environment(
    spec: ExperimentSpec,
    processes: Sequence[Evidence],
    runs: Sequence[Evidence],
    pairs: Mapping[tuple[str, str], pd.DataFrame],
    not_repeated: Mapping[str, int],
) -> StoredComparison:
    baseline = of_role(runs, "baseline")
    raced = [_race(spec, baseline, run, pairs) for run in runs]
    floor = noise_floor([entrant.speedup for entrant in raced if entrant.run.role == "control"])
    equals = EqualTrainings.from_runs(
        spec, baseline, [run for run in runs if run.role == "control"]
    )
    rounds = {entrant.run.label: entrant.timing.rounds for entrant in raced}
    judge = _Judge(
        spec=spec,
        baseline=baseline,
        equals=equals,
        floor=floor,
        num_tested=sum(entrant.p_value is not None for entrant in raced),
        not_repeated=not_repeated,
        energy=energy_savings(spec, baseline, runs, rounds) if spec.kind.has_speedups else {},
    )
    corrected = in_family(holm([entrant.p_value for entrant in raced]), spec.family_level)
    results = [judge.result(*judged) for judged in zip(raced, corrected, strict=True)]
    speedups = {entrant.run.label: entrant.speedup for entrant in raced}
    return StoredComparison(
        results=tuple(results),
        warnings=tuple(_warnings(Measured(spec, processes, runs, speedups, floor), results)),
        noise_floor=floor,
        band=no_band() if equals is None else equals.band,
    )


def _warnings(measured: Measured, results: Sequence[Result]) -> Iterator[ComparisonWarning]:
    for kind in (*RUN_WARNINGS, *COMPILER_WARNINGS, *MEASURING_WARNINGS):
        yield from kind.find(measured)
    disturbed = {result.label: result.device_warnings for result in results}
    yield from find_device_warnings(measured.spec, measured.runs, disturbed)
    single = (result.label for result in results if result.has_single_latency)
    yield from LatencyMeasuredOnce.find_in(single)


def _race(
    spec: ExperimentSpec,
    baseline: Evidence | None,
    run: Evidence,
    pairs: Mapping[tuple[str, str], pd.DataFrame],
) -> _Raced:
    label = None if baseline is None or run is baseline else baseline.label
    timing = timing_of(run, no_rounds() if label is None else pairs[label, run.label])
    compares_nothing = run.is_idle or not spec.kind.has_speedups
    return _Raced(
        run=run,
        timing=timing,
        speedup=None if compares_nothing else speedup_of(timing.rounds),
        disturbed=disturbances(run, baseline),
    )


@dataclass(frozen=True, kw_only=True)
class _Judge:
    """Judges each run of an experiment by the same baseline, controls and noise floor."""

    spec: ExperimentSpec
    baseline: Evidence | None
    equals: EqualTrainings | None
    floor: float | None
    num_tested: int
    not_repeated: Mapping[str, int]
    """Trials of investigations in which a run's fault did not come back, by the run's id."""
    energy: Mapping[str, EnergySaving]

    def result(self, raced: _Raced, p_holm: float | None) -> Result:
        run, speedup = raced.run, raced.speedup
        parity, gap = self._parity(run)
        speed = self._speed_verdict(run, speedup, p_holm)
        result = Result(
            run_id=run.run_id,
            label=run.label,
            role=run.role,
            backend=run.backend,
            state=str(run.state),
            reason=run.reason,
            measured=measure(self.spec, run),
            timing=raced.timing,
            graphs=captured(run),
            speedup=speedup,
            p_holm=p_holm,
            speed_verdict=speed,
            more_rounds=self._more_rounds(speed, speedup, p_holm),
            break_even=self._break_even(raced.timing, speed),
            energy=self.energy.get(run.label),
            parity=parity,
            batch_times=run.batch_times,
            changes_training=run.changes_training and self.spec.kind.trains_fully,
            inference_gap=gap,
            training_loss_excess=self._loss_excess(run),
            ended_as_wrong=run.ended_as_wrong,
            shortfall=self._shortfall(run, parity),
            is_uncompiled=run.is_idle,
            device_warnings=raced.disturbed,
        )
        return without_speed(result)

    def _parity(self, run: Evidence) -> tuple[Parity | None, float | None]:
        """The parity of a run, and the largest difference between its compiled model's answers and
        those of the same weights without a compiler."""
        first_loss = None if run.learning.losses.empty else float(run.learning.losses.iloc[0])
        precision = self.spec.training.precision
        gap, fault = judge_inference(
            run.learning.scores, run.learning.answers, first_loss, precision
        )
        parity = judge_parity(self.spec, self.equals, run)
        parity = parity and break_parity(parity, fault)
        if parity is not None and run.run_id in self.not_repeated:
            parity = doubt_fault(parity, self.not_repeated[run.run_id])
        return parity, gap

    def _speed_verdict(
        self, run: Evidence, speedup: Ratio | None, p_holm: float | None
    ) -> SpeedVerdict | None:
        if run.role != "backend" or not self.spec.kind.has_speedups:
            return None
        if speedup is None and run.state.early_end is not None:
            return run.state.early_end
        if run.steps.empty or run.is_idle:
            return None
        return "unsure" if speedup is None else speed_verdict(speedup, p_holm, self.floor)

    def _more_rounds(
        self, speed: SpeedVerdict | None, speedup: Ratio | None, p_holm: float | None
    ) -> int | None:
        if speed != "unsure" or speedup is None or speed_doubt(speedup, p_holm) != "chance":
            return None
        missing = rounds_missing(speedup, self.num_tested)
        return missing if why_no_rounds(self.spec) is None else None

    def _shortfall(self, run: Evidence, parity: Parity | None) -> Shortfall | None:
        if (
            self.equals is None
            or parity is None
            or parity.by_outcome  # Parity compares it after as many samples.
            or parity.verdict not in ("unknown", "nothing learned")
        ):
            return None
        return find_shortfall(self.equals.baseline, self.equals.controls, run)

    def _break_even(self, timing: Timing, speed: SpeedVerdict | None) -> BreakEven | None:
        if self.baseline is None or self.baseline.step_seconds is None:
            return None
        steps_per_epoch = self.baseline.workload.get("steps_per_epoch")
        return break_even(
            speed,
            timing.compile_latencies,
            savings(timing.rounds),
            self.baseline.step_seconds,
            steps_per_epoch,
            timing.rounds["process"],
            baseline_latencies=self.baseline.compile_latencies,
            floor=self.floor or 0.0,
        )

    def _loss_excess(self, run: Evidence) -> float | None:
        if self.baseline is None or run.role == "baseline" or run.batch_times > 1:
            return None
        return loss_excess(self.baseline.learning.losses, run.learning.losses)


def across(
    spec: ExperimentSpec,
    runs: Sequence[Evidence],
    pairs: Mapping[tuple[str, str], pd.DataFrame],
    floor: float | None,
) -> tuple[Across, ...]:
    """The runs of all further environments, except controls, in the order of the experiment.

    Speedups are paired by rounds, as those against a baseline. Losses are judged by baseline and
    controls of the first environment.
    """
    both = [
        (first, run) for run in runs if (first := in_first_environment(spec, runs, run)) is not None
    ]
    speedups = [speedup_of(pairs[first.label, run.label]) for first, run in both]
    p_values = [ratio.p_value if ratio else None for ratio in speedups]
    corrected = in_family(holm(p_values), spec.family_level)
    equals = EqualTrainings.from_runs(spec, *_equals_of_first(spec, runs)) if both else None
    return tuple(
        _across(spec, first, run, ratio, p_holm, floor, equals)
        for (first, run), ratio, p_holm in zip(both, speedups, corrected, strict=True)
    )


def _equals_of_first(
    spec: ExperimentSpec, runs: Sequence[Evidence]
) -> tuple[Evidence | None, list[Evidence]]:
    """Baseline and controls of the first environment."""
    environments, name = spec.environment_by_label, spec.environment_names[0]
    own = [run for run in runs if environments[run.label] == name]
    return of_role(own, "baseline"), [run for run in own if run.role == "control"]


def _across(
    spec: ExperimentSpec,
    first: Evidence,
    run: Evidence,
    ratio: Ratio | None,
    p_holm: float | None,
    floor: float | None,
    equals: EqualTrainings | None,
) -> Across:
    what, _, name = run.label.partition(ENVIRONMENT_MARK)
    memory, first_memory = (
        memory_needed(timed.steady_blocks, on_cpu=timed.computes_on_cpu) for timed in (run, first)
    )
    versions, first_versions = (_versions(timed) for timed in (run, first))
    are_known = bool(run.environment and first.environment)
    differ = [
        package
        for package in sorted({*versions, *first_versions})
        if versions.get(package) != first_versions.get(package)
    ]
    return Across(
        environment=name,
        first_environment=first.label.partition(ENVIRONMENT_MARK)[2],
        backend=None if run.role == "baseline" else what,
        speedup=ratio,
        p_holm=p_holm,
        verdict=_verdict(first, run, ratio, p_holm, floor),
        parity=judge_parity(spec, equals, replace(run, role="backend")),
        compile_seconds=run.compile_seconds,
        first_compile_seconds=first.compile_seconds,
        peak_memory_bytes=memory,
        first_peak_memory_bytes=first_memory,
        versions={package: versions.get(package) for package in differ} if are_known else None,
        first_versions={package: first_versions.get(package) for package in differ}
        if are_known
        else None,
    )


def _verdict(
    first: Evidence, run: Evidence, ratio: Ratio | None, p_holm: float | None, floor: float | None
) -> SpeedVerdict | None:
    if ratio is not None:
        return speed_verdict(ratio, p_holm, floor)
    return run.state.early_end or first.state.early_end


def _versions(run: Evidence) -> dict[str, str | None]:
    """Versions that the run itself recorded."""
    python: str | None = run.environment.get("python")
    return {**(run.environment.get("versions") or {}), "Python": python}
