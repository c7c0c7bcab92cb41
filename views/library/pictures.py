"""Small pictures for cells of a table, as addresses that hold the picture themselves."""

import math
from collections.abc import Iterable
from urllib.parse import quote

WIDTH, HEIGHT, EDGE = 120, 24, 7
COLORS = {"faster": "#0f9d74", "slower": "#d9485a"}
OTHER_COLOR = "#8a919c"
"""Of verdicts without a colour; all of them stand out on white and on black."""
LEAST_REACH = math.log(1.25)
"""However close to 1 all intervals are, the picture reaches so far to both sides."""


def reach(ends: Iterable[float | None]) -> float:
    """How far pictures side by side must reach from 1, as a logarithm, to hold all intervals."""
    logs = [abs(math.log(end)) for end in ends if end is not None and 0 < end < math.inf]
    return max([LEAST_REACH, *logs])


def interval(low: float | None, middle: float | None, high: float | None, verdict: str | None,
             reach: float) -> str | None:  # fmt: skip
    """A bar from `low` to `high` on a logarithmic axis with 1 in the middle; None without one."""
    if low is None or middle is None or high is None or min(low, middle, high) <= 0:
        return None
    left, dot, right = (_place(math.log(value), reach) for value in (low, middle, high))
    color = COLORS.get(verdict or "", OTHER_COLOR)
    width = max(2.0, right - left)
    center = WIDTH / 2
    drawn = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">'
        f'<path d="M{center} 2V22" stroke="{OTHER_COLOR}" stroke-dasharray="2 2"/>'
        f'<rect x="{left:.1f}" y="8" width="{width:.1f}" height="8" rx="3" fill="{color}" '
        f'fill-opacity=".5"/><circle cx="{dot:.1f}" cy="12" r="4" fill="{color}"/></svg>'
    )
    return f"data:image/svg+xml,{quote(drawn, safe=_PLAIN)}"


_PLAIN = " =:/.;-,()"


def _place(log: float, reach: float) -> float:
    half = WIDTH / 2 - EDGE
    return WIDTH / 2 + half * max(-1.0, min(1.0, log / reach))
