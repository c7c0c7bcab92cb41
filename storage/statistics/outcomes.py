"""Parity's coarse test: compares windows of losses and all evaluations with equal trainings.

It finds faults after rounding has driven the runs so far apart that single losses show nothing.

Baseline, controls and a correct backend are equal trainings: draws from the same distribution. A
backend differs if its distance to their mean exceeds a prediction interval, or all that was learned
(docs/parity.md; the measurements behind the constants are in docs/decisions.md).

It also measures whether and how much a training learned; without learning, agreement proves
nothing. `loss_excess` is the check of PyTorch's benchmarks/dynamo/training_loss.py, corrected. It
only tests whether a backend's loss ends at most 0.1 above the baseline's. A backend without
gradients may pass if the baseline learned little, and each fault that lowers the loss passes.
Breakeven shows the result next to `storage.statistics.parity`; it is not parity.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.runner.judged_outcome import UNTOLD_LIMIT, Quantity

NUM_WINDOWS = 10
"""Windows into which the steps after the band are divided."""
MIN_WINDOW_STEPS = 5
SIGNIFICANCE = 0.01
"""Chance that an equal training has any reading outside: half of it for the losses, a quarter each
for loss and accuracy of evaluations. Half of each share is for the last reading."""
MAX_TELLING_SHARE = 0.25
"""A difference above this share of the learned amount is never called the same."""
STRAYED_TIMES = 2.5
"""A reading is only outside if it is at least this many times as far from the mean of the equal
trainings as any of them is from the mean of the others, in the same reading or its neighbours:
their spread may differ between the parts of a training (docs/decisions.md)."""

EVALUATED = ["loss", "accuracy", "num_samples"]

Floats = NDArray[np.float64]
SHARES: dict[Quantity, float] = {"loss": 0.5, "evaluation loss": 0.25, "accuracy": 0.25}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One outcome of a backend, with the outcomes of equal trainings."""

    quantity: Quantity
    first_step: int
    """The first step of a window; for an evaluation the number of steps done, like `last_step`."""
    last_step: int
    value: float
    """The backend's value."""
    expected: float
    """Mean of baseline and controls."""
    interval: float
    """Half width of the prediction interval around `expected`; infinite if the spread of equal
    trainings is unknown."""
    learned: float | None
    """Progress of equal trainings since their start; None if there was no clear progress."""
    explained: float = 0.0
    """Difference that chance alone explains, however little was learned."""
    nearby: float = 0.0
    """Largest difference that equal trainings in this reading and its neighbours excuse: it is not
    broken, but beyond `interval` not the same either."""

    @property
    def difference(self) -> float:
        return self.value - self.expected

    @property
    def allowed(self) -> float:
        """Largest difference that is not broken: at most the whole learned amount.

        If the spread of equal trainings is unknown, one of them may have learned nothing, or more
        than the others. Then only a loss that is even worse is a fault, and no accuracy is. If they
        have learned nothing, a backend that learned may be one that began to learn earlier.
        """
        is_better = (self.difference > 0) == (self.quantity == "accuracy")
        if self.learned is None and is_better:
            return math.inf
        if math.isfinite(self.interval):
            return self._at_most(1.0, max(self.interval, self.nearby))
        may_be_equal = self.quantity == "accuracy" or self.difference < 0
        return math.inf if may_be_equal else self._at_most(UNTOLD_LIMIT, self.interval)

    @property
    def ratio(self) -> float:
        """The difference over the allowed one; infinite for a value that is not finite."""
        size = abs(self.difference)
        if not math.isfinite(size):
            return math.inf
        return 0.0 if size == 0 else size / self.allowed if self.allowed else math.inf

    @property
    def is_outside(self) -> bool:
        return self.ratio > 1

    @property
    def limit(self) -> float:
        """Largest difference that may be called the same."""
        return self._at_most(MAX_TELLING_SHARE, self.interval)

    @property
    def is_same(self) -> bool:
        return math.isfinite(self.difference) and abs(self.difference) <= self.limit

    def _at_most(self, share: float, width: float) -> float:
        if self.learned is None:
            return width
        return min(width, max(share * self.learned, self.explained))


@dataclass(frozen=True, kw_only=True)
class Trainings:
    """The records of baseline, controls and a backend. The baseline is the first of `equals`.

    Losses are indexed by step, evaluations by steps done, with `loss`, `accuracy`, `num_samples`.
    """

    equals: Sequence[tuple[pd.Series, pd.DataFrame]]
    losses: pd.Series
    evaluations: pd.DataFrame
    samples_per_step: float
    learned: float | None
    """Largest fall of the losses of `equals`; None if the baseline's loss did not fall clearly."""
    learned_accuracy: float | None
    """Largest excess of their accuracies over always guessing one label; None if there is none."""
    num_judged: int = 1
    """Trainings of the experiment that may be judged by their outcome, and share its error."""

    @property
    def num_controls(self) -> int:
        return len(self.equals) - 1

    @cached_property
    def evaluated(self) -> dict[str, Floats]:
        """By column, what each of `equals` has at the steps of the backend's evaluations; NaN where
        it has nothing."""
        placed = [
            (frame, frame.index.get_indexer(self.evaluations.index)) for _, frame in self.equals
        ]
        # The place -1, of a step without an evaluation, is that of the additional NaN.
        return {
            name: np.column_stack(
                [
                    np.append(frame[name].to_numpy(float), math.nan)[places]
                    for frame, places in placed
                ]
            )
            for name in EVALUATED
        }

    @property
    def is_the_baselines(self) -> bool:
        """Whether all losses and evaluations are the baseline's, bit for bit. Then the backend made
        the baseline's training, however far other equal trainings are from it."""
        losses, evaluations = self.equals[0]
        return bool(
            self.losses.equals(losses)
            and self.evaluations[EVALUATED].equals(evaluations[EVALUATED])
        )


@dataclass(frozen=True)
class Sample:
    """The steps of a reading, its values in all trainings, and its standard error."""

    first_step: int
    last_step: int
    values: Floats
    value: float
    error: float
    """Standard error of one training's reading that comes from its own samples."""


def readings(trainings: Trainings, after: int, least: float = 0.0) -> list[Reading]:
    """Windows of the losses from step `after` on, and all evaluations, in the order of their steps.

    No interval of a window is narrower than `least`. Empty without a control.
    """
    if trainings.num_controls == 0:
        return []
    all_readings = [*_windows(trainings, after, least)]
    for quantity in ("evaluation loss", "accuracy"):
        samples = evaluation_samples(trainings, quantity)
        # Equal trainings have different spreads before and after they diverge.
        early = [sample for sample in samples if sample.last_step <= after]
        late = [sample for sample in samples if sample.last_step > after]
        if quantity == "evaluation loss":
            early, late = smooth(early), smooth(late)
        count = len(early) + len(late)
        for group, has_last in ((early, not late), (late, True)):
            all_readings += _judge(trainings, quantity, group, count, has_last)
    if trainings.is_the_baselines:
        all_readings = [replace(reading, expected=reading.value) for reading in all_readings]
    return sorted(all_readings, key=lambda reading: (reading.last_step, reading.first_step))


def without_spikes(
    all_readings: Sequence[Reading], is_wrong: Callable[[Reading], bool]
) -> list[Reading]:
    """The wrong readings without temporary spikes, which any training may have: the last reading of
    a quantity, and readings with a wrong neighbour."""
    kept = []
    for quantity in SHARES:
        of_quantity = [reading for reading in all_readings if reading.quantity == quantity]
        wrong = [is_wrong(reading) for reading in of_quantity]
        for index, reading in enumerate(of_quantity):
            is_last = index == len(of_quantity) - 1
            has_neighbour = (index > 0 and wrong[index - 1]) or is_last or wrong[index + 1]
            if wrong[index] and has_neighbour:
                kept.append(reading)
    return sorted(kept, key=lambda reading: (reading.last_step, reading.first_step))


def _windows(trainings: Trainings, after: int, least: float) -> list[Reading]:
    series = [losses for losses, _ in trainings.equals]
    table = pd.concat([*series, trainings.losses], axis="columns", join="inner").sort_index()
    steps, losses = table.index.to_numpy(), table.to_numpy(dtype=float).T
    kept = (steps >= after) & np.isfinite(losses[:-1]).all(axis=0)
    steps, losses = steps[kept], losses.compress(kept, axis=1)
    size = max(MIN_WINDOW_STEPS, len(steps) // NUM_WINDOWS)
    ends = [*range(len(steps), size - 1, -size)][::-1]
    samples = [window_of(steps[end - size : end], losses[:, end - size : end]) for end in ends]
    return _judge(trainings, "loss", smooth(samples), len(samples), True, least)


@np.errstate(invalid="ignore")  # Infinite losses of both signs have no mean: NaN.
def window_of(steps: NDArray[np.int64], losses: Floats) -> Sample:
    """One window of the losses of the equals and, in the last row, the backend. Its error is the
    standard error of a mean of independent steps with the same spread around the mean of the
    equals."""
    equals = losses[:-1].T
    strayed = equals - equals.mean(axis=1, keepdims=True)
    count = equals.shape[1]
    variance = strayed.var(axis=0).mean() * count / (count - 1)
    return Sample(
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        values=equals.mean(axis=0),
        value=float(losses[-1].mean()),
        error=math.sqrt(variance / len(steps)),
    )


def smooth(samples: Sequence[Sample]) -> list[Sample]:
    """Replaces errors, which are from few steps, by the root mean square with their neighbours."""
    squares = np.square([sample.error for sample in samples])
    return [
        replace(sample, error=math.sqrt(squares[max(0, index - 1) : index + 2].mean()))
        for index, sample in enumerate(samples)
    ]


def evaluation_samples(trainings: Trainings, quantity: Quantity) -> list[Sample]:
    column = "accuracy" if quantity == "accuracy" else "loss"
    samples = []
    steps = trainings.evaluations.index
    values_of, right_of = (trainings.evaluated[name] for name in (column, "accuracy"))
    # A script need not report the number of samples; without it the error is unknown.
    counts = trainings.evaluated["num_samples"][:, 0]
    own = trainings.evaluations[column].to_numpy(dtype=float)
    for step, values, right, count, value in zip(
        steps, values_of, right_of, counts, own, strict=True
    ):
        if not np.isfinite(values).all() or not count > 0:
            continue
        if quantity == "accuracy":
            if math.isnan(value):
                continue
            error = share_error(float(values.mean()), float(count))
        else:
            error = _loss_error(trainings, step, values, right, float(count))
        samples.append(Sample(int(step), int(step), values, float(value), error))
    return samples


def share_error(share: float, count: float) -> float:
    """Standard error of a share among `count` samples. The share is moved slightly away from 0 and
    1, where the error would be 0 (Agresti and Coull 1998, with one more sample on either side).

    Each sample counts once even for shares of tokens, because the errors of the tokens of a text
    are not independent.
    """
    pulled = (share * count + 1) / (count + 2)
    return math.sqrt(pulled * (1 - pulled) / count)


def _loss_error(
    trainings: Trainings, step: int, values: Floats, right: Sequence[float], count: float
) -> float:
    """Standard error of a mean loss over `count` samples, the larger of two estimates. `values` has
    the loss and `right` the accuracy of each equal training.

    The first estimate is from the spread of all equals' training losses before the evaluation. This
    spread is almost 0 for a model that has memorised its training samples, but its evaluation still
    has errors. The second estimate therefore assumes that only the wrong answers, a share q of all,
    have a loss: value x sqrt((1 - q) / (q count)).
    """
    spreads = [_recent_spread(losses, step) for losses, _ in trainings.equals]
    error = math.sqrt(float(np.mean(np.square(spreads))) * trainings.samples_per_step / count)
    share = float(np.mean(right))
    if math.isnan(share):
        return error
    # sqrt((1 - q) q / count) / q, with the share moved from 0 and 1 as in `share_error`.
    wrong = ((1 - share) * count + 1) / (count + 2)
    return max(error, abs(float(values.mean())) * share_error(1 - share, count) / wrong)


def _recent_spread(losses: pd.Series, step: int) -> float:
    """Standard deviation of the training losses before an evaluation."""
    before = losses.to_numpy()[: losses.index.to_numpy().searchsorted(step)]
    recent = before[-max(MIN_WINDOW_STEPS, len(losses) // NUM_WINDOWS) :]
    recent = recent[np.isfinite(recent)]
    return float(recent.std(ddof=1)) if len(recent) > 1 else 0.0


def _judge(
    trainings: Trainings,
    quantity: Quantity,
    samples: Sequence[Sample],
    count: int,
    has_last: bool,
    least: float = 0.0,
) -> list[Reading]:
    """Readings of one quantity; `count` of them share the chance of a false alarm."""
    learned = trainings.learned_accuracy if quantity == "accuracy" else trainings.learned
    inflation, freedom = spread_of(samples, trainings.num_controls)
    farthest = [_farthest(sample) for sample in samples]
    judged = []
    for index, sample in enumerate(samples):
        is_last = has_last and index == len(samples) - 1
        level = _level(SIGNIFICANCE * SHARES[quantity], count, is_last)
        explained, shown = prediction_half_widths(
            sample.error, inflation, freedom, trainings.num_controls, level
        )
        judged.append(
            Reading(
                quantity=quantity,
                first_step=sample.first_step,
                last_step=sample.last_step,
                value=sample.value,
                expected=float(sample.values.mean()),
                interval=max(explained, shown, least),
                learned=learned,
                explained=explained,
                nearby=STRAYED_TIMES * max(farthest[max(0, index - 1) : index + 2]),
            )
        )
    return judged


def _level(total: float, count: int, is_last: bool) -> float:
    """A reading's chance of a false alarm: half for the last one, the rest divided equally."""
    if count == 1:
        return total
    return total / 2 if is_last else total / 2 / (count - 1)


def spread_of(samples: Sequence[Sample], num_controls: int) -> tuple[float, float]:
    """The spread of equal trainings in standard errors, as root mean square over all samples, and
    the degrees of freedom of this estimate.

    Correlated neighbours add little information: n samples count as n (1 - r) / (1 + r), at least
    as one, where r is the correlation of neighbours (Bartlett 1946).
    """
    strayed = np.array(
        [
            (sample.values - sample.values.mean()) / sample.error
            for sample in samples
            if sample.error
        ]
    )
    if not len(strayed):
        return 0.0, num_controls
    squares = (strayed**2).sum(axis=1) / num_controls
    alike = float((strayed[1:] * strayed[:-1]).sum())
    r = min(max(alike / float((strayed**2).sum() or 1.0), 0.0), 1.0)
    independent = max(1.0, len(strayed) * (1 - r) / (1 + r))
    return math.sqrt(squares.mean()), num_controls * independent


def _farthest(sample: Sample) -> float:
    """The largest distance of an equal training from the mean of the others."""
    values = sample.values
    from_mean = float(np.abs(values - values.mean()).max())
    return from_mean * len(values) / (len(values) - 1)


def prediction_half_widths(
    error: float, inflation: float, freedom: float, num_controls: int, level: float
) -> tuple[float, float]:
    """Half widths of the two-sided prediction interval for a further equal training, around the
    mean of baseline and controls, in units of sqrt(1 + 1 / (controls + 1)) standard errors: from
    chance alone (normal), and from the spread of equal trainings (Student's t x `inflation`)."""
    from scipy.special import ndtri, stdtrit  # here, because the import is slow and rarely needed

    unit = error * math.sqrt(1 + 1 / (num_controls + 1))
    shown = float(stdtrit(freedom, 1 - level / 2)) * inflation
    return float(ndtri(1 - level / 2)) * unit, shown * unit


NUM_STANDARD_ERRORS = 3.0
"""Standard errors by which an accuracy must exceed guessing to count as learned."""
LEAST_FALL = 0.03
"""Share of the first loss by which a loss must fall, in addition to what chance explains, to count
as learned. A loss at chance may drift by 2 % without any use of the inputs (docs/decisions.md)."""
LEAST_STEEP_FALL = 0.3
"""The same share for a fall that includes the first tenth of the steps: random answers of an
untrained model cost more than guessing, and a loss that falls to chance shows no learning."""
TIMES_NOISE = 4.0
"""Standard deviations of the difference of two windows that chance explains."""
FEWEST_STEPS, MOST_STEPS, LEAST_WINDOWS = 3, 5, 5
"""The shortest windows have a tenth of the steps, between these two; the longest ones are at most
the steps over `LEAST_WINDOWS`."""
LONGEST_LAG = 8
"""Noise is measured between windows that are at most the steps over this number apart."""
OVERLAP = 5
"""Windows follow each other by the steps of a window over this number."""
LEAST_LEARNING_STEPS = 12
"""Four windows of the shortest size; fewer show no noise."""

WINDOW_STEPS = 100
MAX_WINDOWS = 10
ALLOWED_EXCESS = 0.1
LossCheck = Literal["passes", "fails"]


@dataclass(frozen=True, kw_only=True)
class Fall:
    """How far a loss fell, between the medians of two windows of steps."""

    start: float
    """The first window's, or the lowest of shorter first windows; windows begin with the training,
    or after its first tenth."""
    end: float
    """The last window's."""
    needed: float
    """The fall that shows learning: what chance explains and a share of `start`."""

    @property
    def is_clear(self) -> bool:
        return self.start - self.end > self.needed


def loss_fall(losses: Floats) -> Fall | None:
    """The fall of a loss that most exceeds what it needs, over windows of all lengths, each twice
    as long as the one before: short ones show a steep fall at the start, long ones a fall in much
    noise. None if there are too few losses, or if the first or last ones are not finite."""
    size = max(FEWEST_STEPS, len(losses) // 10)
    if not (np.isfinite(losses[:size]).all() and np.isfinite(losses[-size:]).all()):
        return None
    losses = losses[np.isfinite(losses)]
    if len(losses) < LEAST_LEARNING_STEPS:
        return None
    later, size = size, min(size, MOST_STEPS)
    falls: list[Fall] = []
    at_first = after = math.inf
    while not falls or size <= len(losses) // LEAST_WINDOWS:
        end, by_chance = _end_and_chance(losses, size)
        # A rise of the loss during warm-up must not count as a fall afterwards.
        at_first = min(at_first, float(np.median(losses[:size])))
        after = min(after, at_first, float(np.median(losses[later : later + size])))
        for start, least in ((at_first, LEAST_STEEP_FALL), (after, LEAST_FALL)):
            falls.append(Fall(start=start, end=end, needed=by_chance + least * abs(start)))
        size *= 2
    return max(falls, key=lambda fall: fall.start - fall.end - fall.needed)


def _end_and_chance(losses: Floats, size: int) -> tuple[float, float]:
    """The median of the last `size` losses, and the difference of two such medians that chance
    explains. Medians leave single outliers out."""
    hop = max(1, size // OVERLAP)
    # From the end backwards, so that the last window has the last step.
    windows = np.lib.stride_tricks.sliding_window_view(losses, size)[::-hop][::-1]
    medians = np.median(windows, axis=1)
    noise = _noise(medians, size / hop, len(losses) / hop)
    return float(medians[-1]), TIMES_NOISE * math.sqrt(2) * noise


def _noise(medians: Floats, lag: float, length: float) -> float:
    """Standard deviation of a window's median by chance alone, from second differences, which are
    free of a steady fall (Gasser, Sroka and Jennen-Steinmetz 1986). Their median leaves out a fall
    within few steps. The largest value of several distances counts, because nearby windows are
    alike if the noise of steps is correlated, or if harder samples follow easier ones.

    `lag` and `length` are the steps of a window and of the training, in units of the distance of
    successive medians.
    """
    medians_off: list[float] = []
    while not medians_off or lag <= length / LONGEST_LAG:
        apart = round(lag)
        second = medians[2 * apart :] - 2 * medians[apart:-apart] + medians[: -2 * apart]
        medians_off.append(float(np.median(np.abs(second))) if len(second) else 0.0)
        lag *= 2
    # Half of all normal numbers are within 0.6745; 1 + 4 + 1 is the variance of such a difference.
    return max(medians_off) / (0.6745 * math.sqrt(6))


def learned_by_loss(fall: Fall | None, equals: Sequence[pd.Series]) -> float | None:
    """The largest fall of the losses of baseline and controls, from their first steps to their
    lowest window; None if `fall`, the `loss_fall` of the baseline, is not clear."""
    if fall is None or not fall.is_clear:
        return None
    return max(filter(math.isfinite, map(_fall, equals)), default=None)


@np.errstate(invalid="ignore")  # Infinite losses of both signs have no mean: NaN.
def _fall(losses: pd.Series) -> float:
    size = max(MIN_WINDOW_STEPS, len(losses) // NUM_WINDOWS)
    windows = losses.rolling(size).mean()
    return float(losses.iloc[:MIN_WINDOW_STEPS].mean() - windows.min())


def learned_by_accuracy(
    accuracies: Sequence[pd.Series], majority_share: float | None
) -> float | None:
    """The difference of the best accuracy to always guessing one label; None if not above 0."""
    best = max(
        (float(accuracy.max()) for accuracy in accuracies if accuracy.notna().any()),
        default=math.nan,
    )
    if majority_share is None or not best > majority_share:
        return None
    return best - majority_share


def has_learned(
    fall: Fall | None, accuracy: float | None, majority_share: float | None, num_samples: int | None
) -> bool:
    """Whether the loss fell clearly, or the accuracy is above always guessing one label by three
    standard errors of a share among `num_samples`."""
    fell = fall is not None and fall.is_clear
    return fell or _beats_guessing(accuracy, majority_share, num_samples)


def _beats_guessing(
    accuracy: float | None, majority_share: float | None, num_samples: int | None
) -> bool:
    if accuracy is None or majority_share is None or not num_samples:
        return False
    error = math.sqrt(majority_share * (1 - majority_share) / num_samples)
    return accuracy > majority_share + NUM_STANDARD_ERRORS * error


@np.errstate(invalid="ignore")  # Infinite losses of both signs have no mean: NaN.
def loss_excess(baseline: pd.Series, backend: pd.Series) -> float | None:
    """Mean loss over the last windows of 100 steps, the backend's minus the baseline's.

    Losses are indexed by step. Windows are complete, and ten at most; None if the runs have none in
    common. The original always divides by ten: with one window it allows 1.0 instead of 0.1, and
    without a window everything passes.
    """
    common = baseline.index.intersection(backend.index).sort_values()
    num_windows = len(common) // WINDOW_STEPS
    if num_windows == 0:
        return None
    end = num_windows * WINDOW_STEPS
    last = common[max(0, end - MAX_WINDOWS * WINDOW_STEPS) : end]
    loss, baseline_loss = (
        backend.loc[last].mean(skipna=False),
        baseline.loc[last].mean(skipna=False),
    )
    return float(loss) - float(baseline_loss)


def check_loss(excess: float | None) -> LossCheck | None:
    """Whether the loss ends low enough; NaN fails."""
    if excess is None:
        return None
    return "passes" if excess <= ALLOWED_EXCESS else "fails"
