"""Whether a backend learned the same as the baseline, up to rounding.

The control, a baseline from minutely perturbed weights, shows how far rounding alone drives losses
apart. A backend that stays within a multiple of that computes the same thing (docs/metrics.md; the
measurements behind the constants are in docs/decisions/parity-*.md).
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from runner.training_spec import Precision

SAFETY_FACTORS: dict[Precision, float] = {"float32": 10, "tf32": 10, "bf16": 4, "fp16": 10}
"""Half width of the band over the control's differences: a correct backend rounds otherwise at all
operations, the control only at the start. In bf16 the rounding of the weights drowns that."""
LEAD_STEPS = 10
"""How many steps a correct backend may be ahead of the control. Differences grow exponentially once
a training magnifies rounding, and who begins with more of them gets there earlier."""
MAX_LEAD = 2.0
"""How far that may widen the band: a control that leaps later excuses no weak fault before."""
LOSS_FLOORS: dict[Precision, float] = {
    # What the control counts for at least, relative to the first loss. Times SAFETY_FACTORS these
    # lie above every difference of a correct backend, and below those of the broken ones.
    "float32": 2e-6,
    "tf32": 6e-5,
    "bf16": 2.5e-4,
    "fp16": 6e-5,
}
NUM_STANDARD_ERRORS = 3.0
"""How clearly the baseline must have learned for equality with it to prove anything."""
MIN_TENTH = 3
"""Fewest steps whose mean loss is taken as the start or end of a training."""

ACCURACY_CONFIDENCE = 0.995
"""One-sided; two-sided it leaves 1 % for equal runs to be called different."""

TELLING_SHARES: dict[Precision, float] = {
    "float32": 0.01,
    "tf32": 0.01,
    "bf16": 0.005,
    "fp16": 0.01,
}
"""The band ends where the control strays by more than this share of the first loss: from there on
rounding alone decides what the next losses are, and no single one tells right from wrong."""

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
    last_step_in_band: int | None = None
    """None where no loss could be compared to a band."""

    @property
    def band_ended(self) -> bool:
        """Whether the band ended before the training did: what goes wrong from there on, losses
        cannot tell. The last `LEAD_STEPS` never have a band."""
        if self.last_step_in_band is None:
            return False
        return self.steps_compared - (self.last_step_in_band + 1) > LEAD_STEPS


def loss_band(baseline: pd.Series, control: pd.Series, precision: Precision) -> pd.DataFrame:
    """step, baseline, low, high: where a correct backend's loss must lie.

    Losses are indexed by step. The half width of the band is the safety factor times the larger of
    the floor and the largest difference that the control reaches until `LEAD_STEPS` later, but at
    most `MAX_LEAD` times what it has reached by then. So the band covers the steps, finite in both,
    that have as many behind them; it ends for good once the control is about to stray further than
    `TELLING_SHARES` allows.
    """
    both = pd.DataFrame({"baseline": baseline, "control": control})
    both = both[np.isfinite(both).all(axis="columns")].sort_index()
    first_loss = abs(both["baseline"].iloc[0]) if len(both) else 0.0
    differences = (both["control"] - both["baseline"]).abs()
    reached = differences.cummax().clip(lower=LOSS_FLOORS[precision] * first_loss)
    ahead = reached.shift(-LEAD_STEPS)
    half = SAFETY_FACTORS[precision] * ahead.clip(upper=MAX_LEAD * reached)
    band = pd.DataFrame(
        {
            "step": both.index,
            "baseline": both["baseline"],
            "low": both["baseline"] - half,
            "high": both["baseline"] + half,
        }
    )
    return band[ahead <= TELLING_SHARES[precision] * first_loss].reset_index(drop=True)


def judge_losses(
    baseline: pd.Series,
    control: pd.Series,
    backend: pd.Series,
    precision: Precision,
    num_steps: int,
) -> Parity:
    """Compares a backend's losses to the band, and asks of all of them that they are finite.

    Losses are indexed by step; only steps count that all three did, and at which baseline and
    control are finite. `num_steps` is what the whole run would have.
    """
    common = backend.index[
        backend.index.isin(_finite(baseline)) & backend.index.isin(_finite(control))
    ]
    band = loss_band(baseline, control, precision)
    band = band[band["step"].isin(common)]
    ratios = pd.Series(_ratios_to_band(band, backend), index=band["step"], dtype=float)
    diverged = common.difference(_finite(backend))
    ratios = pd.concat([ratios, pd.Series(math.inf, index=diverged, dtype=float)])
    if ratios.empty:
        return unknown(_why_unknown(common, baseline, control))
    highest, outside = float(ratios.max()), ratios.index[ratios > 1]
    if len(outside):
        first = int(outside.min())
        extreme = (
            "is not finite" if math.isinf(highest) else f"is up to {highest:.3g} x the band off"
        )
        return Parity(
            verdict="broken",
            first_step_outside=first,
            max_ratio_to_band=highest,
            steps_compared=len(common),
            reason=f"the loss leaves the band at step {first} and {extreme}",
        )
    return Parity(
        verdict="holds",
        first_step_outside=None,
        max_ratio_to_band=highest,
        steps_compared=len(common),
        reason=f"the loss stays within {highest:.2g} x the band over "
        f"the first {len(band)} of {num_steps} steps",
        last_step_in_band=int(band["step"].max()) if len(band) else None,
    )


def _why_unknown(common: pd.Index, baseline: pd.Series, control: pd.Series) -> str:
    if common.empty:
        return "no step was done by baseline, control and backend alike"
    if len(_finite(baseline).intersection(_finite(control))) <= LEAD_STEPS:
        return f"losses can be judged once the control has done {LEAD_STEPS} steps more"
    return "rounding alone moves the loss far from the first step on"


def _finite(losses: pd.Series) -> pd.Index:
    return losses.index[np.isfinite(losses)]


def _ratios_to_band(band: pd.DataFrame, backend: pd.Series) -> Floats:
    """Differences over the half width; a difference from a band of no width is infinite."""
    differences = (backend.loc[band["step"]].to_numpy() - band["baseline"].to_numpy()).astype(float)
    half = (band["high"] - band["baseline"]).to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.abs(differences) / half
    return np.where(differences == 0, 0.0, np.where(np.isfinite(differences), ratios, math.inf))


def judge_accuracies(
    parity: Parity, baseline: pd.DataFrame, control: pd.DataFrame, backend: pd.DataFrame
) -> Parity:
    """Breaks a parity that holds by the losses if the backend's accuracy is another one.

    Evaluations are indexed by step; a task without an accuracy is not judged. The median of their
    differences counts, because a single accuracy jumps about even between equal runs. Allowed are
    two standard errors of the difference of two shares, or what the control's differences make
    likely, whichever is more: their root mean square times Student's t for as many values, since
    few of them tell little.
    """
    from scipy.special import stdtrit  # here, because it takes time that no list of runs needs

    common = _judged(baseline).intersection(_judged(control)).intersection(_judged(backend))
    if parity.verdict != "holds" or common.empty:
        return parity
    theirs, mine = baseline["accuracy"][common], backend["accuracy"][common]
    share, num_samples = (mine.mean() + theirs.mean()) / 2, baseline["num_samples"][common].min()
    strayed = math.sqrt(((control["accuracy"][common] - theirs) ** 2).mean())
    explained = float(stdtrit(len(common), ACCURACY_CONFIDENCE)) * strayed
    allowed = max(explained, sampling_margin(share, num_samples))
    difference = (mine - theirs).median()
    if abs(difference) <= allowed:
        return parity
    late = f"{parity.reason}, but later " if parity.band_ended else ""
    reason = (
        f"{late}the accuracy differs from the baseline's by {difference:+.2%} (median over the "
        f"evaluations); rounding and sampling explain {allowed:.2%}"
    )
    return replace(parity, verdict="broken", reason=reason)


def _judged(evaluations: pd.DataFrame) -> pd.Index:
    """Steps with an accuracy; a task without labels to get right has none."""
    return evaluations.index[evaluations["accuracy"].notna()]


def sampling_margin(share: float, num_samples: int) -> float:
    """Two standard errors of the difference of two shares among so many samples.

    Shares of tokens are counted as if each sample had only one, because the tokens of a text do
    not err independently.
    """
    return 2 * math.sqrt(2 * share * (1 - share) / num_samples)


def judge_learning(parity: Parity, has_learned: bool) -> Parity:
    """Agreement with a baseline that learned nothing proves nothing."""
    if parity.verdict != "holds" or has_learned:
        return parity
    reason = "the baseline learned nothing that a broken backend could have missed; train longer"
    return replace(parity, verdict="nothing learned", reason=f"{parity.reason}, but {reason}")


def doubt_dropout(parity: Parity) -> Parity:
    """Says of a training with dropout that other random numbers look like a fault: inductor was
    seen to draw them on a GPU (docs/measurements.md)."""
    if parity.verdict != "broken" or math.isinf(parity.max_ratio_to_band or 0.0):
        return parity
    doubt = (
        "the compiler may only have drawn other random numbers for dropout: repeat it with "
        "model.dropout = off to tell that from a fault"
    )
    return replace(parity, reason=f"{parity.reason}; {doubt}")


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
