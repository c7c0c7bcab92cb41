"""Finds a materially worse outcome of a training whose sameness with the baseline's is not known.

Parity calls a training broken only if rounding, chance and other data cannot explain it. A backend
is recommended only if it does not end worse either. Worse is a difference above all three of these:
noise of the losses, the spread of equal trainings, and a share of what was learned
(docs/parity.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from breakeven.runner.judged_outcome import Quantity
from breakeven.storage.comparison.evidence import Evidence
from breakeven.storage.statistics.intervals import Floats
from breakeven.storage.statistics.outcomes import (
    MAX_TELLING_SHARE,
    MIN_WINDOW_STEPS,
    NUM_STANDARD_ERRORS,
    NUM_WINDOWS,
    STRAYED_TIMES,
    share_error,
)

MATERIAL_SHARE = 0.05
"""Share of what was learned above which a worse outcome is material; if nothing clear was learned,
the share of the baseline's own value."""

Outcome = Literal["accuracy", "eval_loss", "final_loss"]


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """An outcome that is materially worse than that of baseline and controls."""

    quantity: Outcome
    """Name in METRICS."""
    value: float
    """The backend's; NaN or infinite if its training diverged."""
    expected: float
    """Mean of baseline and controls."""


@np.errstate(invalid="ignore", over="ignore")  # Losses may be infinite or huge.
def find_shortfall(
    baseline: Evidence, controls: Sequence[Evidence], run: Evidence
) -> Shortfall | None:
    """The first materially worse outcome: accuracy, loss of the last evaluation, loss at the end of
    training; None without one. `controls`: those that have begun."""
    equals = [baseline, *controls]
    return (
        _worse_accuracy(equals, run)
        or _worse_evaluation_loss(equals, run)
        or _worse_final_loss(equals, run)
    )


def find_held_out_shortfall(
    equals: Sequence[Evidence], run: Evidence, but: Quantity
) -> Shortfall | None:
    """As `find_shortfall`, by evaluations alone, and without the quantity that was judged already.
    The evaluations of all are indexed by the baseline's steps."""
    accuracy = None if but == "accuracy" else _worse_accuracy(equals, run)
    if accuracy is not None or but == "evaluation loss":
        return accuracy
    return _worse_evaluation_loss(equals, run)


def _worse_final_loss(equals: Sequence[Evidence], run: Evidence) -> Shortfall | None:
    """Judges the means over the last steps that all runs made."""
    recorded = [
        each_run.learning.losses for each_run in (*equals, run) if len(each_run.learning.losses)
    ]
    if len(recorded) <= len(equals):
        return None
    last = min(int(series.index.max()) for series in recorded)
    *losses, own_losses = [series.loc[:last].to_numpy(float) for series in recorded]
    ends = [_end(series) for series in (*losses, own_losses)]
    are_finite = all(np.isfinite(series).all() for series in losses)
    if not are_finite or not all(len(end) for end in ends):
        return None
    error = math.hypot(_error(ends[0]), _error(ends[-1]))
    start, end = losses[0][:MIN_WINDOW_STEPS], ends[0]
    learned = float(start.mean() - end.mean())
    is_clear = learned > NUM_STANDARD_ERRORS * math.hypot(_error(start), _error(end))
    values = [float(losses_at_end.mean()) for losses_at_end in ends]
    noise = NUM_STANDARD_ERRORS * error
    return _judge("final_loss", values, noise, learned if is_clear else None)


def _end(losses: Floats) -> Floats:
    return losses[-max(MIN_WINDOW_STEPS, len(losses) // NUM_WINDOWS) :]


def _error(losses: Floats) -> float:
    """Standard error of the mean of neighbouring losses, from their successive differences (von
    Neumann 1941), which a trend hardly changes. 0 without two losses."""
    if len(losses) < 2:
        return 0.0
    return math.sqrt(float(np.square(np.diff(losses)).mean()) / 2 / len(losses))


def _worse_evaluation_loss(equals: Sequence[Evidence], run: Evidence) -> Shortfall | None:
    values = _last_evaluations(equals, run, "loss")
    losses = equals[0].learning.losses.to_numpy(float)
    if values is None or not len(losses):
        return None
    end, start = _end(losses), losses[:MIN_WINDOW_STEPS]
    learned = float(start.mean() - end.mean())
    is_clear = learned > NUM_STANDARD_ERRORS * math.hypot(_error(start), _error(end))
    # An evaluation's error is that of one training step's samples, or less if it had more samples.
    per_step = _error(end) * math.sqrt(len(end))
    count = equals[0].last_evaluation("num_samples")
    samples = equals[0].workload.get("samples_per_step") or 1
    error = per_step * math.sqrt(min(1.0, samples / count) if count else 1.0)
    noise = NUM_STANDARD_ERRORS * error * math.sqrt(2)
    return _judge("eval_loss", values, noise, learned if is_clear else None)


def _worse_accuracy(equals: Sequence[Evidence], run: Evidence) -> Shortfall | None:
    values = _last_evaluations(equals, run, "accuracy")
    if values is None:
        return None
    expected = float(np.mean(values[:-1]))
    guessing = equals[0].workload.get("majority_share") or 0.0
    learned = expected - guessing if expected > guessing else None
    count = equals[0].last_evaluation("num_samples")
    if count:
        noise = NUM_STANDARD_ERRORS * math.sqrt(2) * share_error(expected, count)
    else:  # Without the number of samples, a difference counts that is never called the same.
        noise = MAX_TELLING_SHARE * (learned or expected)
    return _judge("accuracy", values, noise, learned)


def _last_evaluations(equals: Sequence[Evidence], run: Evidence, column: str) -> list[float] | None:
    """The values at the last evaluation that all runs made, the run's last; None without one. An
    evaluated loss that is missing diverged."""
    frames = [training.learning.evaluations[column] for training in (*equals, run)]
    common = frames[-1].index
    for frame in frames[:-1]:
        common = common[common.isin(frame.index)]
    if not len(common) or frames[0].isna().all():
        return None
    step = common.max()
    value = frames[-1].loc[step]
    if column == "accuracy" and pd.isna(value):
        return None  # It was not measured.
    return [
        *(float(frame.loc[step]) for frame in frames[:-1]),
        math.nan if pd.isna(value) else float(value),
    ]


def _judge(
    quantity: Outcome, values: Sequence[float], noise: float, learned: float | None
) -> Shortfall | None:
    """`values`: those of the equal trainings, the run's last; `learned`: None if nothing clear."""
    equals, value = np.array(values[:-1]), values[-1]
    if not np.isfinite(equals).all():
        return None
    expected = float(equals.mean())
    shortfall = Shortfall(quantity=quantity, value=value, expected=expected)
    if not math.isfinite(value):
        return shortfall
    excess = expected - value if quantity == "accuracy" else value - expected
    material = MATERIAL_SHARE * (abs(expected) if learned is None else learned)
    strayed = 0.0
    if len(equals) > 1:  # From the mean of the others.
        strayed = float(np.abs(equals - expected).max()) * len(equals) / (len(equals) - 1)
    return shortfall if excess > max(noise, STRAYED_TIMES * strayed, material) else None
