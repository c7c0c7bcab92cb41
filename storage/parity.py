"""Whether a backend learned the same as the baseline, up to rounding.

The control, a baseline from minutely perturbed weights, shows how far rounding alone drives losses
apart. A backend that stays within a multiple of that computes the same thing (docs/metrics.md).
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from runner.spec import Precision

SAFETY_FACTOR = 10.0
"""A correct backend rounds differently at every operation, the control only at the start."""
LOSS_FLOORS: dict[Precision, float] = {
    # Smallest width of the band over SAFETY_FACTOR, relative to the first loss. Provisional: ten
    # times these lies above every difference of a correct backend, and below those of the broken
    # ones, in the measurements of 2026-11-20 (BERT on CPU and H100; fp16 was not measured).
    "float32": 2e-6,
    "tf32": 6e-5,
    "bf16": 2.5e-4,
    "fp16": 6e-5,
}
NUM_STANDARD_ERRORS = 3.0
"""How clearly the baseline must have learned for equality with it to prove anything."""
MIN_TENTH = 3
"""Fewest steps whose mean loss is taken as the start or end of a training."""

TELLING_SHARE = 0.1
"""Once the band is wider than this share of the first loss, no fault is likely to leave it."""

Floats = NDArray[np.float64]
ParityVerdict = Literal["holds", "broken", "nothing learned", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Parity:
    """Whether a backend's losses and accuracy agree with the baseline's.

    `max_ratio_to_band` is the largest difference in loss over the band's half width: above 1 is
    outside, infinite where the backend alone has a loss that is not finite.
    """

    verdict: ParityVerdict
    first_step_outside: int | None
    max_ratio_to_band: float | None
    steps_compared: int
    reason: str


def loss_band(baseline: pd.Series, control: pd.Series, precision: Precision) -> pd.DataFrame:
    """step, baseline, low, high: where a correct backend's loss must lie.

    Losses are indexed by step. Only steps at which both are finite have a band. Its half width is
    `SAFETY_FACTOR` times the larger of the floor and the control's largest difference so far.
    """
    both = pd.DataFrame({"baseline": baseline, "control": control})
    both = both[np.isfinite(both).all(axis="columns")].sort_index()
    differences = (both["control"] - both["baseline"]).abs()
    floor = LOSS_FLOORS[precision] * (abs(both["baseline"].iloc[0]) if len(both) else 0.0)
    half = SAFETY_FACTOR * differences.cummax().clip(lower=floor)
    return pd.DataFrame(
        {
            "step": both.index,
            "baseline": both["baseline"],
            "low": both["baseline"] - half,
            "high": both["baseline"] + half,
        }
    ).reset_index(drop=True)


def judge_losses(band: pd.DataFrame, backend: pd.Series, num_steps: int) -> Parity:
    """Compares a backend's losses, indexed by step, to the band, over the steps both have."""
    common = band[band["step"].isin(backend.index)]
    if common.empty:
        return unknown("no step was done by baseline, control and backend alike")
    losses = backend.loc[common["step"]].to_numpy(dtype=float)
    half = (common["high"] - common["baseline"]).to_numpy()
    # A control that never differs from losses of 0 leaves a band of width 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.abs(losses - common["baseline"].to_numpy()) / half
    ratios[losses == common["baseline"].to_numpy()] = 0.0
    ratios[~np.isfinite(losses)] = math.inf
    outside = np.flatnonzero(ratios > 1)
    extent = f"over {len(common)} of {num_steps} steps{_blind_after(common, half)}"
    highest = float(ratios.max())
    if len(outside):
        first = int(common["step"].iloc[outside[0]])
        wrong = "a loss that is not finite" if math.isinf(highest) else f"{highest:.3g} x the band"
        reason = f"the loss leaves the band at step {first} and reaches {wrong}, {extent}"
        return Parity(verdict="broken", first_step_outside=first, max_ratio_to_band=highest,
                      steps_compared=len(common), reason=reason)  # fmt: skip
    reason = f"the loss stays within {highest:.2g} x the band {extent}"
    return Parity(verdict="holds", first_step_outside=None, max_ratio_to_band=highest,
                  steps_compared=len(common), reason=reason)  # fmt: skip


def _blind_after(band: pd.DataFrame, half: Floats) -> str:
    """Says how few of the steps could have shown a fault, if the control strays far."""
    num_telling = int((half <= TELLING_SHARE * abs(band["baseline"].iloc[0])).sum())
    if num_telling == len(band):
        return ""
    return (
        f" (of which the first {num_telling} can show a fault; after them rounding alone moves the "
        f"loss by more than {TELLING_SHARE:.0%})"
    )


def judge_accuracies(
    parity: Parity, baseline: pd.DataFrame, control: pd.DataFrame, backend: pd.DataFrame
) -> Parity:
    """Breaks a parity that holds by the losses if the accuracy differs at the end of an epoch.

    Evaluations are indexed by epoch. Allowed is twice the control's difference, or two standard
    errors of the difference of two shares, whichever is more.
    """
    if parity.verdict != "holds":
        return parity
    for epoch in baseline.index.intersection(control.index).intersection(backend.index):
        mine, theirs = backend["accuracy"][epoch], baseline["accuracy"][epoch]
        share, samples = (mine + theirs) / 2, baseline["num_samples"][epoch]
        sampling = 2 * math.sqrt(2 * share * (1 - share) / samples)
        allowed = max(2 * abs(control["accuracy"][epoch] - theirs), sampling)
        if abs(mine - theirs) > allowed:
            reason = (
                f"accuracy {mine:.2%} against the baseline's {theirs:.2%} after epoch {epoch}: "
                f"more than the {allowed:.2%} that rounding and sampling explain"
            )
            return replace(parity, verdict="broken", reason=reason)
    return parity


def judge_learning(parity: Parity, has_learned: bool) -> Parity:
    """Agreement with a baseline that learned nothing proves nothing."""
    if parity.verdict != "holds" or has_learned:
        return parity
    reason = "the baseline learned nothing that a broken backend could have missed; train longer"
    return replace(parity, verdict="nothing learned", reason=f"{parity.reason}, but {reason}")


def judge_without_control(baseline: pd.Series, backend: pd.Series) -> Parity:
    """Without a band only a loss that is not finite can be told to be wrong."""
    common = baseline.index[np.isfinite(baseline)].intersection(backend.index)
    wrong = common[~np.isfinite(backend.loc[common])]
    if wrong.empty:
        return unknown("without a control nobody knows how far rounding alone drives losses apart")
    first = int(wrong.min())
    reason = f"the loss is not finite at step {first}, where the baseline's is"
    return Parity(verdict="broken", first_step_outside=first, max_ratio_to_band=math.inf,
                  steps_compared=len(common), reason=reason)  # fmt: skip


def unknown(reason: str) -> Parity:
    return Parity(verdict="unknown", first_step_outside=None, max_ratio_to_band=None,
                  steps_compared=0, reason=reason)  # fmt: skip


def has_learned(losses: Floats, accuracy: float | None, majority_share: float | None,
                num_samples: int | None) -> bool:  # fmt: skip
    """Whether the loss fell clearly, or the accuracy is clearly above always guessing one label.

    Clearly: by three standard errors, of the difference of the means of first and last tenth of
    the losses, or of a share among `num_samples`.
    """
    return _loss_fell(losses) or _beats_guessing(accuracy, majority_share, num_samples)


def _loss_fell(losses: Floats) -> bool:
    size = max(MIN_TENTH, len(losses) // 10)
    if len(losses) < 2 * size:
        return False
    first, last = losses[:size], losses[-size:]
    if not (np.isfinite(first).all() and np.isfinite(last).all()):
        return False
    error = math.sqrt((first.var(ddof=1) + last.var(ddof=1)) / size)
    return bool(last.mean() < first.mean() - NUM_STANDARD_ERRORS * error)


def _beats_guessing(
    accuracy: float | None, majority_share: float | None, num_samples: int | None
) -> bool:
    if accuracy is None or majority_share is None or not num_samples:
        return False
    error = math.sqrt(majority_share * (1 - majority_share) / num_samples)
    return accuracy > majority_share + NUM_STANDARD_ERRORS * error
