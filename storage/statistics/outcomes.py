"""Parity's coarse test: windows of losses and all evaluations, compared with equal trainings.

It tells right from wrong where no single loss does, because rounding has driven them all apart.

Baseline and controls are equal trainings, and so is a correct backend: a further draw from the same
distribution. A difference to their mean that is larger than a prediction interval, or than all that
was learned, is none of theirs (docs/metrics.md; the measurements behind the constants are in
docs/parity.md).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

NUM_WINDOWS = 10
"""Windows into which the steps after the band are divided."""
MIN_WINDOW_STEPS = 5
SIGNIFICANCE = 0.01
"""Chance that an equal training has a reading outside, over all its readings: half of it for the
losses, a quarter each for loss and accuracy of evaluations, and half of each for the last one."""
MAX_TELLING_SHARE = 0.25
"""A difference beyond this share of what was learned is never called the same."""
UNTOLD_LIMIT = 2.0
"""Times what was learned from which on a loss is too high to be no fault, where nothing tells how
far equal trainings stray. One that learned nothing lies at 1, and correct ones come to that
(docs/parity.md)."""

Floats = NDArray[np.float64]
Quantity = Literal["loss", "evaluation loss", "accuracy"]
SHARES: dict[Quantity, float] = {"loss": 0.5, "evaluation loss": 0.25, "accuracy": 0.25}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One outcome of a backend, with the outcomes of equal trainings."""

    quantity: Quantity
    first_step: int
    """Of a window its first step; of an evaluation the number of steps done, as `last_step`."""
    last_step: int
    value: float
    """The backend's."""
    expected: float
    """Mean of baseline and controls."""
    interval: float
    """Half width of the prediction interval around `expected`; infinite where nothing tells how far
    equal trainings stray."""
    learned: float | None
    """How far equal trainings came from where they began; None where they did not come far."""
    explained: float = 0.0
    """What chance alone explains of a difference, however little was learned."""

    @property
    def difference(self) -> float:
        return self.value - self.expected

    @property
    def allowed(self) -> float:
        """Half width of what is not called broken: never wider than all that was learned.

        Where nothing tells how far equal trainings stray, any of them may have learned nothing, or
        more than the others: then only a loss that is worse than that is a fault, and no accuracy.
        """
        if math.isfinite(self.interval):
            return self._at_most(1.0)
        may_be_equal = self.quantity == "accuracy" or self.difference < 0
        return math.inf if may_be_equal else self._at_most(UNTOLD_LIMIT)

    @property
    def ratio(self) -> float:
        """The difference over what is allowed; infinite for a value that is not finite."""
        size = abs(self.difference)
        if not math.isfinite(size):
            return math.inf
        return 0.0 if size == 0 else size / self.allowed if self.allowed else math.inf

    @property
    def is_outside(self) -> bool:
        return self.ratio > 1

    @property
    def limit(self) -> float:
        """Half width of what may be called the same."""
        return self._at_most(MAX_TELLING_SHARE)

    @property
    def is_same(self) -> bool:
        return math.isfinite(self.difference) and abs(self.difference) <= self.limit

    def _at_most(self, share: float) -> float:
        if self.learned is None:
            return self.interval
        return min(self.interval, max(share * self.learned, self.explained))


@dataclass(frozen=True, kw_only=True)
class Trainings:
    """What baseline, controls and a backend recorded. The baseline stands first among the equals.

    Losses are indexed by step, evaluations by steps done, with `loss`, `accuracy`, `num_samples`.
    """

    equals: Sequence[tuple[pd.Series, pd.DataFrame]]
    losses: pd.Series
    evaluations: pd.DataFrame
    samples_per_step: float
    learned: float | None
    """How far the equals' losses fell at most; None if the baseline's did not clearly."""
    learned_accuracy: float | None
    """How far their accuracies rose above always guessing one label; None if none did."""

    @property
    def num_controls(self) -> int:
        return len(self.equals) - 1


@dataclass(frozen=True)
class _Sample:
    """Where a reading lies, what equal trainings read there, and how far chance alone moves it."""

    first_step: int
    last_step: int
    values: Floats
    value: float
    error: float
    """Standard error of one training's reading, as far as its own samples explain it."""


def readings(trainings: Trainings, after: int, least: float = 0.0) -> list[Reading]:
    """Windows of the losses from step `after` on, and all evaluations, in the order of their steps.

    No interval of a window's is narrower than `least`. Empty without a control.
    """
    if trainings.num_controls == 0:
        return []
    found = [*_windows(trainings, after, least)]
    done = trainings.evaluations.index
    for quantity in ("evaluation loss", "accuracy"):
        # How far equal trainings stray is another question before they part than after.
        early, late = (
            _evaluation_samples(trainings, quantity, steps)
            for steps in (done[done <= after], done[done > after])
        )
        count = len(early) + len(late)
        for group, has_last in ((early, not late), (late, True)):
            found += _judge(trainings, quantity, group, count, has_last)
    return sorted(found, key=lambda one: (one.last_step, one.first_step))


def without_spikes(found: Sequence[Reading], is_wrong: Callable[[Reading], bool]) -> list[Reading]:
    """The wrong readings that are no passing spike, which any training may have: the last one of a
    quantity, and those that have a wrong neighbour."""
    kept = []
    for quantity in SHARES:
        mine = [one for one in found if one.quantity == quantity]
        wrong = [is_wrong(one) for one in mine]
        for index, one in enumerate(mine):
            is_last = index == len(mine) - 1
            has_neighbour = (index > 0 and wrong[index - 1]) or is_last or wrong[index + 1]
            if wrong[index] and has_neighbour:
                kept.append(one)
    return sorted(kept, key=lambda one: (one.last_step, one.first_step))


def _windows(trainings: Trainings, after: int, least: float) -> list[Reading]:
    series = [losses for losses, _ in trainings.equals]
    table = pd.concat([*series, trainings.losses], axis="columns", join="inner").sort_index()
    table = table[table.index >= after]
    table = table[np.isfinite(table.iloc[:, :-1]).all(axis="columns")]
    size = max(MIN_WINDOW_STEPS, len(table) // NUM_WINDOWS)
    samples = [_window(table.iloc[end - size : end]) for end in range(len(table), size - 1, -size)][
        ::-1
    ]
    return _judge(trainings, "loss", _smooth(samples), len(samples), True, least)


def _window(steps: pd.DataFrame) -> _Sample:
    """The error is that of a mean of independent steps whose differences to the equals' mean stray
    as they do here."""
    equals = steps.iloc[:, :-1].to_numpy(dtype=float)
    strayed = equals - equals.mean(axis=1, keepdims=True)
    count = equals.shape[1]
    variance = strayed.var(axis=0).mean() * count / (count - 1)
    return _Sample(
        first_step=int(steps.index[0]),
        last_step=int(steps.index[-1]),
        values=equals.mean(axis=0),
        value=float(steps.iloc[:, -1].mean(skipna=False)),
        error=math.sqrt(variance / len(steps)),
    )


def _smooth(samples: Sequence[_Sample]) -> list[_Sample]:
    """Each with the error of itself and its neighbours, in the mean square: few steps tell it."""
    squares = np.square([sample.error for sample in samples])
    return [
        replace(sample, error=math.sqrt(squares[max(0, index - 1) : index + 2].mean()))
        for index, sample in enumerate(samples)
    ]


def _evaluation_samples(
    trainings: Trainings, quantity: Quantity, steps: Iterable[int]
) -> list[_Sample]:
    column = "accuracy" if quantity == "accuracy" else "loss"
    samples = []
    for step in steps:
        tables = [evaluations for _, evaluations in trainings.equals]
        if not all(step in table.index for table in tables):
            continue
        values = np.array([table.at[step, column] for table in tables], dtype=float)
        num_samples = tables[0].at[step, "num_samples"]
        # A script need not say of how many: then nothing tells how far chance moves it.
        count = 0.0 if pd.isna(num_samples) else float(num_samples)
        if not np.isfinite(values).all() or not count:
            continue
        value = float(trainings.evaluations.at[step, column])
        if quantity == "accuracy":
            if math.isnan(value):
                continue
            error = share_error(float(values.mean()), count)
        else:
            right = [table.at[step, "accuracy"] for table in tables]
            error = _loss_error(trainings, step, values, right, count)
        samples.append(_Sample(int(step), int(step), values, value, error))
    return _smooth(samples) if quantity == "evaluation loss" else samples


def share_error(share: float, count: float) -> float:
    """Standard error of a share among so many samples, pulled a little from 0 and 1, where it would
    be none (Agresti and Coull 1998, with one sample more on either side).

    Shares of tokens are counted as if each sample had only one, because the tokens of a text do not
    err independently.
    """
    pulled = (share * count + 1) / (count + 2)
    return math.sqrt(pulled * (1 - pulled) / count)


def _loss_error(
    trainings: Trainings, step: int, values: Floats, right: Sequence[float], count: float
) -> float:
    """Standard error of a mean loss over so many samples, `values` being that of each equal
    training and `right` its accuracy: the larger of two.

    One is what the spread of all equals' training losses before the evaluation makes of it. A model
    that knows its training samples by heart spreads there by next to nothing, and errs as before
    where it is evaluated; so the other is that of a loss which lies on the wrong answers alone, a
    share q of all: value x sqrt((1 - q) / (q count)).
    """
    spreads = [_recent_spread(losses, step) for losses, _ in trainings.equals]
    error = math.sqrt(float(np.mean(np.square(spreads))) * trainings.samples_per_step / count)
    share = float(np.mean(right))
    if math.isnan(share):
        return error
    # sqrt((1 - q) q / count) / q, the share being pulled from 0 and 1 as there.
    wrong = ((1 - share) * count + 1) / (count + 2)
    return max(error, abs(float(values.mean())) * share_error(1 - share, count) / wrong)


def _recent_spread(losses: pd.Series, step: int) -> float:
    """Standard deviation of the training losses before an evaluation."""
    before = losses.to_numpy()[: losses.index.searchsorted(step)]
    recent = before[-max(MIN_WINDOW_STEPS, len(losses) // NUM_WINDOWS) :]
    recent = recent[np.isfinite(recent)]
    return float(recent.std(ddof=1)) if len(recent) > 1 else 0.0


def _judge(
    trainings: Trainings,
    quantity: Quantity,
    samples: Sequence[_Sample],
    count: int,
    has_last: bool,
    least: float = 0.0,
) -> list[Reading]:
    """Intervals of readings of one kind, `count` of which share the chance of a false alarm."""
    learned = trainings.learned_accuracy if quantity == "accuracy" else trainings.learned
    inflation, freedom = _inflation(samples, trainings.num_controls)
    found = []
    for index, sample in enumerate(samples):
        is_last = has_last and index == len(samples) - 1
        level = _level(SIGNIFICANCE * SHARES[quantity], count, is_last)
        explained, shown = prediction_half_widths(
            sample.error, inflation, freedom, trainings.num_controls, level
        )
        found.append(
            Reading(
                quantity=quantity,
                first_step=sample.first_step,
                last_step=sample.last_step,
                value=sample.value,
                expected=float(sample.values.mean()),
                interval=max(explained, shown, least),
                learned=learned,
                explained=explained,
            )
        )
    return found


def _level(total: float, count: int, is_last: bool) -> float:
    """Its part of the chance of a false alarm: half for the last one, the rest shared evenly."""
    if count == 1:
        return total
    return total / 2 if is_last else total / 2 / (count - 1)


def _inflation(samples: Sequence[_Sample], num_controls: int) -> tuple[float, float]:
    """How many standard errors equal trainings stray, as root mean square over all samples, and the
    degrees of freedom that this rests on.

    Neighbours that stray alike tell the same thing again: n samples count as n (1 - r) / (1 + r),
    r being the correlation of neighbours (Bartlett 1946), and at least as one.
    """
    strayed = np.array(
        [(one.values - one.values.mean()) / one.error for one in samples if one.error]
    )
    if not len(strayed):
        return 0.0, num_controls
    squares = (strayed**2).sum(axis=1) / num_controls
    alike = float((strayed[1:] * strayed[:-1]).sum())
    r = min(max(alike / float((strayed**2).sum() or 1.0), 0.0), 1.0)
    independent = max(1.0, len(strayed) * (1 - r) / (1 + r))
    return math.sqrt(squares.mean()), num_controls * independent


def prediction_half_widths(
    error: float, inflation: float, freedom: float, num_controls: int, level: float
) -> tuple[float, float]:
    """Half widths of the two-sided prediction interval for one further equal training, around the
    mean of baseline and controls, sqrt(1 + 1 / (controls + 1)) standard errors wide: by what chance
    alone explains (normal), and by what equal trainings showed (Student's t x `inflation`)."""
    from scipy.special import ndtri, stdtrit  # here, because it takes time that no list needs

    unit = error * math.sqrt(1 + 1 / (num_controls + 1))
    shown = float(stdtrit(freedom, 1 - level / 2)) * inflation
    return float(ndtri(1 - level / 2)) * unit, shown * unit
