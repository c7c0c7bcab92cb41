"""Judges whether a compiled model answers like the same weights without a compiler.

A backend may train correctly and still infer incorrectly, because evaluation compiles the model
anew, without gradients. Each run of a backend is therefore evaluated with and without a compiler,
on the same weights and samples. The two losses and each pair of answers must agree up to rounding
(docs/metrics.md). The run compares the answers (`runner/worker/correctness/paired_answers.py`);
this module judges the result. For journals without compared answers it compares accuracies.
"""

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from breakeven.runner.specs.training import Precision
from breakeven.storage.statistics.intervals import sampling_margin
from breakeven.storage.statistics.parity import Parity, ParityFinding

FIGURES = ["step", "split", "compared", "wrong", "wrong_classes", "margin", "difference",
           "tolerance"]  # fmt: skip
LOSS_TOLERANCES: dict[Precision, float] = {
    # The tolerances of PyTorch's own benchmarks for inference, wider where rounding is coarser; for
    # the reasons see docs/metrics.md.
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
    whole = answers.dropna(subset=[*FIGURES, "samples"])
    wrong = whole[whole["wrong"] > 0]
    if wrong.empty:
        return None
    worst = wrong.sort_values(["wrong_classes", "wrong"], kind="stable").iloc[-1]
    figures = {**worst[FIGURES].to_dict(), "samples": list(worst["samples"])}
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
    so_far = parity.findings if parity.verdict in ("holds", "broken") else ()
    # The fault belongs to no step, so the end of the band does not matter.
    return replace(parity, verdict="broken", findings=(*so_far, fault), last_step_in_band=None)
