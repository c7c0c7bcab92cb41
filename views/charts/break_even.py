"""Figures of time paid for compiling and time saved per step, and where they meet.

Lines follow the estimate of `storage.comparison.comparison`, compile latency and seconds saved per
step, so each crosses the baseline's at its run's break-even. Thin dotted lines are measurements.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.comparison.evidence import of_role
from breakeven.storage.comparison.plan import TimeEstimate, estimate_time
from breakeven.storage.comparison.results import Result
from breakeven.storage.numbers.metrics import METRICS
from breakeven.views.charts.layers import by_run, line_style, over_steps
from breakeven.views.charts.palette import NEUTRAL, Look
from breakeven.views.shared import links

MAX_EXTRAPOLATION = 30
"""Lines are extended to a break-even within this many times the measured or planned steps."""
NUM_POINTS = 60
"""Points of an estimated line, where the pointer finds values."""
MEASURED = {"width": 1.5, "dash": "2px,4px"}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Seconds after a number of steps of one run: measured and estimated."""

    label: str
    role: str
    look: Look
    steps: Any
    seconds: Any
    estimate: TimeEstimate | None
    """None without a measured steady step."""
    pays_off: float | None = None
    """Steps until break-even; None for never, unsure, and runs without one."""
    note: str = ""

    @property
    def last(self) -> float:
        return float(self.steps[-1])

    def at(self, step: Any) -> Any:
        """Estimated seconds at one or several steps."""
        return 0.0 if self.estimate is None else self.estimate.total_seconds(step)


def cumulative(frame: pd.DataFrame, results: Sequence[Result], num_steps: int = 0) -> go.Figure:
    """Time since the first step, compiling included, with each backend's break-even marked.

    `frame`: run_id, label, role, step, seconds (running sum). `num_steps`: of the plan; lines
    extend at least to this step.
    """
    curves = _curves(frame, results)
    figure = _draw(curves, of_role(curves, "baseline"), num_steps, is_saved=False)
    return over_steps(figure, links.axis("cumulative_seconds"))


def saved(frame: pd.DataFrame, results: Sequence[Result], num_steps: int = 0) -> go.Figure:
    """Time saved against the baseline after each number of steps: negative before break-even."""
    curves = _curves(frame, results)
    baseline = of_role(curves, "baseline")
    figure = go.Figure() if baseline is None else _draw(curves, baseline, num_steps, is_saved=True)
    return over_steps(figure, links.axis("time_saved"))


def _curves(frame: pd.DataFrame, results: Sequence[Result]) -> list[Curve]:
    by_label = {result.label: result for result in results}
    baseline = of_role(results, "baseline")
    curves = []
    for label, role, look, run in by_run(frame):
        result = by_label.get(label)
        times = result.batch_times if result else 1
        found = result.break_even if result and baseline else None
        reached = found is not None and found.verdict == "reached" and found.steps is not None
        note = ""
        if found is not None:
            note = f": {METRICS['break_even_verdict'].format(found.verdict)}"
        if found is not None and reached:
            chance = ", perhaps never" if found.high == math.inf else ""
            note = f": after {METRICS['break_even_steps'].format(found.steps)} steps{chance}"
        curves.append(Curve(
            label=label, role=role, look=look, note=note,
            # After step 0, one step is done. A step of a larger batch counts as several.
            steps=(run["step"].to_numpy(float) + 1) * times,
            seconds=run["seconds"].to_numpy(float),
            estimate=None if result is None else estimate_time(result, baseline),
            pays_off=found.steps if found is not None and reached else None,
        ))  # fmt: skip
    return curves


def _draw(
    curves: Sequence[Curve], baseline: Curve | None, num_steps: int, *, is_saved: bool
) -> go.Figure:
    """Draws estimated lines, thin dotted lines of measurements, and a ring where each meets the
    baseline; `is_saved`: draws the difference to the baseline instead of the time."""
    figure = go.Figure()
    measured = max((curve.last for curve in curves), default=0.0)
    near = {
        curve.label: curve.pays_off
        for curve in curves
        if curve.pays_off is not None
        and curve.pays_off <= MAX_EXTRAPOLATION * max(measured, num_steps)
    }
    horizon = max(measured, num_steps, max(near.values(), default=0.0) * 1.15)
    steps = np.linspace(0.0, horizon, NUM_POINTS)
    zero = baseline if is_saved else None
    for curve in curves:
        is_estimated = curve.estimate is not None and (zero is None or zero.estimate is not None)
        _add(figure, curve, *_measured(curve, zero), named=not is_estimated, opacity=0.6,
             line={**MEASURED, "color": curve.look.color})  # fmt: skip
        if is_estimated:
            heights = curve.at(steps) if zero is None else zero.at(steps) - curve.at(steps)
            _add(figure, curve, steps, heights, named=True, line=line_style(curve.look))
    for curve in curves:
        if baseline is not None and curve.label in near:
            at = near[curve.label]
            _mark(figure, curve, at, 0.0 if is_saved else float(baseline.at(at)))
    if horizon > measured > 0:
        figure.add_vline(x=measured, line_width=1, line_dash="dot", line_color=NEUTRAL)
        figure.add_annotation(
            x=measured, y=0, yref="paper", text="measured", showarrow=False, xanchor="right",
            xshift=-4, yanchor="bottom", font={"size": 11, "color": NEUTRAL},
        )  # fmt: skip
    return figure


def _measured(curve: Curve, baseline: Curve | None) -> tuple[Any, Any]:
    """Steps and seconds; with a baseline, the seconds saved against it, up to its last step."""
    if baseline is None:
        return curve.steps, curve.seconds
    steps = curve.steps[curve.steps <= baseline.last]
    taken = np.interp(steps, baseline.steps, baseline.seconds)
    return steps, taken - curve.seconds[: len(steps)]


def _add(figure: go.Figure, curve: Curve, x: Any, y: Any, *, named: bool, **style: Any) -> None:
    figure.add_scatter(
        x=x, y=y, name=curve.label + curve.note, showlegend=named,
        legendgroup=curve.label, mode="lines", hoverinfo=None if named else "skip", **style,
    )  # fmt: skip


def _mark(figure: go.Figure, curve: Curve, steps: float, height: float) -> None:
    figure.add_scatter(
        x=[steps],
        y=[height],
        mode="markers",
        name=f"{curve.label} pays off",
        legendgroup=curve.label,
        showlegend=False,
        marker={
            "color": curve.look.color,
            "size": 12,
            "symbol": "circle-open",
            "line": {"width": 2.5},
        },
        text=[f"{curve.label} pays off after {steps:,.0f} steps"],
        hovertemplate="%{text}<extra></extra>",
    )
