"""Compares environments: each run of a further environment with the same run of the first one.

Speedups are paired by rounds, as those against a baseline. Losses are judged by baseline and
controls of the first environment.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.variants import ENVIRONMENT_MARK
from breakeven.storage.comparison.evidence import Evidence, of_role
from breakeven.storage.comparison.rounds import paired_blocks
from breakeven.storage.comparison.run_numbers import memory_needed
from breakeven.storage.comparison.run_parity import EqualTrainings, judge_parity
from breakeven.storage.statistics.parity import Parity
from breakeven.storage.statistics.speedups import (
    Ratio,
    SpeedVerdict,
    holm,
    paired_ratio,
    speed_verdict,
)


@dataclass(frozen=True, kw_only=True)
class Across:
    """A run beside the same run in the first environment, to which each `first_` belongs. None
    means undefined or unmeasured."""

    environment: str
    first_environment: str
    backend: str | None
    """Label of the backend without its environment; None for the baseline."""
    speedup: Ratio | None
    """Step time in the first environment over that in this one."""
    p_holm: float | None
    verdict: SpeedVerdict | None
    parity: Parity | None
    compile_seconds: float | None
    first_compile_seconds: float | None
    peak_memory_bytes: int | None
    first_peak_memory_bytes: int | None
    versions: dict[str, str | None] | None
    """Versions of packages, and of Python, that differ from the first environment's."""
    first_versions: dict[str, str | None] | None

    @property
    def label(self) -> str:
        return f"{self.backend or 'baseline'}{ENVIRONMENT_MARK}{self.environment}"

    @property
    def both(self) -> tuple[str, str]:
        """Labels of the run in the first environment and of this one."""
        return self.label.removesuffix(self.environment) + self.first_environment, self.label


def across(
    spec: ExperimentSpec, runs: Sequence[Evidence], floor: float | None
) -> tuple[Across, ...]:
    """The runs of all further environments, except controls, in the order of the experiment."""
    pairs = list(_pairs(spec, runs))
    speedups = [_speedup(first, run) for first, run in pairs]
    corrected = holm([ratio.p_value if ratio else None for ratio in speedups])
    equals = EqualTrainings.of(spec, *_equals_of_first(spec, runs))
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
    of, name = spec.environment_by_label, spec.environment_names[0]
    mine = [run for run in runs if of[run.label] == name]
    return of_role(mine, "baseline"), [run for run in mine if run.role == "control"]


def _speedup(first: Evidence, run: Evidence) -> Ratio | None:
    pairs = paired_blocks(first, replace(run, role="backend"))
    return paired_ratio(pairs["baseline"], pairs["other"], pairs["process"])


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
        memory_needed(one.steady_blocks, on_cpu=one.computes_on_cpu) for one in (run, first)
    )
    versions, first_versions = (_versions(one) for one in (run, first))
    are_known = bool(run.environment and first.environment)
    differ = [package for package in sorted({*versions, *first_versions})
              if versions.get(package) != first_versions.get(package)]  # fmt: skip
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
        versions={one: versions.get(one) for one in differ} if are_known else None,
        first_versions={one: first_versions.get(one) for one in differ} if are_known else None,
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
