"""Outcomes of a suite run for each model under each backend, and means over models.

`docs/metrics.md` defines the numbers. No number is clipped, and no failure is omitted silently.
`storage/suite/cells.py` reads the outcomes from the experiments.

Models are a sample: the interval of a mean is for the mean over similar models, and includes
differences between models and the uncertainty of each one (docs/decisions.md).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from breakeven.runner.specs.scenarios import Part
from breakeven.runner.specs.variants import Settings
from breakeven.storage.comparison.caution import Caution
from breakeven.storage.comparison.correctness import PASS
from breakeven.storage.statistics.intervals import half_width, p_of_mean
from breakeven.storage.statistics.speedups import (
    ERRORS_PER_INTERVAL,
    Ratio,
    SpeedVerdict,
    holm,
    noise_floor,
    speed_verdict,
)

MIN_MODELS = 3
"""With two models, the interval of their mean is 18 times as wide as their distance."""

Ratios = Mapping[str, Ratio]
"""Ratios by model."""


class LeftOut(NamedTuple):
    """A mean without one of its models."""

    model: str
    mean: float
    verdict: SpeedVerdict | None
    """None if too few models remain."""


@dataclass(frozen=True, kw_only=True)
class MeanSpeedup:
    """A mean over models; `ratio.n` is the number of models."""

    ratio: Ratio
    """Geometric mean. Interval and p-value are None with fewer than `MIN_MODELS`."""
    p_holm: float | None
    verdict: SpeedVerdict
    left_out: tuple[LeftOut, ...]
    """The mean without each model, those with the largest effect first."""

    @property
    def deciding(self) -> tuple[LeftOut, ...]:
        """The models whose omission would change the verdict."""
        return tuple(one for one in self.left_out if one.verdict not in (None, self.verdict))


def mean_ratio(ratios: Sequence[Ratio]) -> Ratio | None:
    """Geometric mean with its 95 % interval and p-value, on logarithms
    (`storage.statistics.intervals`); all models have the same weight. The error of models without
    an interval is included only through the spread of all. None without any model."""
    if not ratios:
        return None
    logs = np.log([one.median for one in ratios])
    middle, count = float(logs.mean()), len(ratios)
    if count < MIN_MODELS:
        return Ratio(median=math.exp(middle), low=None, high=None, p_value=None, n=count)
    own = math.sqrt(math.fsum(_log_error(one) ** 2 for one in ratios)) / count
    half = half_width(logs, own)
    return Ratio(
        median=math.exp(middle),
        low=math.exp(middle - half),
        high=math.exp(middle + half),
        p_value=p_of_mean(logs, own),
        n=count,
    )


def change(now: Ratio, before: Ratio) -> Ratio:
    """The later speedup over the earlier one; on logarithms, the squared interval widths add up."""
    median = now.median / before.median
    if not (now.low and now.high and before.low and before.high):
        return Ratio(median=median, low=None, high=None, p_value=None, n=min(now.n, before.n))
    half = math.hypot(_log_error(now), _log_error(before)) * ERRORS_PER_INTERVAL / 2
    low, high = median * math.exp(-half), median * math.exp(half)
    return Ratio(median=median, low=low, high=high, p_value=None, n=min(now.n, before.n))


def judge_means(rows: Sequence[Ratios], controls: Sequence[Ratios]) -> list[MeanSpeedup | None]:
    """The mean of each row of models, judged like a single speedup (`speed_verdict`): p-values are
    Holm-corrected over the rows, and the noise floor is from the interval of the mean of the same
    models' controls. None for a row without a model."""
    means = [mean_ratio(list(row.values())) for row in rows]
    p_values = [None if mean is None else mean.p_value for mean in means]
    return [
        None if mean is None else _judged(mean, row, control, p_values, index)
        for index, (mean, row, control) in enumerate(zip(means, rows, controls, strict=True))
    ]


def _judged(
    mean: Ratio, row: Ratios, controls: Ratios, p_values: Sequence[float | None], index: int
) -> MeanSpeedup:
    left_out = [_without(model, row, controls, p_values, index) for model in row if len(row) > 1]
    far = {one.model: abs(math.log(one.mean / mean.median)) for one in left_out}
    p_holm, verdict = _verdict(mean, row, controls, p_values, index)
    return MeanSpeedup(
        ratio=mean,
        p_holm=p_holm,
        verdict=verdict,
        left_out=tuple(sorted(left_out, key=lambda one: -far[one.model])),
    )


def _without(
    model: str, row: Ratios, controls: Ratios, p_values: Sequence[float | None], index: int
) -> LeftOut:
    """The mean of this row without a model; other rows remain unchanged."""
    rest = {name: ratio for name, ratio in row.items() if name != model}
    mean = mean_ratio(list(rest.values()))
    assert mean is not None
    if mean.low is None:
        return LeftOut(model, mean.median, None)
    return LeftOut(model, mean.median, _verdict(mean, rest, controls, p_values, index)[1])


def _verdict(
    mean: Ratio, row: Ratios, controls: Ratios, p_values: Sequence[float | None], index: int
) -> tuple[float | None, SpeedVerdict]:
    """The corrected p-value of a mean in place of its row's, and the verdict."""
    p_holm = holm([*p_values[:index], mean.p_value, *p_values[index + 1 :]])[index]
    floor = noise_floor([mean_ratio([controls[model] for model in row if model in controls])])
    return p_holm, speed_verdict(mean, p_holm, floor)


def _log_error(ratio: Ratio) -> float:
    """Standard error of the logarithm, from the interval; 0 without an interval."""
    if not ratio.low or not ratio.high:
        return 0.0
    return math.log(ratio.high / ratio.low) / ERRORS_PER_INTERVAL


UNDER_HARNESS = " (harness)"
"""Suffix of a backend that ran under the settings of PyTorch's Dynamo harness."""


def backend_under(settings: Settings, label: str) -> str:
    """The name of a backend in a suite run, which includes the setting that suite runs compare."""
    return label if settings == "plain" else f"{label}{UNDER_HARNESS}"


class Cell(NamedTuple):
    """A model under a backend and fixed conditions, which suite runs compare."""

    model: str
    """Name in its suite; with a slash and a number if its size was reduced."""
    precision: str
    part: Part
    backend: str
    """Label of the run, and the settings of torch unless they are plain: `inductor (harness)`."""

    @property
    def label(self) -> str:
        return self.backend.removesuffix(UNDER_HARNESS)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of a cell over all its scenarios. None means unknown or not requested."""

    cell: Cell
    experiments: dict[str, str]
    """Id of the experiment of each scenario."""
    is_over: bool
    status: str | None = None
    """Status of the accuracy check, in the harness's terms."""
    explanation: str = ""
    """Why the check did not pass."""
    speedup: Ratio | None = None
    speed_verdict: SpeedVerdict | None = None
    control: Ratio | None = None
    """Speedup of the first control, which measures this machine's noise."""
    compile_seconds: float | None = None
    memory_ratio: float | None = None
    cold_seconds: float | None = None
    warm_seconds: float | None = None
    speed_failure: str | None = None
    """Why a requested speed is missing."""
    doubts: tuple[Caution, ...] = ()
    """Disturbances of the device while the cell was timed."""

    @property
    def failure(self) -> str | None:
        """Why the cell adds no speedup to the mean; a wrong result has no speed. None if it adds
        one, or if no speed was requested."""
        wrong = self.status is not None and self.status != PASS
        if wrong and (self.speedup is not None or self.speed_failure is not None):
            return f"the accuracy check says {self.status}"
        return self.speed_failure

    @property
    def counted_speedup(self) -> Ratio | None:
        return None if self.failure else self.speedup

    @property
    def is_known(self) -> bool:
        """Whether all requested results exist; a check that a user stopped has none."""
        return self.is_over and (self.status is not None or "accuracy" not in self.experiments)


class SuiteRow(NamedTuple):
    """A group of cells with one mean: all models under one backend in one precision and part."""

    backend: str
    precision: str
    part: Part


@dataclass(frozen=True, kw_only=True)
class Group:
    """A row of the summary."""

    row: SuiteRow
    outcomes: tuple[Outcome, ...]
    mean: MeanSpeedup | None
    """Mean of the speedups that count; None if none does."""

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
    def speedup(self) -> Ratio | None:
        """Geometric mean of the speedups that count."""
        return None if self.mean is None else self.mean.ratio

    @property
    def num_counted(self) -> int:
        """Number of models in the mean."""
        return 0 if self.mean is None else self.mean.ratio.n

    @property
    def failures(self) -> dict[str, str]:
        """Models without a speed that counts, and the reasons."""
        return {one.cell.model: one.failure for one in self.outcomes if one.failure}

    @property
    def compile_seconds(self) -> tuple[float, ...]:
        """Compile latencies of the cells that have one."""
        return tuple(
            one.compile_seconds for one in self.outcomes if one.compile_seconds is not None
        )

    @property
    def mean_compile_seconds(self) -> float | None:
        known = self.compile_seconds
        return sum(known) / len(known) if known else None

    @property
    def memory(self) -> Ratio | None:
        """Mean memory ratio; its interval is from the differences between models."""
        return mean_ratio(
            [
                Ratio(median=one.memory_ratio, low=None, high=None, p_value=None, n=1)
                for one in self.outcomes
                if one.memory_ratio is not None
            ]
        )

    @property
    def _cold_and_warm(self) -> list[tuple[float, float]]:
        return [
            (one.cold_seconds, one.warm_seconds)
            for one in self.outcomes
            if one.cold_seconds and one.warm_seconds is not None
        ]

    @property
    def compile_time_saved(self) -> float | None:
        pairs = self._cold_and_warm
        return (
            1 - sum(warm for _, warm in pairs) / sum(cold for cold, _ in pairs) if pairs else None
        )

    @property
    def saved_by_model(self) -> tuple[float, ...]:
        """For each model, the share of its compile time that warm caches save."""
        return tuple(1 - warm / cold for cold, warm in self._cold_and_warm)

    @property
    def is_timed(self) -> bool:
        """Whether speedups were requested."""
        return any("speed" in one.experiments for one in self.outcomes)

    @property
    def num_open(self) -> int:
        return sum(not one.is_over for one in self.outcomes)


def groups(found: Sequence[Outcome]) -> list[Group]:
    """One group for each backend, precision and part, in the order of the outcomes."""
    rows: dict[SuiteRow, list[Outcome]] = {}
    for one in found:
        rows.setdefault(row_of(one.cell), []).append(one)
    speedups = [
        {one.cell.model: ratio for one in row if (ratio := one.counted_speedup) is not None}
        for row in rows.values()
    ]
    controls = [
        {one.cell.model: one.control for one in row if one.control is not None}
        for row in rows.values()
    ]
    means = judge_means(speedups, controls)
    return [
        Group(row=row, outcomes=tuple(mine), mean=mean)
        for (row, mine), mean in zip(rows.items(), means, strict=True)
    ]


def row_of(cell: Cell) -> SuiteRow:
    return SuiteRow(cell.backend, cell.precision, cell.part)
