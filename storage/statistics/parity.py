"""Whether a backend learned the same as the baseline, up to rounding.

Single losses must lie in a band. Controls, baselines from minutely perturbed weights, show how far
rounding alone drives losses apart; a backend that stays within a multiple of that computes the same
(docs/metrics.md; the measurements behind the constants: docs/parity.md). Where rounding
has driven equal trainings apart, `storage.statistics.outcomes` says what they come to. Both make
the verdict; `storage.terminal.parity_words` puts it into words.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.runner.folders.states import EarlyEnd
from breakeven.runner.loss_band import BROKEN_FROM, LEAD_STEPS, half_widths
from breakeven.runner.specs.training import Precision
from breakeven.storage.statistics.outcomes import Reading, without_spikes

ParityVerdict = Literal["holds", "broken", "nothing learned", "unknown"] | EarlyEnd
FindingKind = Literal[
    "no baseline",
    "not begun",
    "other weights",
    "other samples",
    "other inputs",
    "not repeatable",
    "no control",
    "no common step",
    "control too short",
    "no band",
    "inside band",
    "outside band",
    "hardly outside",
    "not finite",
    "outside later",
    "too far apart",
    "nothing learned",
    "dropout",
    "other numbers",
    "own numbers",
    "rehearsal",
    "no rehearsal",
    "dropout wrong",
    "redraws differ",
    "draws in inference",
    "inference wrong",
    "answers wrong",
    "ended early",
]


def loss_band(
    baseline: pd.Series, controls: Sequence[pd.Series], precision: Precision
) -> pd.DataFrame:
    """step, baseline, low, high: where a correct backend's loss must lie. Losses are indexed by
    step."""
    half = half_widths(baseline.to_dict(), [one.to_dict() for one in controls], precision)
    widths = pd.Series(half, dtype=float)
    losses = baseline.loc[widths.index].astype(float)
    band = {
        "step": widths.index,
        "baseline": losses,
        "low": losses - widths,
        "high": losses + widths,
    }
    return pd.DataFrame(band).reset_index(drop=True)


def ratios_to_band(band: pd.DataFrame, backend: pd.Series) -> NDArray[np.float64]:
    """Differences over the half width; a difference from a band of no width is infinite."""
    differences = (backend.loc[band["step"]].to_numpy() - band["baseline"].to_numpy()).astype(float)
    half = (band["high"] - band["baseline"]).to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.abs(differences) / half
    return np.where(differences == 0, 0.0, np.where(np.isfinite(differences), ratios, math.inf))


@dataclass(frozen=True, kw_only=True)
class ParityFinding:
    """One thing that a verdict rests on; what of its figures has a name in NUMBERS is called by
    it."""

    kind: FindingKind
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Parity:
    """Whether a backend's losses and evaluations agree with those of equal trainings.

    `max_ratio_to_band` is the largest difference in loss over the band's half width: above 1 is
    outside, from `broken_from` on a fault, infinite where the backend alone has a loss that is not
    finite.
    """

    verdict: ParityVerdict
    first_step_outside: int | None = None
    """From where it shows: the step outside the band, the first step of a window, or the number of
    steps done before an evaluation."""
    max_ratio_to_band: float | None = None
    steps_compared: int = 0
    findings: tuple[ParityFinding, ...] = ()
    """What the verdict rests on, in the order in which it was found."""
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
    band: pd.DataFrame | None = None,
    broken_from: float = BROKEN_FROM,
) -> Parity:
    """Compares a backend's losses to the band, and asks of all of them that they are finite. Those
    that are outside, but not by enough to be sure, leave it unknown.

    Losses are indexed by step; only steps count that all did, and at which baseline and controls
    are finite. `num_steps` is what the whole run would have; `band` is `loss_band` of the same
    baseline and controls, if it is known; a difference of `broken_from` half widths is a fault.
    """
    equal = _finite(baseline)
    for control in controls:
        equal = equal.intersection(_finite(control))
    common = backend.index[backend.index.isin(equal)]
    band = loss_band(baseline, controls, precision) if band is None else band
    band = band[band["step"].isin(common)]
    ratios = pd.Series(ratios_to_band(band, backend), index=band["step"], dtype=float)
    diverged = common.difference(_finite(backend))
    ratios = pd.concat([ratios, pd.Series(math.inf, index=diverged, dtype=float)])
    if ratios.empty:
        return unknown(_why_unknown(common, equal))
    highest, outside = float(ratios.max()), ratios.index[ratios > 1]
    last = int(band["step"].max()) if len(band) else None
    found = Parity(
        verdict="holds",
        max_ratio_to_band=highest,
        steps_compared=len(common),
        last_step_in_band=last,
    )
    if not len(outside):
        told = {"max_ratio_to_band": highest, "band_steps": len(band), "num_steps": num_steps}
        return replace(found, findings=(ParityFinding(kind="inside band", figures=told),))
    first = int(outside.min())
    at = {"first_step_outside": first, "max_ratio_to_band": highest}
    if highest < broken_from:
        hardly = ParityFinding(kind="hardly outside", figures=at)
        return replace(found, verdict="unknown", findings=(hardly,))
    broken = ParityFinding(kind="outside band", figures=at)
    return replace(found, verdict="broken", first_step_outside=first, findings=(broken,))


def _why_unknown(common: pd.Index, equal: pd.Index) -> FindingKind:
    if common.empty:
        return "no common step"
    return "control too short" if len(equal) <= LEAD_STEPS else "no band"


def _finite(losses: pd.Series) -> pd.Index:
    return losses.index[np.isfinite(losses)]


def judge_outcomes(parity: Parity, readings: Sequence[Reading]) -> Parity:
    """Breaks a parity that no step broke if windows or evaluations are outside of what equal
    trainings come to, and stay there; leaves it unknown where some are too far off to be called
    the same."""
    parity = replace(parity, readings=tuple(readings))
    if parity.verdict == "broken":
        return parity
    outside = next(iter(without_spikes(readings, lambda one: one.is_outside)), None)
    if outside is not None:
        # What was said of the band is worth repeating only if it ended before, or never judged.
        is_repeated = parity.band_ended or math.isinf(outside.interval)
        so_far = parity.findings if is_repeated else ()
        return replace(
            parity,
            verdict="broken",
            first_step_outside=(
                outside.first_step if outside.quantity == "loss" else outside.last_step
            ),
            outside=outside,
            findings=(*so_far, ParityFinding(kind="outside later", figures={"reading": outside})),
        )
    apart = next(iter(reversed(without_spikes(readings, lambda one: not one.is_same))), None)
    if parity.verdict != "holds" or apart is None:
        return parity
    return _also(parity, "too far apart", "unknown", reading=apart)


def with_controls(parity: Parity, num_controls: int, seconds: float) -> Parity:
    """Says in what more controls may settle how many there are, and for how many seconds one of
    them trained."""
    told = {"num_controls": num_controls, "control_seconds": seconds}
    findings = tuple(replace(one, figures={**one.figures, **told})
                     if one.kind in ("hardly outside", "too far apart") else one
                     for one in parity.findings)  # fmt: skip
    return replace(parity, findings=findings)


def judge_learning(parity: Parity, has_learned: bool) -> Parity:
    """Agreement with a baseline that learned nothing proves nothing."""
    if parity.verdict != "holds" or has_learned:
        return parity
    return _also(parity, "nothing learned", "nothing learned")


def judge_end(parity: Parity, end: EarlyEnd | None, **figures: Any) -> Parity:
    """A training that ended early proves nothing, unless it was wrong before. `end`: how the
    backend's own ended; None if it was that of a run with which it is compared."""
    if parity.verdict == "broken":
        return parity
    # To train longer, or to wait for a common step, helps nobody now.
    left = [one for one in parity.findings if one.kind != "nothing learned"]
    known = replace(parity, findings=tuple(left if parity.steps_compared else ()))
    return _also(known, "ended early", end or "unknown", **figures)


def doubt_dropout(parity: Parity) -> Parity:
    """Leaves open what is wrong with a training with dropout of which nobody knows whether it drew
    the random numbers that are drawn without a compiler: other numbers look like a fault, and
    inductor was seen to draw them on a GPU (docs/parity.md). They show from the first steps
    on: where single losses agreed, it is not they."""
    if not parity.found_in_band:
        return parity
    return _left_open(parity, "dropout")


def doubt_first_loss(parity: Parity) -> Parity:
    """Leaves open what is wrong with a script that draws random numbers in its steps, if its very
    first loss is another one: so it is where compiled code draws other numbers, and nobody can
    take a script's dropout out to tell. Where the first loss agrees, it is not they."""
    if parity.first_step_outside != 0:
        return parity
    return _left_open(parity, "other numbers")


def _left_open(parity: Parity, kind: FindingKind) -> Parity:
    """Unknown rather than broken; but no random number makes a loss that is not finite."""
    if math.isinf(parity.max_ratio_to_band or 0.0):
        return parity
    left_open = replace(parity, first_step_outside=None, last_step_in_band=None)
    return _also(left_open, kind, "unknown")


def _also(parity: Parity, kind: FindingKind, verdict: ParityVerdict, **figures: Any) -> Parity:
    found = (*parity.findings, ParityFinding(kind=kind, figures=figures))
    return replace(parity, verdict=verdict, findings=found)


def judge_without_control(baseline: pd.Series, backend: pd.Series) -> Parity:
    """Without a band only a loss that is not finite can be told to be wrong."""
    common = baseline.index[np.isfinite(baseline)].intersection(backend.index)
    wrong = common[~np.isfinite(backend.loc[common])]
    if wrong.empty:
        return unknown("no control")
    first = int(wrong.min())
    found = ParityFinding(kind="not finite", figures={"first_step_outside": first})
    return Parity(verdict="broken", first_step_outside=first, max_ratio_to_band=math.inf,
                  steps_compared=len(common), findings=(found,))  # fmt: skip


def unknown(kind: FindingKind, **figures: Any) -> Parity:
    """Nothing can be said, and why."""
    return Parity(verdict="unknown", findings=(ParityFinding(kind=kind, figures=figures),))
