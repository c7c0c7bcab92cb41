"""Backends over several workloads: the geometric mean of their speedups, and where they failed."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from storage.results import Comparison, Result


@dataclass(frozen=True)
class Failure:
    """A workload that gives a backend no speedup that may be averaged, and why."""

    experiment_id: str
    workload: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One backend over several experiments. No speedup is clipped, none is made up for a failure.

    So a mean is to be read beside its failures: leaving the hard workloads out flatters it.
    """

    label: str
    geomean_speedup: float | None
    """None without a workload that counts."""
    speedups: dict[str, float]
    """What the mean is made of: each experiment's speedup, paired round by round, by its id."""
    failures: tuple[Failure, ...]

    @property
    def num_workloads(self) -> int:
        return len(self.speedups) + len(self.failures)


def summarize(comparisons: Sequence[Comparison]) -> tuple[Summary, ...]:
    """One summary for each backend's label, in the order in which the experiments name them."""
    labels = dict.fromkeys(result.label for _, result in _backends(comparisons))
    return tuple(_summary(label, comparisons) for label in labels)


def _backends(comparisons: Sequence[Comparison]) -> Iterator[tuple[Comparison, Result]]:
    for comparison in comparisons:
        for result in comparison.results:
            if result.role == "backend":
                yield comparison, result


def _summary(label: str, comparisons: Sequence[Comparison]) -> Summary:
    speedups: dict[str, float] = {}
    failures = []
    for comparison, result in _backends(comparisons):
        if result.label != label:
            continue
        reason = _failure(result)
        if reason is None and result.speedup is not None:
            speedups[comparison.experiment_id] = result.speedup.median
        else:
            failures.append(
                Failure(
                    comparison.experiment_id,
                    comparison.spec.name,
                    reason or "no round is paired with the baseline",
                )
            )
    return Summary(
        label=label,
        geomean_speedup=geometric_mean(speedups.values()),
        speedups=speedups,
        failures=tuple(failures),
    )


def _failure(result: Result) -> str | None:
    """A backend that did not come to its end, or learned something else, has no speed."""
    if result.state != "finished":
        return f"it did not finish: {result.state.replace('_', ' ')}"
    if result.parity is not None and result.parity.verdict == "broken":
        return f"parity is broken: {result.parity.reason}"
    return None


def geometric_mean(ratios: Iterable[float]) -> float | None:
    """exp of the mean logarithm of numbers above 0; None without a number."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None
