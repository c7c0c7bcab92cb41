"""Judges whether a backend learned the same as the baseline, up to rounding.

Single losses must lie in a band. Controls, baselines from minimally changed weights, show how far
rounding alone drives losses apart; a backend within a multiple of that distance computes the same
(docs/parity.md; measurements behind the constants: docs/decisions.md). After rounding has driven
equal trainings apart, `storage.statistics.outcomes` compares windows and evaluations. The verdict
follows from both; `storage.words.parity` has its texts.

A backend may train correctly and still infer incorrectly, because evaluation compiles the model
anew, without gradients. Each run of a backend is therefore evaluated with and without a compiler,
on the same weights and samples. The two losses and each pair of answers must agree up to rounding.
The run compares the answers (`runner/worker/correctness/paired_answers.py`); this module judges the
result. For journals without compared answers it compares accuracies.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.runner.judged_outcome import Outcome, OutcomeVerdict
from breakeven.runner.loss_band import BROKEN_FROM, LEAD_STEPS, half_widths
from breakeven.runner.protocol.states import EarlyEnd
from breakeven.runner.specs.training import Precision
from breakeven.storage.statistics.intervals import sampling_margin
from breakeven.storage.statistics.outcomes import Fall, Reading, without_spikes
from breakeven.storage.statistics.steps_to_loss import StepsToLoss

ParityVerdict = Literal["holds", "broken", "nothing learned", "unknown"] | OutcomeVerdict | EarlyEnd
Beginning = Literal[
    "another model",
    "other batch",
    "other weights",
    "other samples",
    "other inputs",
    "not repeatable",
    "other settings",
]
"""Differences of what two trainings were given, which are said before an outcome."""
FaultBesideLosses = Literal[
    "dropout wrong", "redraws differ", "draws in inference", "inference wrong", "answers wrong"
]
"""Findings that break parity by themselves, and by other tests than the losses."""
FindingKind = Literal[
    Beginning,
    FaultBesideLosses,
    "no baseline",
    "not begun",
    "no losses",
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
    "ended early",
    "far shorter",
    "not repeated",
    "not over",
    "another loss",
    "begins ahead",
    "another function",
    "other evaluation",
    "losses are worse",
    "outcome",
    "also worse",
]
BEGINNINGS: tuple[FindingKind, ...] = get_args(Beginning)
FAULTS_BESIDE_LOSSES: tuple[FindingKind, ...] = get_args(FaultBesideLosses)
GOOD: tuple[ParityVerdict, ...] = ("holds", "as good", "better")
"""Verdicts of a training that is the same, or as good."""
WRONG: tuple[ParityVerdict, ...] = ("broken", "worse")
UNDECIDED: tuple[ParityVerdict, ...] = ("unknown", "nothing learned", "not decided")


def loss_band(
    baseline: pd.Series, controls: Sequence[pd.Series], precision: Precision
) -> pd.DataFrame:
    """step, baseline, low, high: the range in which a correct backend's loss must lie. Losses are
    indexed by step."""
    by_step = [
        dict(zip(run_losses.index.tolist(), run_losses.tolist(), strict=True))
        for run_losses in (baseline, *controls)
    ]
    half = half_widths(by_step[0], by_step[1:], precision)
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
    """Differences over the half width; infinite for a difference where the half width is 0."""
    differences = (backend.loc[band["step"]].to_numpy() - band["baseline"].to_numpy()).astype(float)
    half = (band["high"] - band["baseline"]).to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.abs(differences) / half
    return np.where(differences == 0, 0.0, np.where(np.isfinite(differences), ratios, math.inf))


@dataclass(frozen=True, kw_only=True)
class ParityFinding:
    """One reason for a verdict. Figures have the names of NUMBERS, if NUMBERS lists them."""

    kind: FindingKind
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Parity:
    """Whether a backend's losses and evaluations agree with those of equal trainings.

    `max_ratio_to_band` is the largest difference in loss over the band's half width: above 1 is
    outside, at least `broken_limit` is a fault. It is infinite if only the backend has a loss that
    is not finite.
    """

    verdict: ParityVerdict
    first_step_outside: int | None = None
    """Where the fault appears: the step outside the band, the first step of a window, or the number
    of steps done before an evaluation."""
    first_rank_outside: int | None = None
    """The rank on which it appears, if it is one of several."""
    max_ratio_to_band: float | None = None
    steps_compared: int = 0
    findings: tuple[ParityFinding, ...] = ()
    """The reasons for the verdict, in the order of the checks."""
    last_step_in_band: int | None = None
    """None if no loss could be compared with a band."""
    readings: tuple[Reading, ...] = ()
    """Windows of losses after the band, and all evaluations."""
    outside: Reading | None = None
    """The first reading that broke parity; None if no reading did."""
    by_outcome: bool = False
    """Whether another training was judged by its outcome, and not step by step."""
    outcome: Outcome | None = None
    """The judged outcome; None if it is not known, or if steps were judged."""
    to_loss: StepsToLoss | None = None
    """When it reaches a loss near the end, if it was judged by its outcome and without doubt."""

    @property
    def is_good(self) -> bool:
        return self.verdict in GOOD

    @property
    def is_wrong(self) -> bool:
        return self.verdict in WRONG

    @property
    def seems_worse(self) -> bool:
        """Whether its outcome is worse than those of the equal trainings, which are too few to
        show that none of them ends so."""
        is_also = any(finding.kind == "also worse" for finding in self.findings)
        is_worse = self.outcome is not None and self.outcome.seems_worse
        return self.verdict == "not decided" and (is_worse or is_also)

    @property
    def found_in_band(self) -> bool:
        """Whether a single loss broke parity, rather than a window or an evaluation."""
        return self.first_step_outside is not None and self.outside is None

    @property
    def max_ratio_to_interval(self) -> float | None:
        """Largest difference of a reading over the allowed one; above 1 is outside."""
        return max((reading.ratio for reading in self.readings), default=None)

    @property
    def band_ended(self) -> bool:
        """Whether the band ended before the training; after it only windows and evaluations are
        compared. The last `LEAD_STEPS` steps never have a band."""
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
    broken_limit: float = BROKEN_FROM,
) -> Parity:
    """Compares a backend's losses with the band; all of them must be finite. If losses are only
    slightly outside, parity is unknown.

    Losses are indexed by step; steps count if all runs did them, with finite losses of baseline and
    controls. `num_steps` is the planned number; `band` is the `loss_band` of the same baseline and
    controls, if already computed; a difference of `broken_limit` half widths is a fault.
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
        return unknown_parity(_why_unknown(common, equal))
    highest, outside = float(ratios.max()), ratios.index[ratios > 1]
    last = int(band["step"].max()) if len(band) else None
    parity = Parity(
        verdict="holds",
        max_ratio_to_band=highest,
        steps_compared=len(common),
        last_step_in_band=last,
    )
    if not len(outside):
        figures = {"max_ratio_to_band": highest, "band_steps": len(band), "num_steps": num_steps}
        return replace(parity, findings=(ParityFinding(kind="inside band", figures=figures),))
    first = int(outside.min())
    at = {"first_step_outside": first, "max_ratio_to_band": highest}
    if highest < broken_limit:
        hardly = ParityFinding(kind="hardly outside", figures=at)
        return replace(parity, verdict="unknown", findings=(hardly,))
    broken = ParityFinding(kind="outside band", figures=at)
    return replace(parity, verdict="broken", first_step_outside=first, findings=(broken,))


def of_rank(parity: Parity, rank: int) -> Parity:
    """Broken parity of the losses of one rank, which alone are outside."""
    findings = tuple(
        replace(finding, figures={**finding.figures, "rank": rank}) for finding in parity.findings
    )
    return replace(parity, first_rank_outside=rank, findings=findings)


def _why_unknown(common: pd.Index, equal: pd.Index) -> FindingKind:
    if common.empty:
        return "no common step"
    return "control too short" if len(equal) <= LEAD_STEPS else "no band"


def _finite(losses: pd.Series) -> pd.Index:
    return losses.index[np.isfinite(losses)]


def judge_outcomes(parity: Parity, readings: Sequence[Reading]) -> Parity:
    """Makes parity broken if windows or evaluations lie outside the range of equal trainings and
    stay there; makes it unknown if some are too far away to be called the same. A verdict of broken
    remains."""
    parity = replace(parity, readings=tuple(readings))
    if parity.verdict == "broken":
        return parity
    outside = next(iter(without_spikes(readings, lambda reading: reading.is_outside)), None)
    if outside is not None:
        # Findings on the band matter only if it ended before, or if the interval is unknown.
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
    apart = next(
        iter(reversed(without_spikes(readings, lambda reading: not reading.is_same))), None
    )
    if parity.verdict != "holds" or apart is None:
        return parity
    return _with_finding(parity, "too far apart", "unknown", reading=apart)


def with_controls(parity: Parity, num_controls: int, seconds: float) -> Parity:
    """Adds the number of controls, and the training seconds of one, to the findings that more
    controls may settle."""
    known = {"num_controls": num_controls, "control_seconds": seconds}
    findings = tuple(
        replace(finding, figures={**finding.figures, **known})
        if finding.kind in ("hardly outside", "too far apart")
        else finding
        for finding in parity.findings
    )
    return replace(parity, findings=findings)


def judge_learning(parity: Parity, has_learned: bool, fall: Fall | None = None) -> Parity:
    """Changes a verdict that is good to "nothing learned" if the baseline learned nothing to agree
    with. `fall` is that of its loss, if known."""
    if not parity.is_good or has_learned:
        return parity
    figures = {} if fall is None else asdict(fall)
    return _with_finding(parity, "nothing learned", "nothing learned", **figures)


def doubt_fault(parity: Parity, num_trials: int) -> Parity:
    """Makes broken parity unknown if an investigation made the steps again, in `num_trials` trials,
    and the fault of their losses did not come back. Wrong answers and random numbers stay."""
    kinds = {finding.kind for finding in parity.findings}
    if (
        parity.verdict != "broken"
        or kinds.intersection(FAULTS_BESIDE_LOSSES)
        or "rehearsal" in kinds
    ):
        return parity
    figures = {"num_trials": num_trials, "step": suspected_step(parity)}
    left_open = replace(
        parity,
        first_step_outside=None,
        first_rank_outside=None,
        last_step_in_band=None,
        outside=None,
    )
    return _with_finding(left_open, "not repeated", "unknown", **figures)


def is_suspect(parity: Parity | None) -> bool:
    """Whether the training has, or had once, a fault whose cause an investigation can find."""
    if parity is None:
        return False
    is_doubted = any(finding.kind == "not repeated" for finding in parity.findings)
    return is_doubted or parity.verdict == "broken"


def suspected_step(parity: Parity) -> int:
    """The step up to which a suspect training must be made again to show its fault: the end of a
    window of losses, because its fault may begin inside; 0 if unknown."""
    steps = [
        finding.figures["step"] for finding in parity.findings if finding.kind == "not repeated"
    ]
    if steps:
        return int(steps[0])
    outside = parity.outside
    if outside is not None and outside.quantity == "loss":
        return outside.last_step
    return parity.first_step_outside or 0


def judge_end(
    parity: Parity, end: EarlyEnd | None, kind: FindingKind = "ended early", **figures: Any
) -> Parity:
    """Adjusts parity to a training that ended early, which proves nothing unless it was already
    wrong. `end`: how the backend's training ended; None if another compared run ended early."""
    if parity.is_wrong:
        return parity
    # Omits the advice to train longer or to wait for a common step, which cannot help now.
    remaining = [finding for finding in parity.findings if finding.kind != "nothing learned"]
    has_more = parity.steps_compared or parity.by_outcome
    known = replace(parity, findings=tuple(remaining if has_more else ()))
    undecided: ParityVerdict = "not decided" if parity.by_outcome else "unknown"
    return _with_finding(known, kind, end or undecided, **figures)


def doubt_dropout(parity: Parity) -> Parity:
    """Makes broken parity unknown for a training with dropout, if it is unknown whether it drew the
    same random numbers as without a compiler: other numbers look like a fault, and Inductor may
    draw them on a GPU (docs/decisions.md). They change the first losses: if single losses agreed,
    they are not the cause."""
    if not parity.found_in_band:
        return parity
    return _left_open(parity, "dropout")


def doubt_first_loss(parity: Parity) -> Parity:
    """Makes broken parity unknown for a script that draws random numbers in its steps, if its first
    loss differs. Compiled code that draws other numbers has this effect, and a script's dropout
    cannot be removed for a test. If the first loss agrees, other numbers are not the cause."""
    if parity.first_step_outside != 0:
        return parity
    return _left_open(parity, "other numbers")


def _left_open(parity: Parity, kind: FindingKind) -> Parity:
    """Changes broken to unknown, unless a loss is not finite: random numbers do not cause that."""
    if math.isinf(parity.max_ratio_to_band or 0.0):
        return parity
    left_open = replace(
        parity, first_step_outside=None, first_rank_outside=None, last_step_in_band=None
    )
    return _with_finding(left_open, kind, "unknown")


def _with_finding(
    parity: Parity, kind: FindingKind, verdict: ParityVerdict, **figures: Any
) -> Parity:
    extended = (*parity.findings, ParityFinding(kind=kind, figures=figures))
    return replace(parity, verdict=verdict, findings=extended)


def judge_without_control(baseline: pd.Series, backend: pd.Series) -> Parity:
    """Parity without a band: only a loss that is not finite is certainly wrong."""
    common = baseline.index[np.isfinite(baseline)].intersection(backend.index)
    wrong = common[~np.isfinite(backend.loc[common])]
    if wrong.empty:
        return unknown_parity("no control")
    first = int(wrong.min())
    finding = ParityFinding(kind="not finite", figures={"first_step_outside": first})
    return Parity(
        verdict="broken",
        first_step_outside=first,
        max_ratio_to_band=math.inf,
        steps_compared=len(common),
        findings=(finding,),
    )


def unknown_parity(kind: FindingKind, **figures: Any) -> Parity:
    """Unknown parity with its reason."""
    return Parity(verdict="unknown", findings=(ParityFinding(kind=kind, figures=figures),))


ANSWER_FIGURES = [
    "step",
    "split",
    "compared",
    "wrong",
    "wrong_classes",
    "margin",
    "difference",
    "tolerance",
]
LOSS_TOLERANCES: dict[Precision, float] = {
    # The tolerances of PyTorch's own benchmarks for inference, wider where rounding is coarser; for
    # the reasons see docs/parity.md.
    "float32": 1e-3,
    "tf32": 4e-3,
    "fp16": 4e-3,
    "bf16": 1e-2,
}
"""Largest difference of the two losses, relative to the one without a compiler."""
SMALL_LOSS = 0.01
"""Share of the first training loss below which a loss is mostly rounding; relative differences
divide by at least this share."""
MAX_ACCURACY_GAP = 0.25
"""The largest gap that sampling may explain, but at least one sample: for few samples, two standard
errors would exceed the effect of any fault."""


def judge_answers(answers: pd.DataFrame) -> ParityFinding | None:
    """The fault, from the comparison with the most wrong answers; None if there is none.

    `answers`: as `storage.queries.answers` returns them. Ignores an entry that lacks a figure,
    because no run wrote it.
    """
    if answers.empty:
        return None
    complete = answers.dropna(subset=[*ANSWER_FIGURES, "samples"])
    wrong = complete[complete["wrong"] > 0]
    if wrong.empty:
        return None
    worst = wrong.sort_values(["wrong_classes", "wrong"], kind="stable").iloc[-1]
    figures = {**worst[ANSWER_FIGURES].to_dict(), "samples": list(worst["samples"])}
    return ParityFinding(kind="answers wrong", figures=figures)


def judge_inference(
    scores: pd.DataFrame, answers: pd.DataFrame, first_loss: float | None, precision: Precision
) -> tuple[float | None, ParityFinding | None]:
    """The largest relative difference in loss between a run's compiled model and the same weights
    without a compiler, and the fault, if there is one. The difference is infinite if only one loss
    is finite, and None if no evaluation has both, or none with a finite loss.

    `scores` has step, split, compiled, name, value, num_samples, as
    `queries.evaluation_metrics` returns them; `answers` are those of `queries.answers`;
    `first_loss` is that of training.
    """
    if not scores["compiled"].any():
        return None, judge_answers(answers)
    keys = ["step", "split", "name"]
    compiled = scores.loc[scores["compiled"], [*keys, "value"]]
    pairs = scores[~scores["compiled"]].merge(compiled, on=keys, suffixes=("", "_compiled"))
    losses = pairs[pairs["name"] == "loss"]
    # Ignores a first loss that is not finite, because all gaps would be 0.
    least = SMALL_LOSS * abs(first_loss) if first_loss and math.isfinite(first_loss) else 0.0
    gaps = _relative_gaps(losses, least)
    judged = answers[answers["wrong"].notna()]
    compared = pd.MultiIndex.from_frame(judged[["step", "split"]])
    is_compared = pd.MultiIndex.from_frame(pairs[["step", "split"]]).isin(compared)
    accuracies = pairs[(pairs["name"] == "accuracy") & ~is_compared]
    fault = (
        judge_answers(answers)
        or _fault(losses, gaps, LOSS_TOLERANCES[precision])
        or _fault(accuracies, *_accuracy_gaps(accuracies))
    )
    return (float(gaps.max()) if gaps.notna().any() else None), fault


def _relative_gaps(losses: pd.DataFrame, least: float) -> pd.Series:
    """Relative differences; missing where neither loss is finite, infinite where one is not."""
    plain, compiled = losses["value"], losses["value_compiled"]
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = (compiled - plain).abs() / plain.abs().clip(lower=least)
    gaps = gaps.mask(plain == compiled, 0.0)
    finite, compiled_finite = np.isfinite(plain), np.isfinite(compiled)
    return gaps.mask(finite != compiled_finite, np.inf).mask(~finite & ~compiled_finite)


def _accuracy_gaps(accuracies: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Differences, and the difference that sampling explains, at most `MAX_ACCURACY_GAP`."""
    plain, compiled = accuracies["value"], accuracies["value_compiled"]
    allowed = [
        min(sampling_margin(share, num_samples), max(MAX_ACCURACY_GAP, 1 / num_samples))
        for share, num_samples in zip(
            (plain + compiled) / 2, accuracies["num_samples"], strict=True
        )
    ]
    return (compiled - plain).abs(), pd.Series(allowed, index=accuracies.index, dtype=float)


def _fault(
    pairs: pd.DataFrame, gaps: pd.Series, allowed: float | pd.Series
) -> ParityFinding | None:
    excess = gaps[gaps > allowed]
    if excess.empty:
        return None
    figures = pairs.loc[excess.idxmax(), ["name", "value", "value_compiled", "step", "split"]]
    return ParityFinding(kind="inference wrong", figures=figures.to_dict())


def break_parity(parity: Parity, fault: ParityFinding | None) -> Parity:
    """Makes parity broken if inference is wrong, whatever its verdict on training."""
    if fault is None:
        return parity
    so_far = parity.findings if parity.by_outcome or parity.verdict in ("holds", "broken") else ()
    # The fault belongs to no step, so the end of the band does not matter.
    return replace(parity, verdict="broken", findings=(*so_far, fault), last_step_in_band=None)
