"""Judges another training by its outcome: whether it is as good as equal trainings are.

An arm that changes the mathematics, as another precision or larger batches do, cannot have the
baseline's losses. Its outcome is compared instead, after as many samples: the last evaluation, or
the loss at the end. The interval of the difference comes from the spread of equal trainings, as in
`storage.statistics.outcomes`; the margin was declared before (docs/parity.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.runner.judged_outcome import SIGNIFICANCE, Outcome, Quantity
from breakeven.runner.specs.values import Margin
from breakeven.storage.statistics.outcomes import (
    MIN_WINDOW_STEPS,
    NUM_STANDARD_ERRORS,
    NUM_WINDOWS,
    Floats,
    Sample,
    Trainings,
    evaluation_samples,
    prediction_half_widths,
    smooth,
    spread_of,
    window_of,
)

END_WINDOWS = NUM_WINDOWS // 2
"""Windows, each of a tenth of the steps, that show the spread of equal trainings at the end."""
LEAST_SHARE = 0.95
"""A training that ends after a smaller share of the baseline's samples has no outcome, and an
evaluation before this share is not that of the end."""
SAME_SIZE = 0.02
"""Steps have equally many samples up to this relative difference."""
MOST_ALIKE = 0.9
"""Largest correlation of neighbouring differences that a few of them can show."""
OTHER_FIRST_LOSS = 0.05
"""From the same weights, another training has the baseline's first loss up to this share: larger
differences are those of another measure of loss, or of another model."""
ROUNDING = 2e-5
"""From the same weights and samples, losses of the same function differ by less in float32."""


def find_outcome(trainings: Trainings, margin: Margin, num_steps: int) -> Outcome | None:
    """The outcome after as many samples; None without a control, or without common losses.

    `trainings`: on one scale of samples (`on_one_scale`), `num_steps`: the baseline's. A share as
    margin is one of the loss, also of an evaluation's; a number is one of accuracy, or of the loss
    where no accuracy was evaluated.
    """
    if trainings.num_controls == 0:
        return None
    by_loss = outcome_of_losses(trainings, margin)
    quantities: tuple[Quantity, ...] = ("accuracy", "evaluation loss")
    for quantity in quantities[margin.is_share :]:
        evaluated = _of_evaluations(trainings, quantity, margin, num_steps)
        if evaluated is None:
            continue
        if quantity == "accuracy" or _has_counts(trainings) or by_loss is None:
            return evaluated
        # Without a number of samples, only equal trainings show the error of an evaluation.
        return replace(evaluated, interval=max(evaluated.interval, by_loss.interval))
    return by_loss


def outcome_of_losses(trainings: Trainings, margin: Margin) -> Outcome | None:
    """By the loss of the last tenth of the steps; windows of the second half show the spread."""
    steps, losses = common_losses(trainings)
    size = max(MIN_WINDOW_STEPS, len(steps) // NUM_WINDOWS)
    ends = [*range(len(steps), size - 1, -size)][:END_WINDOWS][::-1]
    if not ends:
        return None
    samples = [window_of(steps[end - size : end], losses[:, end - size : end]) for end in ends]
    with np.errstate(invalid="ignore"):  # Infinite losses of both signs have no mean: NaN.
        error = own_error(losses[-1, -size:] - losses[:-1, -size:].mean(axis=0))
    return _outcome(trainings, "loss", smooth(samples), margin, own_error=error)


def common_losses(trainings: Trainings) -> tuple[NDArray[np.int64], Floats]:
    """The steps at which all trainings have a loss, the equal ones a finite one, and the losses of
    each; those of the judged training are the last."""
    series = [losses for losses, _ in trainings.equals]
    table = pd.concat([*series, trainings.losses], axis="columns", join="inner").sort_index()
    steps, losses = table.index.to_numpy(), table.to_numpy(dtype=float).T
    kept = np.isfinite(losses[:-1]).all(axis=0)
    return steps[kept], losses.compress(kept, axis=1)


def own_error(apart: Floats) -> float:
    """Standard error of the mean of differences that may resemble their neighbours."""
    strayed = apart - apart.mean()
    squares = float((strayed**2).sum())
    if not squares > 0:
        return 0.0
    r = min(max(float((strayed[1:] * strayed[:-1]).sum()) / squares, 0.0), MOST_ALIKE)
    count = len(apart)
    return math.sqrt(squares / (count - 1) / count * (1 + r) / (1 - r))


def _of_evaluations(
    trainings: Trainings, quantity: Quantity, margin: Margin, num_steps: int
) -> Outcome | None:
    """By the last evaluation, if it is at the end; those of the second half show the spread."""
    counted = trainings
    if not _has_counts(trainings):
        count = _least_count(trainings) if quantity == "accuracy" else 1.0
        equals = [(losses, frame.assign(num_samples=count)) for losses, frame in trainings.equals]
        counted = replace(trainings, equals=equals)
    samples = [
        sample
        for sample in evaluation_samples(counted, quantity)
        if 2 * sample.last_step > num_steps
    ]
    if not samples or samples[-1].last_step < LEAST_SHARE * num_steps:
        return None
    by_spread = quantity == "evaluation loss" and not _has_counts(trainings)
    smoothed = smooth(samples) if quantity == "evaluation loss" else samples
    return _outcome(counted, quantity, smoothed, margin, by_spread=by_spread)


def _has_counts(trainings: Trainings) -> bool:
    counts = trainings.evaluated["num_samples"]
    return bool(np.isfinite(counts).all() and (counts > 0).all())


def _least_count(trainings: Trainings) -> float:
    """The number of samples of which one makes the smallest difference of all accuracies; NaN if
    all are equal."""
    own = trainings.evaluations["accuracy"].to_numpy(dtype=float)
    values = np.unique(np.append(trainings.evaluated["accuracy"].ravel(), own).round(9))
    apart = np.diff(values[np.isfinite(values)])
    return float(1 / apart.min()) if len(apart) else math.nan


def _outcome(
    trainings: Trainings,
    quantity: Quantity,
    samples: Sequence[Sample],
    margin: Margin,
    *,
    own_error: float = 0.0,
    by_spread: bool = False,
) -> Outcome:
    """`own_error`: the standard error from the training's own distances to the equal ones, which
    may vary more than theirs; `by_spread`: whether only the spread of equal trainings is known."""
    last = samples[-1]
    expected = last.value if trainings.is_the_baselines else float(last.values.mean())
    inflation, freedom = spread_of(samples, trainings.num_controls)
    least = max(last.error, own_error) if math.isfinite(own_error) else last.error
    level = SIGNIFICANCE / trainings.num_judged
    by_chance, _ = prediction_half_widths(least, inflation, freedom, trainings.num_controls, level)
    _, shown = prediction_half_widths(last.error, inflation, freedom, trainings.num_controls, level)
    return Outcome(
        quantity=quantity,
        step=last.last_step + (quantity == "loss"),
        value=last.value,
        expected=expected,
        interval=shown if by_spread else max(by_chance, shown),
        margin=margin.amount * abs(expected) if margin.is_share else margin.amount,
        num_controls=trainings.num_controls,
        num_judged=trainings.num_judged,
        learned=None if quantity == "accuracy" else trainings.learned,
    )


def on_one_scale(
    baseline: pd.Series, controls: Sequence[pd.Series], own: pd.Series, samples_ratio: float
) -> tuple[list[pd.Series], pd.Series]:
    """Losses by amounts of samples, of equal trainings and of another one whose step has
    `samples_ratio` times the baseline's samples: means over the shorter steps, indexed by the
    baseline's steps."""
    stride = max(1.0, samples_ratio)
    equals = [_in_cells(losses, stride, stride) for losses in (baseline, *controls)]
    return equals, _in_cells(own, stride / samples_ratio, stride)


def _in_cells(losses: pd.Series, size: float, stride: float) -> pd.Series:
    """Means over `size` steps each, indexed by the baseline's step at which each begins."""
    steps, values = losses.index.to_numpy(), losses.to_numpy(dtype=float)
    cells = np.floor(steps / size + 1e-9).astype(int)
    if size > 1 and len(cells):
        starts = np.flatnonzero(np.diff(cells, prepend=cells[0] - 1))
        values = np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
        cells = cells[starts]
    return pd.Series(values, index=np.floor(cells * stride + 1e-9).astype(int), name=losses.name)


def evaluations_on_one_scale(
    own: pd.DataFrame, baseline: pd.DataFrame, samples_ratio: float
) -> pd.DataFrame:
    """A training's evaluations by the baseline's steps after as many samples, where the baseline
    was evaluated within a step of them."""
    if samples_ratio == 1.0 or own.empty or baseline.empty:
        return own
    known = baseline.index.to_numpy(float)
    steps = own.index.to_numpy(float) * samples_ratio
    nearest = known[np.abs(known[:, None] - steps[None, :]).argmin(axis=0)]
    is_near = np.abs(nearest - steps) <= max(1.0, samples_ratio)
    scaled = own[is_near].set_axis(pd.Index(nearest[is_near].astype(int), name="step"))
    return scaled[~scaled.index.duplicated(keep="last")]


@dataclass(frozen=True, kw_only=True)
class FirstLosses:
    """The losses of another training and of the baseline before any update."""

    value: float
    expected: float
    noise: float
    """Standard error of the baseline's losses from step to step."""

    @property
    def is_of_another_measure(self) -> bool:
        """Whether they differ by more than a change of mathematics or chance explains."""
        limit = max(OTHER_FIRST_LOSS * abs(self.expected), NUM_STANDARD_ERRORS * self.noise)
        return math.isfinite(self.value) and abs(self.value - self.expected) > limit

    @property
    def is_of_another_function(self) -> bool:
        """Whether they differ by more than rounding, where weights and samples are the same."""
        return abs(self.value - self.expected) > ROUNDING * abs(self.expected)


def first_losses(trainings: Trainings) -> FirstLosses | None:
    """None without losses of the first step."""
    baseline, own = trainings.equals[0][0].to_numpy(float), trainings.losses.to_numpy(float)
    if not len(baseline) or not len(own) or trainings.losses.index[0] != 0:
        return None
    first = baseline[:MIN_WINDOW_STEPS]
    noise = math.sqrt(float(np.square(np.diff(first)).mean()) / 2) if len(first) > 1 else 0.0
    return FirstLosses(value=float(own[0]), expected=float(baseline[0]), noise=noise)
