"""Decides from the journals whether an outcome needs another control, once all runs have finished.

An arm that changes the mathematics is judged by what it has learned at the end, against the spread
of equal trainings (`storage/statistics/as_good.py`, docs/parity.md#outcome). One control shows
little of this spread. And because equal trainings may end in one of several states, an arm is only
called worse if none of several controls ends like it: with six, chance does this to less than 5 %
of such trainings, whatever the share p of the worse state, as (1 - p)^7 p is at most 4.9 %.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import NormalDist, fmean, pvariance
from typing import NamedTuple

from breakeven.runner.judged_outcome import SIGNIFICANCE, Outcome, Quantity
from breakeven.runner.loss_band import Losses, half_widths
from breakeven.runner.more_controls import (
    MAX_SECONDS,
    MIN_WINDOW_STEPS,
    NUM_WINDOWS,
    Training,
    read_training,
)
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.experiment_fields import CONTROLS_FOR_WORSE
from breakeven.runner.specs.training import Precision
from breakeven.runner.specs.values import Margin, parse_margin

AT_END = 0.95
"""An evaluation after a smaller share of the steps is not that of the end."""


class Spread(NamedTuple):
    """An outcome of equal trainings, and how far chance moves it."""

    values: Sequence[float]
    half_width: float
    """Of the interval of one more training around their mean."""


def why_outcome_open(
    spec: ExperimentSpec, environment: str | None, finished: Iterable[tuple[RunDir, Arm]]
) -> str | None:
    """Why another control is needed for an arm of an environment that is judged by its outcome, in
    a sentence; None if it is not needed, if enough controls finished, or if all of them together
    take more than `MAX_SECONDS`.

    Raises `RunnerError`, `LookupError`, `TypeError` or `ValueError` for a damaged journal.
    """
    runs = [(run, arm) for run, arm in finished if arm.environment == environment]
    judged = [run for run, arm in runs if spec.may_be_judged_by_outcome(arm)]
    if not judged:
        return None
    equals = [
        read_training(run)
        for role in ("baseline", "control")
        for run, arm in runs
        if arm.role == role
    ]
    num_controls = len(equals) - 1
    seconds = max((control.seconds for control in equals[1:]), default=0.0)
    is_enough = not 0 < num_controls < CONTROLS_FOR_WORSE
    if is_enough or num_controls * seconds > MAX_SECONDS:
        return None
    margin, num_judged = parse_margin(spec.margin), spec.num_judged_by_outcome
    band_in = spec.training.precision if spec.same == "auto" else None
    for run in judged:
        if is_open(equals, read_training(run), margin, num_judged, band_in):
            return (
                f"one more control, which takes about {seconds:.0f} s: what "
                f"{run.run_id.rpartition('.')[2]} learned is too near to the margin, or too far "
                f"from {len(equals)} equal trainings, to be judged by them"
            )
    return None


def is_open(
    equals: Sequence[Training],
    own: Training,
    margin: Margin,
    num_judged: int = 1,
    band_in: Precision | None = None,
) -> bool:
    """Whether more controls may decide about a training, one of `num_judged`; the baseline is the
    first of `equals`. `band_in`: the precision in which a training that stays in the band is judged
    step by step, unless its loss is higher by more than the margin, which a wide band may hide."""
    losses = [training.losses for training in equals]
    stays_in_band = band_in is not None and _stays_in_band(losses, own, band_in)
    quantity = _quantity([*equals, own], margin)
    normal = NormalDist().inv_cdf(1 - SIGNIFICANCE / num_judged / 2)
    if quantity == "loss":
        spread, value = _of_losses(losses, own.losses, normal)
    else:
        name = "accuracy" if quantity == "accuracy" else "loss"
        spread = _of_evaluations([training.evaluations for training in equals], name, normal)
        value = _last(own.evaluations)[name]
    if not math.isfinite(value) or not all(map(math.isfinite, spread.values)):
        return False
    expected = fmean(spread.values)
    outcome = Outcome(
        quantity=quantity,
        step=len(losses[0]),
        value=value,
        expected=expected,
        interval=spread.half_width,
        margin=margin.amount * abs(expected) if margin.is_share else margin.amount,
        num_controls=len(equals) - 1,
        num_judged=num_judged,
        learned=None if quantity == "accuracy" else _fall(losses[0]),
    )
    may_be_worse = outcome.excess > outcome.margin
    return outcome.asks_for_controls and (may_be_worse or not stays_in_band)


def _stays_in_band(equals: Sequence[Losses], own: Training, precision: Precision) -> bool:
    half = half_widths(equals[0], equals[1:], precision)
    known = [step for step in half if step in own.losses]
    is_inside = all(abs(own.losses[step] - equals[0][step]) <= half[step] for step in known)
    return bool(known) and is_inside


def _quantity(trainings: Sequence[Training], margin: Margin) -> Quantity:
    """The quantity by which trainings are judged; a loss of training without an evaluation."""
    quantities: dict[str, Quantity] = {"accuracy": "accuracy", "loss": "evaluation loss"}
    for name in ("loss",) if margin.is_share else ("accuracy", "loss"):
        if all(
            _is_evaluated_at_end(training) and name in _last(training.evaluations)
            for training in trainings
        ):
            return quantities[name]
    return "loss"


def _is_evaluated_at_end(training: Training) -> bool:
    return max(training.evaluations, default=0) >= AT_END * len(training.losses)


def _last(evaluations: dict[int, dict[str, float]]) -> dict[str, float]:
    return evaluations[max(evaluations)]


def _of_evaluations(
    evaluations: Sequence[dict[int, dict[str, float]]], quantity: str, normal: float
) -> Spread:
    """The last evaluation; those of the second half show the spread. More controls do not make its
    own error smaller, so this does not count."""
    steps = sorted(set.intersection(*({*frame} for frame in evaluations)))
    late = [step for step in steps if 2 * step > max(steps)]
    rows = [[frame[step][quantity] for frame in evaluations] for step in late]
    return Spread(rows[-1], _shown(rows, [1.0] * len(rows), normal))


def _of_losses(equals: Sequence[Losses], own: Losses, normal: float) -> tuple[Spread, float]:
    """The mean loss of the last tenth; windows of the second half show the spread."""
    steps = sorted(set.intersection(*({*losses} for losses in equals)))
    size = max(MIN_WINDOW_STEPS, len(steps) // NUM_WINDOWS)
    ends = [*range(len(steps), size - 1, -size)][: NUM_WINDOWS // 2][::-1]
    windows = [steps[end - size : end] for end in ends]
    rows = [[fmean(losses[step] for step in window) for losses in equals] for window in windows]
    errors = [_error(equals, window) for window in windows]
    by_chance = normal * errors[-1] * math.sqrt(1 + 1 / len(equals))
    ordered = [own[step] for step in sorted(own)]
    value = fmean(ordered[-max(MIN_WINDOW_STEPS, len(ordered) // NUM_WINDOWS) :])
    return Spread(rows[-1], max(by_chance, _shown(rows, errors, normal))), value


def _error(equals: Sequence[Losses], window: Sequence[int]) -> float:
    """Standard error of one training's mean in a window, from its single losses."""
    expected = {step: fmean(losses[step] for losses in equals) for step in window}
    strayed = [[losses[step] - expected[step] for step in window] for losses in equals]
    bessel = len(equals) / (len(equals) - 1)
    return math.sqrt(bessel * fmean(map(pvariance, strayed)) / len(window))


def _shown(rows: Sequence[Sequence[float]], errors: Sequence[float], normal: float) -> float:
    """Half width, as `normal` standard errors of a normal distribution, from the spread of equal
    trainings in several readings, relative to their errors; neighbours that resemble each other
    count as fewer (Bartlett 1946)."""
    strayed = [
        [(value - fmean(row)) / error for value in row]
        for row, error in zip(rows, errors, strict=True)
        if error
    ]
    if not strayed:
        return 0.0
    num_controls = len(rows[0]) - 1
    squares = sum(number**2 for row in strayed for number in row)
    alike = sum(
        a * b for row, following in pairwise(strayed) for a, b in zip(row, following, strict=True)
    )
    r = min(max(alike / squares, 0.0), 1.0) if squares else 0.0
    freedom = num_controls * max(1.0, len(strayed) * (1 - r) / (1 + r))
    inflation = math.sqrt(squares / num_controls / len(strayed))
    return (
        _students(normal, freedom) * inflation * errors[-1] * math.sqrt(1 + 1 / (num_controls + 1))
    )


def _students(z: float, freedom: float) -> float:
    """The quantile of Student's t for that of the normal distribution (Fisher and Cornish 1960).
    Of the 97.5 % quantile it is 3 % too small for two degrees of freedom, 11 % for one."""
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def _fall(losses: Losses) -> float:
    """How far a loss fell from its first five steps to its last ones."""
    ordered = [losses[step] for step in sorted(losses)]
    return fmean(ordered[:MIN_WINDOW_STEPS]) - fmean(ordered[-MIN_WINDOW_STEPS:])
