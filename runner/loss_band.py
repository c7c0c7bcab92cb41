"""The band in which a correct backend's losses lie.

Controls, baselines from minutely perturbed weights, show how far rounding alone drives losses
apart. Where the band leaves a backend open, the supervisor measures more controls; parity judges by
the band (`storage.statistics.parity`; measurements: docs/parity.md).
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, repeat

from breakeven.runner.specs.training import Precision

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
TELLING_SHARES: dict[Precision, float] = {
    "float32": 0.01,
    "tf32": 0.01,
    "bf16": 0.005,
    "fp16": 0.01,
}
"""The band ends where the control strays by more than this share of the first loss: from there on
rounding alone decides what the next losses are, and no single one tells right from wrong."""
BROKEN_FROM = 2.0
"""Half widths of the band from which a difference is a fault. How far controls stray is chance:
the farthest correct runs lay between one half width and this, and faults that show hardly do
(docs/parity.md)."""
TIMES_ONE_CONTROL = 20.0
"""How many times what a single control strays a fault differs by at least. One control of several
may stray by a tenth of what the others do, which the narrow band of bf16 does not cover; two such
controls were not seen (docs/parity.md)."""

Losses = Mapping[int, float]
"""By step."""


def half_widths(
    baseline: Losses, controls: Sequence[Losses], precision: Precision
) -> dict[int, float]:
    """Half width of the band by step, in the loss's own unit.

    A half width is the safety factor times the larger of the floor and the largest difference that
    a control reaches until `LEAD_STEPS` later, but at most `MAX_LEAD` times what it has reached by
    then. So the band covers the steps, finite in all, that have as many behind them; it ends for
    good once a control is about to stray further than `TELLING_SHARES` allows.
    """
    finite = [{step for step, loss in one.items() if math.isfinite(loss)}
              for one in (baseline, *controls)]  # fmt: skip
    steps = sorted(set.intersection(*finite))
    if not steps or not controls:
        return {}
    first_loss = abs(baseline[steps[0]])
    floor, limit = LOSS_FLOORS[precision] * first_loss, TELLING_SHARES[precision] * first_loss
    differences = ([abs(one[step] - baseline[step]) for step in steps] for one in controls)
    farthest = map(max, repeat(floor), *differences)
    reached = list(accumulate(farthest, max))
    return {
        step: SAFETY_FACTORS[precision] * min(ahead, MAX_LEAD * now)
        for step, now, ahead in zip(steps, reached, reached[LEAD_STEPS:], strict=False)
        if ahead <= limit
    }


def broken_from(precision: Precision, num_controls: int) -> float:
    """From how many half widths on a difference is a fault."""
    by_one = TIMES_ONE_CONTROL / SAFETY_FACTORS[precision] if num_controls == 1 else 0.0
    return max(BROKEN_FROM, by_one)


def leaves_open(equals: Sequence[Losses], backend: Losses, precision: Precision) -> bool:
    """Whether a backend leaves the band by too little to call that a fault, so that a further
    control may tell. `equals`: losses of the baseline, then of the controls."""
    baseline, *controls = equals
    if not all(map(math.isfinite, backend.values())):
        return False
    half = half_widths(baseline, controls, precision)
    judged = [step for step in half if step in backend and half[step] > 0]
    ratios = (abs(backend[step] - baseline[step]) / half[step] for step in judged)
    highest = max(ratios, default=0.0)
    return 1 < highest < broken_from(precision, len(controls))
