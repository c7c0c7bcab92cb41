"""Computes the comparison of an experiment's runs: every number and verdict that Breakeven shows.

`docs/metrics.md` defines them. The sources are the raw steps, blocks and evaluations. While runs go
on, the comparison covers their present data; once all have ended, `storage.results` stores it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from breakeven.runner.experiments.added_rounds import why_no_rounds
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.variants import ENVIRONMENT_MARK
from breakeven.storage import queries
from breakeven.storage.caches import memo, revision, stored
from breakeven.storage.comparison.caution import Caution, Kind
from breakeven.storage.comparison.cautions import cautions, missing_runs, notes
from breakeven.storage.comparison.device_doubts import device_doubts
from breakeven.storage.comparison.energy import EnergySaving, energy_savings
from breakeven.storage.comparison.evidence import (
    Evidence,
    counted,
    load_evidence,
    losses_by_run,
    of_role,
)
from breakeven.storage.comparison.plan import choices
from breakeven.storage.comparison.results import (
    Across,
    Choice,
    Comparison,
    Result,
    StoredComparison,
    with_parity_across,
)
from breakeven.storage.comparison.rounds import load_compared, paired_blocks, savings
from breakeven.storage.comparison.run_numbers import RunNumbers, measure, memory_needed
from breakeven.storage.comparison.run_parity import (
    EqualTrainings,
    computed_in,
    judge_parity,
    no_band,
)
from breakeven.storage.comparison.shortfall import Shortfall, find_shortfall
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.outcomes import Reading, loss_excess
from breakeven.storage.statistics.parity import (
    Parity,
    ParityFinding,
    break_parity,
    doubt_fault,
    judge_inference,
    loss_band,
)
from breakeven.storage.statistics.speedups import (
    BreakEven,
    Ratio,
    SpeedVerdict,
    break_even,
    holm,
    noise_floor,
    paired_ratio,
    rounds_missing,
    speed_doubt,
    speed_verdict,
)

KINDS = (
    StoredComparison,
    Result,
    Across,
    Choice,
    RunNumbers,
    Ratio,
    BreakEven,
    EnergySaving,
    Parity,
    ParityFinding,
    Reading,
    Shortfall,
    Caution,
    RunState,
)


@memo(revision)
def compare(store: Store, experiment_id: str) -> Comparison:
    """Compares the present data of an experiment's runs; raises `NotInStore`."""
    judged = _judge(store, experiment_id)
    return Comparison(
        **vars(judged),
        experiment_id=experiment_id,
        spec=queries.experiment_spec(store, experiment_id),
        baseline=baseline.label
        if (baseline := of_role(judged.results, "baseline"))
        else "baseline",
    )


@memo(revision)
def find_loss_band(store: Store, experiment_id: str) -> pd.DataFrame:
    """step, baseline, low, high: the range in which a correct backend's loss must lie.

    The band of `EqualTrainings`, from the losses of baseline and controls alone. Empty without a
    control; ends where the control itself is far from the baseline.
    """
    comparison = compare(store, experiment_id)
    baseline = of_role(comparison.results, "baseline")
    if baseline is None:
        return no_band()
    find = losses_by_run(queries.losses(store, experiment_id, max_points=None))
    begun = [
        result
        for result in comparison.results
        if result.role == "control"
        and len(find(result.run_id))
        and comparison.baseline_of(result.label) == baseline
    ]
    losses = [find(result.run_id) for result in counted(begun)]
    if not losses:
        return no_band()
    workload = queries.fields_of(queries.workloads(store, experiment_id), baseline.run_id)
    return loss_band(find(baseline.run_id), losses, computed_in(comparison.spec, workload))


@stored("comparison", *KINDS)
def _judge(store: Store, experiment_id: str) -> StoredComparison:
    return _compare(store, experiment_id)


def _compare(store: Store, experiment_id: str) -> StoredComparison:
    """Compares the runs of each environment with its own baseline, then environments."""
    spec, processes = load_evidence(store, experiment_id)
    not_repeated = queries.faults_not_repeated(store, experiment_id)
    _, runs = load_compared(store, experiment_id)
    environments = spec.environment_by_label
    parts = [
        _compare_environment(
            spec,
            [run for run in processes if environments[run.label] == name],
            [run for run in runs if environments[run.label] == name],
            not_repeated,
        )
        for name in spec.environment_names
    ]
    results = tuple(result for part in parts for result in part.results)
    floors = [part.noise_floor for part in parts if part.noise_floor is not None]
    beside = across(spec, runs, max(floors, default=None))
    return StoredComparison(
        results=results,
        warnings=_each_once(
            [
                *missing_runs(spec, processes),
                *(warning for part in parts for warning in part.warnings),
            ]
        ),
        notes=_each_once(caution for part in parts for caution in part.notes),
        noise_floor=max(floors, default=None),
        across=beside,
        choices=choices(spec, with_parity_across(results, beside), runs),
    )


def _each_once(cautions: Iterable[Caution]) -> tuple[Caution, ...]:
    distinct: list[Caution] = []
    distinct += (caution for caution in cautions if caution not in distinct)
    return tuple(distinct)


def _compare_environment(
    spec: ExperimentSpec,
    processes: Sequence[Evidence],
    runs: Sequence[Evidence],
    not_repeated: Mapping[str, int],
) -> StoredComparison:
    baseline = of_role(runs, "baseline")
    controls = [run for run in runs if run.role == "control"]
    pairs = [paired_blocks(baseline, run) for run in runs]
    speedups = [
        None if run.is_idle or not spec.kind.has_speedups else _speedup(pair)
        for run, pair in zip(runs, pairs, strict=True)
    ]
    floor = noise_floor(
        [ratio for run, ratio in zip(runs, speedups, strict=True) if run.role == "control"]
    )
    tested = [
        ratio.p_value if ratio is not None and run.role == "backend" else None
        for run, ratio in zip(runs, speedups, strict=True)
    ]
    equals = EqualTrainings.from_runs(spec, baseline, controls)
    judge = _Judge(spec, baseline, equals, floor, sum(p is not None for p in tested), not_repeated)
    doubts = [device_doubts(run, baseline) for run in runs]
    energy = energy_savings(spec, runs) if spec.kind.has_speedups else {}
    results = [
        replace(judge.result(run, *judged), energy=energy.get(run.label))
        for run, *judged in zip(runs, pairs, speedups, holm(tested), doubts, strict=True)
    ]
    return StoredComparison(
        results=tuple(results),
        warnings=cautions(spec, processes, runs, speedups, floor, doubts),
        notes=(*notes(spec, processes, runs, speedups), *_doubts_of_break_even(results)),
        noise_floor=floor,
    )


@dataclass(frozen=True)
class _Judge:
    """Judges each run of an experiment by the same baseline, controls and noise floor."""

    spec: ExperimentSpec
    baseline: Evidence | None
    equals: EqualTrainings | None
    floor: float | None
    num_tested: int
    not_repeated: Mapping[str, int]
    """Trials of investigations in which a run's fault did not come back, by the run's id."""

    def result(
        self,
        run: Evidence,
        pairs: pd.DataFrame,
        speedup: Ratio | None,
        p_holm: float | None,
        doubts: tuple[Caution, ...],
    ) -> Result:
        first_loss = None if run.losses.empty else float(run.losses.iloc[0])
        precision = self.spec.training.precision
        gap, fault = judge_inference(run.scores, run.answers, first_loss, precision)
        parity = judge_parity(self.spec, self.equals, run)
        parity = parity and break_parity(parity, fault)
        if parity is not None and run.run_id in self.not_repeated:
            parity = doubt_fault(parity, self.not_repeated[run.run_id])
        speed = self._speed_verdict(run, speedup, p_holm)
        return Result(
            run_id=run.run_id,
            label=run.label,
            role=run.role,
            backend=run.backend,
            state=str(run.state),
            measured=measure(self.spec, run),
            speedup=speedup,
            p_holm=p_holm,
            speed_verdict=speed,
            more_rounds=self._more_rounds(speed, speedup, p_holm),
            break_even=self._break_even(run, pairs, speed),
            parity=parity,
            batch_times=run.batch_times,
            inference_gap=gap,
            training_loss_excess=self._loss_excess(run),
            ended_as_wrong=run.ended_as_wrong,
            shortfall=self._shortfall(run, parity),
            is_uncompiled=run.is_idle,
            device_doubts=doubts,
        )

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
            or run.batch_times > 1  # Another training: parity compares it by equal samples.
            or parity is None
            or parity.verdict not in ("unknown", "nothing learned")
        ):
            return None
        return find_shortfall(self.equals.baseline, self.equals.controls, run)

    def _break_even(
        self, run: Evidence, pairs: pd.DataFrame, speed: SpeedVerdict | None
    ) -> BreakEven | None:
        if self.baseline is None or self.baseline.step_seconds is None:
            return None
        steps_per_epoch = self.baseline.workload.get("steps_per_epoch")
        return break_even(
            speed,
            run.compile_latencies,
            savings(pairs),
            self.baseline.step_seconds,
            steps_per_epoch,
            pairs["process"],
        )

    def _loss_excess(self, run: Evidence) -> float | None:
        if self.baseline is None or run.role == "baseline" or run.batch_times > 1:
            return None
        return loss_excess(self.baseline.losses, run.losses)


def _speedup(pairs: pd.DataFrame) -> Ratio | None:
    return paired_ratio(pairs["baseline"], pairs["other"], pairs["process"])


def _doubts_of_break_even(results: Sequence[Result]) -> list[Caution]:
    """Doubts that the intervals leave out, each once, with the runs concerned."""
    runs_by_kind: dict[Kind, dict[str, Mapping[str, Any]]] = {}
    for result in results:
        for doubt in result.break_even_doubts:
            runs_by_kind.setdefault(doubt.kind, {}).update(doubt.runs)
    return [Caution(kind=kind, runs=runs) for kind, runs in runs_by_kind.items()]


def across(
    spec: ExperimentSpec, runs: Sequence[Evidence], floor: float | None
) -> tuple[Across, ...]:
    """The runs of all further environments, except controls, in the order of the experiment.

    Speedups are paired by rounds, as those against a baseline. Losses are judged by baseline and
    controls of the first environment.
    """
    pairs = list(_pairs(spec, runs))
    speedups = [
        _speedup(paired_blocks(first, replace(run, role="backend"))) for first, run in pairs
    ]
    corrected = holm([ratio.p_value if ratio else None for ratio in speedups])
    equals = EqualTrainings.from_runs(spec, *_equals_of_first(spec, runs))
    return tuple(
        _across(spec, first, run, ratio, p_holm, floor, equals)
        for (first, run), ratio, p_holm in zip(pairs, speedups, corrected, strict=True)
    )


def _pairs(spec: ExperimentSpec, runs: Sequence[Evidence]) -> Iterator[tuple[Evidence, Evidence]]:
    first_name, *others = spec.environment_names
    by_label = {run.label: run for run in runs}
    for label, run in by_label.items():
        what, _, name = label.partition(ENVIRONMENT_MARK)
        first = by_label.get(f"{what}{ENVIRONMENT_MARK}{first_name}")
        if name in others and first is not None and run.role != "control":
            yield first, run


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
