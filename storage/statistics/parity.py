"""Whether a backend learned the same as the baseline, up to rounding.

Single losses are judged by the band of `storage.statistics.loss_band`; where rounding has driven
equal trainings apart, `storage.statistics.outcomes` says what they come to. Both together make the
verdict (docs/metrics.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from runner.specs.training import Precision
from storage.numbers.formats import DASH
from storage.numbers.sentences import Figure, Sentence, figure, said
from storage.statistics.loss_band import LEAD_STEPS, loss_band, ratios_to_band
from storage.statistics.outcomes import Quantity, Reading, lasting

ParityVerdict = Literal["holds", "broken", "nothing learned", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Parity:
    """Whether a backend's losses and evaluations agree with those of equal trainings.

    `max_ratio_to_band` is the largest difference in loss over the band's half width: above 1 is
    outside, infinite where the backend alone has a loss that is not finite.
    """

    verdict: ParityVerdict
    first_step_outside: int | None
    """From where it shows: the step outside the band, the first step of a window, or the number of
    steps done before an evaluation."""
    max_ratio_to_band: float | None
    steps_compared: int
    reason: Sentence
    last_step_in_band: int | None = None
    """None where no loss could be compared to a band."""
    readings: tuple[Reading, ...] = ()
    """What the training came to after the band, and all evaluations."""
    outside: Reading | None = None
    """The first reading that broke parity, if it was one that did."""

    @property
    def found_in_band(self) -> bool:
        """Whether a single loss broke it, rather than a window or an evaluation."""
        return self.first_step_outside is not None and self.outside is None

    @property
    def max_ratio_to_interval(self) -> float | None:
        """Largest difference of a reading over what is allowed; above 1 is outside."""
        return max((one.ratio for one in self.readings), default=None)

    @property
    def band_ended(self) -> bool:
        """Whether the band ended before the training did: from there on only windows and
        evaluations tell. The last `LEAD_STEPS` never have a band."""
        if self.last_step_in_band is None:
            return False
        return self.steps_compared - (self.last_step_in_band + 1) > LEAD_STEPS


def judge_losses(
    baseline: pd.Series,
    controls: Sequence[pd.Series],
    backend: pd.Series,
    precision: Precision,
    num_steps: int,
) -> Parity:
    """Compares a backend's losses to the band, and asks of all of them that they are finite.

    Losses are indexed by step; only steps count that all did, and at which baseline and controls
    are finite. `num_steps` is what the whole run would have.
    """
    equal = _finite(baseline)
    for control in controls:
        equal = equal.intersection(_finite(control))
    common = backend.index[backend.index.isin(equal)]
    band = loss_band(baseline, controls, precision)
    band = band[band["step"].isin(common)]
    ratios = pd.Series(ratios_to_band(band, backend), index=band["step"], dtype=float)
    diverged = common.difference(_finite(backend))
    ratios = pd.concat([ratios, pd.Series(math.inf, index=diverged, dtype=float)])
    if ratios.empty:
        return unknown(_why_unknown(common, equal))
    highest, outside = float(ratios.max()), ratios.index[ratios > 1]
    last = int(band["step"].max()) if len(band) else None
    if len(outside):
        first = int(outside.min())
        times = Figure("max_ratio_to_band", f"{highest:.3g} x the band")
        extreme = "is not finite" if math.isinf(highest) else said("is up to {x} off", x=times)
        at = Figure("first_step_outside", f"step {first}")
        return Parity(
            verdict="broken",
            first_step_outside=first,
            max_ratio_to_band=highest,
            steps_compared=len(common),
            reason=said("the loss leaves the band at {at} and {extreme}", at=at, extreme=extreme),
            last_step_in_band=last,
        )
    return Parity(
        verdict="holds",
        first_step_outside=None,
        max_ratio_to_band=highest,
        steps_compared=len(common),
        reason=said(
            "the loss stays within {times} over the first {steps}",
            times=Figure("max_ratio_to_band", f"{highest:.2g} x the band"),
            steps=Figure("num_steps", f"{len(band)} of {num_steps} steps"),
        ),
        last_step_in_band=last,
    )


def _why_unknown(common: pd.Index, equal: pd.Index) -> str:
    if common.empty:
        return "no step was done by baseline, control and backend alike"
    if len(equal) <= LEAD_STEPS:
        return f"losses can be judged once the control has done {LEAD_STEPS} steps more"
    return "rounding alone moves the loss far from the first step on"


def _finite(losses: pd.Series) -> pd.Index:
    return losses.index[np.isfinite(losses)]


def judge_outcomes(parity: Parity, readings: Sequence[Reading]) -> Parity:
    """Breaks a parity that no step broke if windows or evaluations are outside of what equal
    trainings come to, and stay there; leaves it unknown where some are too far off to be called
    the same."""
    parity = replace(parity, readings=tuple(readings))
    if parity.verdict == "broken":
        return parity
    outside = next(iter(lasting(readings, lambda one: one.is_outside)), None)
    if outside is not None:
        step = outside.first_step if outside.quantity == "loss" else outside.last_step
        late = said("{so_far}, but later ", so_far=parity.reason) if parity.band_ended else ""
        return replace(
            parity,
            verdict="broken",
            first_step_outside=step,
            outside=outside,
            reason=said(
                "{late}{found}, and rounding and chance explain a difference of {allowed} at most",
                late=late,
                found=_in_words(outside),
                allowed=_size(outside, outside.allowed),
            ),
        )
    apart = next(iter(reversed(lasting(readings, lambda one: not one.is_same))), None)
    if parity.verdict != "holds" or apart is None:
        return parity
    reason = said(
        "{so_far}, but {found}: too much to be called the same, while the controls are too few, or "
        "stray too far, to call it a fault (up to {allowed}); repeat it with more controls "
        "(--controls 4)",
        so_far=parity.reason,
        found=_in_words(apart),
        allowed=_size(apart, apart.allowed),
    )
    return replace(parity, verdict="unknown", reason=reason)


READ: dict[Quantity, str] = {
    "loss": "loss",
    "evaluation loss": "eval_loss",
    "accuracy": "accuracy",
}
"""Names of the quantities in METRICS."""


def _in_words(reading: Reading) -> Sentence:
    where = Figure("num_steps", f"after {reading.last_step} steps")
    found = said("{where} the {quantity}", where=where, quantity=reading.quantity)
    if reading.quantity == "loss":
        steps = Figure("step", f"steps {reading.first_step} to {reading.last_step}")
        found = said("the mean loss of {steps}", steps=steps)
    return said("{found} is {value}, that of equal trainings {expected}", found=found,
                value=_size(reading, reading.value),
                expected=_size(reading, reading.expected))  # fmt: skip


def _size(reading: Reading, value: float) -> Figure:
    return figure(READ[reading.quantity], value)


def judge_learning(parity: Parity, has_learned: bool) -> Parity:
    """Agreement with a baseline that learned nothing proves nothing."""
    if parity.verdict != "holds" or has_learned:
        return parity
    reason = "the baseline learned nothing that a broken backend could have missed; train longer"
    return replace(
        parity,
        verdict="nothing learned",
        reason=said("{so_far}, but {why}", so_far=parity.reason, why=reason),
    )


def doubt_dropout(parity: Parity) -> Parity:
    """Says of a training with dropout that other random numbers look like a fault: inductor was
    seen to draw them on a GPU (docs/measurements.md). They show from the first steps on: where
    single losses agreed, it is not they."""
    if not parity.found_in_band or math.isinf(parity.max_ratio_to_band or 0.0):
        return parity
    doubt = (
        "the compiler may only have drawn other random numbers for dropout: repeat it with "
        "model.dropout = off to tell that from a fault"
    )
    return replace(parity, reason=said("{so_far}; {doubt}", so_far=parity.reason, doubt=doubt))


def judge_without_control(baseline: pd.Series, backend: pd.Series) -> Parity:
    """Without a band only a loss that is not finite can be told to be wrong."""
    common = baseline.index[np.isfinite(baseline)].intersection(backend.index)
    wrong = common[~np.isfinite(backend.loc[common])]
    if wrong.empty:
        return unknown("without a control nobody knows how far rounding alone drives losses apart")
    first = int(wrong.min())
    at = Figure("first_step_outside", f"step {first}")
    reason = said("the loss is not finite at {at}, where the baseline's is", at=at)
    return Parity(verdict="broken", first_step_outside=first, max_ratio_to_band=math.inf,
                  steps_compared=len(common), reason=reason)  # fmt: skip


def parity_text(parity: Parity | None) -> str:
    """The verdict as a table has room for it, with where it broke and how far single losses could
    tell: `broken at step 12` by a loss, `broken from step 150` by a window of them, `broken after
    200 steps` by an evaluation; `holds (losses to step 240)` where the band ended there.
    """
    if parity is None:
        return DASH
    if parity.outside is not None and parity.outside.quantity != "loss":
        return f"broken after {parity.first_step_outside:,} steps"
    if parity.first_step_outside is not None:
        return (
            f"broken {'at' if parity.found_in_band else 'from'} step {parity.first_step_outside:,}"
        )
    if parity.verdict == "holds" and parity.band_ended:
        return f"holds (losses to step {parity.last_step_in_band:,})"
    return parity.verdict


def unknown(reason: str) -> Parity:
    return Parity(verdict="unknown", first_step_outside=None, max_ratio_to_band=None,
                  steps_compared=0, reason=said("{why}", why=reason))  # fmt: skip
