"""The band in which a correct backend's losses must lie, from those of the controls.

Controls, baselines from minutely perturbed weights, show how far rounding alone drives losses
apart. A backend that stays within a multiple of that computes the same thing, step by step
(docs/metrics.md; the measurements behind the constants are in docs/decisions/parity-*.md).
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.runner.specs.training import Precision

SAFETY_FACTORS: dict[Precision, float] = {"float32": 10, "tf32": 10, "bf16": 4, "fp16": 10}
"""Half width of the band over the control's differences: a correct backend rounds otherwise at all
operations, the control only at the start. In bf16 the rounding of the weights drowns that."""
LEAD_STEPS = 10
"""How many steps a correct backend may be ahead of the control. Differences grow exponentially once
a training magnifies rounding, and who begins with more of them gets there earlier."""
BROKEN_FROM = 2.0
"""Half widths of the band from which a difference is a fault. How far one control strays is chance:
the farthest correct runs lay between one half width and this, and faults that show hardly do
(docs/decisions/broken-from-twice-the-band.md)."""
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
TELLING_SHARES: dict[Precision, float] = {
    "float32": 0.01,
    "tf32": 0.01,
    "bf16": 0.005,
    "fp16": 0.01,
}
"""The band ends where the control strays by more than this share of the first loss: from there on
rounding alone decides what the next losses are, and no single one tells right from wrong."""


def loss_band(
    baseline: pd.Series, controls: Sequence[pd.Series], precision: Precision
) -> pd.DataFrame:
    """step, baseline, low, high: where a correct backend's loss must lie.

    Losses are indexed by step. The half width of the band is the safety factor times the larger of
    the floor and the largest difference that a control reaches until `LEAD_STEPS` later, but at
    most `MAX_LEAD` times what it has reached by then. So the band covers the steps, finite in all,
    that have as many behind them; it ends for good once a control is about to stray further than
    `TELLING_SHARES` allows.
    """
    both = pd.concat([baseline, *controls], axis="columns", join="inner")
    both.columns = pd.Index(["baseline", *range(len(controls))])
    both = both[np.isfinite(both).all(axis="columns")].sort_index()
    first_loss = abs(both["baseline"].iloc[0]) if len(both) else 0.0
    differences = both.drop(columns="baseline").sub(both["baseline"], axis="index")
    differences = differences.abs().max(axis="columns")
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


def ratios_to_band(band: pd.DataFrame, backend: pd.Series) -> NDArray[np.float64]:
    """Differences over the half width; a difference from a band of no width is infinite."""
    differences = (backend.loc[band["step"]].to_numpy() - band["baseline"].to_numpy()).astype(float)
    half = (band["high"] - band["baseline"]).to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.abs(differences) / half
    return np.where(differences == 0, 0.0, np.where(np.isfinite(differences), ratios, math.inf))
