"""What models come to together: the mean speedup, its interval, verdict, and what it rests on.

Models are a sample: the interval is about the mean over models like these, and holds what they
differ by as well as how far each of them is known (docs/decisions/means-over-models.md).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

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
"""With two models the interval of their mean is 18 times as wide as they lie apart."""

Ratios = Mapping[str, Ratio]
"""By model."""


class LeftOut(NamedTuple):
    """What a mean would be without one of its models."""

    model: str
    mean: float
    verdict: SpeedVerdict | None
    """None where the models that stay are too few to tell."""


@dataclass(frozen=True, kw_only=True)
class MeanSpeedup:
    """A mean over models; `ratio.n` says how many."""

    ratio: Ratio
    """Geometric mean. Interval and p-value are None with fewer than `MIN_MODELS`."""
    p_holm: float | None
    verdict: SpeedVerdict
    left_out: tuple[LeftOut, ...]
    """Each model's, those first that move the mean most."""

    @property
    def deciding(self) -> tuple[LeftOut, ...]:
        """The models without any one of which the verdict would be another one."""
        return tuple(one for one in self.left_out if one.verdict not in (None, self.verdict))


def mean_ratio(ratios: Sequence[Ratio]) -> Ratio | None:
    """Geometric mean with its 95 % interval and p-value, on logarithms
    (`storage.statistics.intervals`); each model weighs the same. What models without an
    interval stray by shows in their spread alone. None without any model."""
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
    """The later speedup over the earlier one; the intervals' squares add up on the logarithms."""
    median = now.median / before.median
    if not (now.low and now.high and before.low and before.high):
        return Ratio(median=median, low=None, high=None, p_value=None, n=min(now.n, before.n))
    half = math.hypot(_log_error(now), _log_error(before)) * ERRORS_PER_INTERVAL / 2
    low, high = median * math.exp(-half), median * math.exp(half)
    return Ratio(median=median, low=low, high=high, p_value=None, n=min(now.n, before.n))


def judge_means(rows: Sequence[Ratios], controls: Sequence[Ratios]) -> list[MeanSpeedup | None]:
    """The mean of each row of models, judged as a single speedup is (`speed_verdict`): p-values are
    Holm-corrected over the rows, and the noise floor is how far the mean of the same models'
    controls reaches from 1. None for a row without a model."""
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
    """Of this row alone: the others stay what they are."""
    rest = {name: ratio for name, ratio in row.items() if name != model}
    mean = mean_ratio(list(rest.values()))
    assert mean is not None
    if mean.low is None:
        return LeftOut(model, mean.median, None)
    return LeftOut(model, mean.median, _verdict(mean, rest, controls, p_values, index)[1])


def _verdict(
    mean: Ratio, row: Ratios, controls: Ratios, p_values: Sequence[float | None], index: int
) -> tuple[float | None, SpeedVerdict]:
    """The corrected p-value of a mean in its row's place, and what follows."""
    p_holm = holm([*p_values[:index], mean.p_value, *p_values[index + 1 :]])[index]
    floor = noise_floor([mean_ratio([controls[model] for model in row if model in controls])])
    return p_holm, speed_verdict(mean, p_holm, floor)


def _log_error(ratio: Ratio) -> float:
    """Standard error of the logarithm, by the interval; 0 where there is none."""
    if not ratio.low or not ratio.high:
        return 0.0
    return math.log(ratio.high / ratio.low) / ERRORS_PER_INTERVAL
