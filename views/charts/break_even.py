"""Figures of time paid for compiling and time saved per step, and where they meet.

Within the measured steps the lines are measurements; beyond them dotted lines go on at each run's
steady speed, as far as the last crossing. Where a run pays off is `storage.comparison.comparison`'s
number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from storage.comparison.results import Result
from storage.comparison.roles import of_role
from storage.statistics.speedups import BreakEven
from views.charts.layers import by_run, line_style, over_steps
from views.charts.palette import NEUTRAL, Look
from views.shared import links
from views.shared.figure import Figure

MAX_EXTRAPOLATION = 10
"""Lines are extended to at most this many times the measured steps."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Seconds after so many steps of one run, measured, and going on at its steady speed."""

    label: str
    role: str
    look: Look
    steps: Any
    seconds: Any
    slope: float
    """Seconds per steady step; 0 where no steady step was measured."""
    pays_off: float | None = None
    """Steps until break-even; None for never, unsure, and runs that have none."""
    note: str = ""

    @property
    def last(self) -> float:
        return float(self.steps[-1])

    def at(self, step: float) -> float:
        """Seconds at a step, measured or going on steadily."""
        if step <= self.last:
            return float(np.interp(step, self.steps, self.seconds))
        return float(self.seconds[-1]) + self.slope * (step - self.last)


def cumulative(frame: pd.DataFrame, results: Sequence[Result]) -> go.Figure:
    """Time since the first step, compiling included, with each backend's break-even marked.

    `frame`: run_id, label, role, step, seconds (running sum).
    """
    curves = _curves(frame, results)
    baseline = of_role(curves, "baseline")
    figure = _draw(curves, baseline)
    return over_steps(figure, links.axis("cumulative_seconds"))


def saved(frame: pd.DataFrame, results: Sequence[Result]) -> go.Figure:
    """Time saved against the baseline after so many steps: below zero until it pays off."""
    curves = _curves(frame, results)
    baseline = of_role(curves, "baseline")
    if baseline is None:
        return over_steps(Figure(), links.axis("time_saved"))
    gains = [
        replace(
            curve,
            seconds=np.array([baseline.at(step) for step in curve.steps]) - curve.seconds,
            slope=baseline.slope - curve.slope if baseline.slope and curve.slope else 0.0,
        )
        for curve in curves
        if curve.role != "baseline"
    ]
    zero = replace(baseline, seconds=np.zeros(len(baseline.steps)), slope=0.0)
    figure = _draw([zero, *gains], zero)
    return over_steps(figure, links.axis("time_saved"))


def _curves(frame: pd.DataFrame, results: Sequence[Result]) -> list[Curve]:
    by_label = {result.label: result for result in results}
    curves = []
    for label, role, look, run in by_run(frame):
        result = by_label.get(label)
        curve = Curve(
            label=label,
            role=role,
            look=look,
            steps=run["step"].to_numpy(float) + 1,  # after step 0, one step is done
            seconds=run["seconds"].to_numpy(float),
            slope=(result.measured.step_seconds or 0.0) if result is not None else 0.0,
        )
        if result is not None and result.break_even is not None:
            sure = result.break_even_verdict == "reached"
            steps = result.break_even.steps if sure else None
            curve = replace(curve, pays_off=steps, note=f": {_note(result, result.break_even)}")
        curves.append(curve)
    return curves


def _note(result: Result, found: BreakEven) -> str:
    if result.break_even_verdict != "reached":
        return str(result.break_even_verdict)
    chance = ", perhaps never" if found.high is not None and math.isinf(found.high) else ""
    return f"after {found.steps:,.0f} steps{chance}"


def _draw(curves: Sequence[Curve], baseline: Curve | None) -> go.Figure:
    """Lines, their dotted continuations, and a ring where each meets the baseline."""
    figure = Figure()
    measured = max((curve.last for curve in curves), default=0.0)
    near = {
        curve.label: curve.pays_off
        for curve in curves
        if curve.pays_off is not None and curve.pays_off <= MAX_EXTRAPOLATION * measured
    }
    horizon = max(near.values(), default=0.0) * 1.15
    for curve in curves:
        style = line_style(curve.look)
        _add(figure, curve, curve.steps, curve.seconds, style, named=True)
        if horizon > measured and (curve is baseline or curve.label in near):
            ends = [curve.last, horizon]
            dotted = {**style, "dash": "dot"}
            _add(figure, curve, ends, [curve.at(end) for end in ends], dotted, named=False)
    for curve in curves:
        if baseline is not None and curve.label in near:
            _mark(figure, curve, near[curve.label], baseline)
    if horizon > measured > 0:
        figure.add_vline(x=measured, line_width=1, line_dash="dot", line_color=NEUTRAL)
        figure.add_annotation(
            x=measured, y=0, yref="paper", text="measured", showarrow=False, xanchor="right",
            xshift=-4, yanchor="bottom", font={"size": 11, "color": NEUTRAL},
        )  # fmt: skip
    return figure


def _add(
    figure: go.Figure, curve: Curve, x: Any, y: Any, style: dict[str, Any], *, named: bool
) -> None:
    figure.add_scatter(
        x=x, y=y, name=curve.label + curve.note, mode="lines", line=style, showlegend=named,
        legendgroup=curve.label, hoverinfo=None if named else "skip",
    )  # fmt: skip


def _mark(figure: go.Figure, curve: Curve, steps: float, baseline: Curve) -> None:
    figure.add_scatter(
        x=[steps],
        y=[baseline.at(steps)],
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
