"""Outcomes of a suite run for each model under each backend, means over models, and changes between
two runs of a suite.

`docs/metrics.md` defines the numbers. No number is clipped, and no failure is omitted silently.
`storage/suite_runs/cells.py` reads the outcomes from the experiments.

Models are a sample: the interval of a mean is for the mean over similar models, and includes
differences between models and the uncertainty of each one (docs/decisions.md).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from breakeven.runner.specs.arm_fields import Settings
from breakeven.runner.specs.scenario_fields import Part
from breakeven.storage.comparison.correctness import PASS
from breakeven.storage.comparison.device_warnings import Disturbed
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.intervals import half_width, p_of_mean
from breakeven.storage.statistics.speedups import (
    ERRORS_PER_INTERVAL,
    Ratio,
    SpeedVerdict,
    holm,
    noise_floor,
    ratio_text,
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
        return tuple(
            omission for omission in self.left_out if omission.verdict not in (None, self.verdict)
        )


def mean_ratio(ratios: Sequence[Ratio]) -> Ratio | None:
    """Geometric mean with its 95 % interval and p-value, on logarithms
    (`storage.statistics.intervals`); all models have the same weight. The error of models without
    an interval is included only through the spread of all. None without any model."""
    if not ratios:
        return None
    logs = np.log([ratio.median for ratio in ratios])
    middle, count = float(logs.mean()), len(ratios)
    if count < MIN_MODELS:
        return Ratio(median=math.exp(middle), low=None, high=None, p_value=None, n=count)
    cell_error = math.sqrt(math.fsum(_log_error(ratio) ** 2 for ratio in ratios)) / count
    half = half_width(logs, cell_error)
    return Ratio(
        median=math.exp(middle),
        low=math.exp(middle - half),
        high=math.exp(middle + half),
        p_value=p_of_mean(logs, cell_error),
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
    effects = {omission.model: abs(math.log(omission.mean / mean.median)) for omission in left_out}
    p_holm, verdict = _verdict(mean, row, controls, p_values, index)
    return MeanSpeedup(
        ratio=mean,
        p_holm=p_holm,
        verdict=verdict,
        left_out=tuple(sorted(left_out, key=lambda omission: -effects[omission.model])),
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
    warnings: tuple[Disturbed, ...] = ()
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
        return sum(outcome.status is not None for outcome in self.outcomes)

    @property
    def num_passed(self) -> int:
        return sum(outcome.status == PASS for outcome in self.outcomes)

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
        return {outcome.cell.model: outcome.failure for outcome in self.outcomes if outcome.failure}

    @property
    def compile_seconds(self) -> tuple[float, ...]:
        """Compile latencies of the cells that have one."""
        return tuple(
            outcome.compile_seconds
            for outcome in self.outcomes
            if outcome.compile_seconds is not None
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
                Ratio(median=outcome.memory_ratio, low=None, high=None, p_value=None, n=1)
                for outcome in self.outcomes
                if outcome.memory_ratio is not None
            ]
        )

    @property
    def _cold_and_warm(self) -> list[tuple[float, float]]:
        return [
            (outcome.cold_seconds, outcome.warm_seconds)
            for outcome in self.outcomes
            if outcome.cold_seconds and outcome.warm_seconds is not None
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
        return any("speed" in outcome.experiments for outcome in self.outcomes)

    @property
    def num_open(self) -> int:
        return sum(not outcome.is_over for outcome in self.outcomes)


def groups(outcomes: Sequence[Outcome]) -> list[Group]:
    """One group for each backend, precision and part, in the order of the outcomes."""
    rows: dict[SuiteRow, list[Outcome]] = {}
    for outcome in outcomes:
        rows.setdefault(row_of(outcome.cell), []).append(outcome)
    speedups = [
        {
            outcome.cell.model: ratio
            for outcome in row
            if (ratio := outcome.counted_speedup) is not None
        }
        for row in rows.values()
    ]
    controls = [
        {outcome.cell.model: outcome.control for outcome in row if outcome.control is not None}
        for row in rows.values()
    ]
    means = judge_means(speedups, controls)
    return [
        Group(row=row, outcomes=tuple(row_outcomes), mean=mean)
        for (row, row_outcomes), mean in zip(rows.items(), means, strict=True)
    ]


def row_of(cell: Cell) -> SuiteRow:
    return SuiteRow(cell.backend, cell.precision, cell.part)


Kind = Literal["accuracy", "speed", "compile", "memory"]
COMPILE_CHANGE, COMPILE_SECONDS = 0.25, 1.0
"""Compile latency has no interval: a change counts if it exceeds both this share of the earlier
latency and this number of seconds."""
MEMORY_CHANGE = 0.05
"""Share of the earlier ratio above which a change counts; allocators vary little by chance."""
HIDDEN_SLOWDOWN = 0.25
"""If the intervals of a cell could hide a slowdown of this size, there is no verdict, not even
"unchanged"."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A number or status of a cell that has clearly changed."""

    cell: Cell
    kind: Kind
    is_worse: bool
    before: str
    now: str
    warnings: tuple[Disturbed, ...]
    """Disturbances of the device in either run, which may be the cause instead."""


@dataclass(frozen=True, kw_only=True)
class SuiteChanges:
    """A suite run, compared with an earlier one."""

    changes: tuple[Change, ...]
    """Changes, those for the worse first."""
    only_before: tuple[Cell, ...]
    """Cells that only the earlier run has."""
    only_now: tuple[Cell, ...]
    unclear: tuple[Cell, ...]
    """Cells with a speed in both runs, but too imprecise in one of them to show a large change."""
    means: dict[SuiteRow, MeanSpeedup]
    """For each row with a cell that counts in both runs, the mean over models of the later speedup
    over the earlier one."""

    @property
    def regressions(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.is_worse)


def suite_changes(now: Sequence[Outcome], before: Sequence[Outcome]) -> SuiteChanges:
    """Compares a suite run with an earlier one."""
    then = {outcome.cell: outcome for outcome in before}
    current = {outcome.cell: outcome for outcome in now}
    pairs = [
        (outcome, then[cell])
        for cell, outcome in current.items()
        if cell in then and outcome.is_over
    ]
    changes = [change for pair in pairs for change in _changes(*pair)]
    return SuiteChanges(
        changes=tuple(sorted(changes, key=lambda change: not change.is_worse)),
        only_before=tuple(cell for cell in then if cell not in current),
        only_now=tuple(cell for cell in current if cell not in then),
        unclear=tuple(outcome.cell for outcome, earlier in pairs if _is_unclear(outcome, earlier)),
        means=_mean_changes(pairs),
    )


def _mean_changes(pairs: Sequence[tuple[Outcome, Outcome]]) -> dict[SuiteRow, MeanSpeedup]:
    rows: dict[SuiteRow, dict[str, Ratio]] = {}
    controls: dict[SuiteRow, dict[str, Ratio]] = {}
    for now, before in pairs:
        row, model = row_of(now.cell), now.cell.model
        if now.counted_speedup is not None and before.counted_speedup is not None:
            rows.setdefault(row, {})[model] = change(now.counted_speedup, before.counted_speedup)
        if now.control is not None and before.control is not None:
            controls.setdefault(row, {})[model] = change(now.control, before.control)
    means = judge_means(list(rows.values()), [controls.get(row, {}) for row in rows])
    return {row: mean for row, mean in zip(rows, means, strict=True) if mean is not None}


def _is_unclear(now: Outcome, before: Outcome) -> bool:
    """Whether the intervals could hide a large slowdown."""
    if now.speedup is None or before.speedup is None or _speed(now, before) is not None:
        return False
    low = change(now.speedup, before.speedup).low
    return low is None or low < 1 / (1 + HIDDEN_SLOWDOWN)


def _changes(now: Outcome, before: Outcome) -> Iterator[Change]:
    for kind, judge in JUDGES.items():
        judgement = judge(now, before)
        if judgement is not None:
            is_worse, was, is_now = judgement
            warnings = () if kind == "accuracy" else (*now.warnings, *before.warnings)
            yield Change(
                cell=now.cell,
                kind=kind,
                is_worse=is_worse,
                before=was,
                now=is_now,
                warnings=warnings,
            )


Judgement = tuple[bool, str, str] | None
"""Whether the change is for the worse, and both values as text; None for no change."""


def _accuracy(now: Outcome, before: Outcome) -> Judgement:
    if now.status is None or before.status is None:
        return None
    was, passes = before.status == PASS, now.status == PASS
    return None if was == passes else (was, before.status, now.status)


def _speed(now: Outcome, before: Outcome) -> Judgement:
    """A change if the intervals do not overlap, or if only one run has a speed."""
    if before.speedup is None and before.speed_failure and now.speedup is not None:
        return False, before.speed_failure, ratio_text(now.speedup)
    if before.speedup is not None and now.speedup is None and now.speed_failure:
        return True, ratio_text(before.speedup), now.speed_failure
    speedup, earlier = now.speedup, before.speedup
    if speedup is None or speedup.low is None or speedup.high is None:
        return None
    if earlier is None or earlier.low is None or earlier.high is None:
        return None
    if speedup.high >= earlier.low and speedup.low <= earlier.high:
        return None
    return speedup.high < earlier.low, ratio_text(earlier), ratio_text(speedup)


def _compile(now: Outcome, before: Outcome) -> Judgement:
    seconds, earlier = now.compile_seconds, before.compile_seconds
    if seconds is None or earlier is None:
        return None
    if abs(seconds - earlier) <= max(COMPILE_SECONDS, COMPILE_CHANGE * earlier):
        return None
    text = METRICS["compile_seconds"].format
    return seconds > earlier, text(earlier), text(seconds)


def _memory(now: Outcome, before: Outcome) -> Judgement:
    ratio, earlier = now.memory_ratio, before.memory_ratio
    if ratio is None or earlier is None or abs(ratio / earlier - 1) <= MEMORY_CHANGE:
        return None
    text = METRICS["memory_ratio"].format
    return ratio < earlier, text(earlier), text(ratio)


JUDGES: dict[Kind, Callable[[Outcome, Outcome], Judgement]] = {
    "accuracy": _accuracy,
    "speed": _speed,
    "compile": _compile,
    "memory": _memory,
}
