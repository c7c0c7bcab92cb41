"""Computes the band in which a correct backend's losses lie.

Controls, which are baselines with minutely perturbed weights, show how far rounding alone drives
losses apart. If the band does not decide, the supervisor measures more controls. The verdict on
parity uses the band (`storage.statistics.parity`; measurements: docs/decisions.md).
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, repeat

from breakeven.runner.specs.training import Precision

SAFETY_FACTORS: dict[Precision, float] = {"float32": 10, "tf32": 10, "bf16": 4, "fp16": 10}
"""Half width of the band divided by the control's difference: a correct backend rounds differently
at every operation, the control only at the start. In bf16 the rounding of weights is larger."""
LEAD_STEPS = 10
"""How many steps a correct backend may be ahead of the control. Differences grow exponentially once
a training magnifies rounding, and larger initial differences grow earlier."""
MAX_LEAD = 2.0
"""Largest factor by which this widens the band: a later leap must not hide an earlier fault."""
LOSS_FLOORS: dict[Precision, float] = {
    # Smallest difference assumed for the control, relative to the first loss. Times SAFETY_FACTORS,
    # they lie above all measured differences of correct backends and below those of broken ones.
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
"""The band ends where the control differs by more than this share of the first loss: from there on
rounding alone decides the losses, and no single loss shows a fault."""
BROKEN_FROM = 2.0
"""Half widths of the band from which a difference is a fault. Differences of controls are random:
the farthest correct runs lay between one half width and this value, and visible faults seldom do
(docs/decisions.md)."""
TIMES_ONE_CONTROL = 20.0
"""With a single control, a fault differs by at least this multiple of the control's difference. One
control of several may differ by a tenth of the others' differences, which the narrow band of bf16
does not cover; two such controls were never observed (docs/decisions.md)."""

Losses = Mapping[int, float]
"""Losses by step."""


def half_widths(
    baseline: Losses, controls: Sequence[Losses], precision: Precision
) -> dict[int, float]:
    """Half width of the band by step, in the unit of the loss.

    A half width is the safety factor times the larger of the floor and the largest difference that
    a control reaches until `LEAD_STEPS` later, but at most `MAX_LEAD` times the difference reached
    at the step. So the band has the steps with finite losses in all runs, without the last
    `LEAD_STEPS`. It ends for good once a difference exceeds `TELLING_SHARES` within this lead.
    """
    finite = [
        {step for step, loss in losses.items() if math.isfinite(loss)}
        for losses in (baseline, *controls)
    ]
    steps = sorted(set.intersection(*finite))
    if not steps or not controls:
        return {}
    first_loss = abs(baseline[steps[0]])
    floor, limit = LOSS_FLOORS[precision] * first_loss, TELLING_SHARES[precision] * first_loss
    differences = ([abs(losses[step] - baseline[step]) for step in steps] for losses in controls)
    farthest = map(max, repeat(floor), *differences)
    reached = list(accumulate(farthest, max))
    return {
        step: SAFETY_FACTORS[precision] * min(ahead, MAX_LEAD * now)
        for step, now, ahead in zip(steps, reached, reached[LEAD_STEPS:], strict=False)
        if ahead <= limit
    }


def broken_limit(precision: Precision, num_controls: int) -> float:
    """The number of half widths from which a difference is a fault."""
    by_one = TIMES_ONE_CONTROL / SAFETY_FACTORS[precision] if num_controls == 1 else 0.0
    return max(BROKEN_FROM, by_one)


def leaves_open(equals: Sequence[Losses], backend: Losses, precision: Precision) -> bool:
    """Whether a backend leaves the band, but by too little for a fault, so that another control may
    decide. `equals`: losses of the baseline, then of the controls."""
    baseline, *controls = equals
    if not all(map(math.isfinite, backend.values())):
        return False
    half = half_widths(baseline, controls, precision)
    judged = [step for step in half if step in backend and half[step] > 0]
    ratios = (abs(backend[step] - baseline[step]) / half[step] for step in judged)
    highest = max(ratios, default=0.0)
    return 1 < highest < broken_limit(precision, len(controls))
