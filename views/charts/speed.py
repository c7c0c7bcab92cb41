"""Speedups with their intervals, and the time paid for compiling and saved per step.

Lines of time follow the estimate of `storage.comparison.comparison`, compile latency and seconds
saved per step, so each crosses the baseline's at its run's break-even. Thin dotted lines are
measurements.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.comparison.evidence import of_role
from breakeven.storage.comparison.plan import TimeEstimate, estimate_time
from breakeven.storage.comparison.results import Result
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.side_by_side.sides import LETTERS, Side, labels
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.views.charts.bars import per_run
from breakeven.views.charts.layout import by_run, in_rows, line_style, over_steps
from breakeven.views.charts.palette import FAINT, KNOWN, NEUTRAL, NON_RUN_COLORS, Look, run_looks
from breakeven.views.shared.definition_links import axis
from breakeven.views.shared.words import shortened

ROW_HEIGHT, SIDE_HEIGHT = 58, 30
LOOKS = {
    letter: replace(look, color=color)
    for letter, look, color in zip(LETTERS, cycle(list(KNOWN.values())[2:]), cycle(NON_RUN_COLORS))
}
"""Looks of letters, in colours that no backend has: here a look means an experiment."""


def speedups(
    results: Sequence[Result], ratios: pd.DataFrame, noise_floor: float | None
) -> go.Figure:
    """A dot and its interval per run, with a line at 1 and the control's noise; rings show the
    medians of several processes.

    `ratios`: label, process, round, speedup, of `storage.comparison.pairs`.
    """
    figure = go.Figure()
    shown = [result for result in results if result.speedup is not None]
    looks = run_looks(result.label for result in results)
    medians = ratios.groupby(["label", "process"], sort=False)["speedup"].median()
    for result in shown:
        ratio, look = result.speedup, looks[result.label]
        assert ratio is not None
        ends = [ratio.low, ratio.high] if ratio.low and ratio.high else []
        figure.add_scatter(
            x=ends,
            y=[result.label] * len(ends),
            mode="lines",
            line={"color": look.color, "width": 3},
            hoverinfo="skip",
            showlegend=False,
        )
        of_run = medians[result.label] if result.label in medians else medians.iloc[:0]
        if len(of_run) > 1:
            figure.add_scatter(
                x=of_run,
                y=[result.label] * len(of_run),
                mode="markers",
                showlegend=False,
                marker={"symbol": "circle-open", "size": 12, "color": look.color},
                text=[f"process {number}" for number in of_run.index],
                hovertemplate="%{text}: %{x:.3f}x<extra></extra>",
            )
        figure.add_scatter(
            x=[ratio.median],
            y=[result.label],
            mode="markers+text",
            showlegend=False,
            marker={"size": 9, "color": look.color, "symbol": look.symbol},
            text=[f"{ratio_text(result.speedup)}<br> "],
            textposition="top center",
            cliponaxis=False,
            hoverinfo="skip",
        )
    figure.add_vline(x=1, line={"color": NEUTRAL, "width": 1})
    if noise_floor is not None:
        figure.add_vrect(
            x0=1 / (1 + noise_floor), x1=1 + noise_floor, fillcolor=FAINT, line_width=0
        )
    per_run(figure, [result.label for result in shown], axis("speedup"))
    figure.update_layout(height=110 + ROW_HEIGHT * len(shown))
    figure.update_xaxes(range=_room(shown, noise_floor))
    return figure.update_yaxes(autorange=False, range=[len(shown) - 0.5, -0.8])


def _room(shown: Sequence[Result], noise_floor: float | None) -> list[float]:
    """The range of the axis: from the lowest end to the highest, and a little more."""
    ends = [1.0, 1 + (noise_floor or 0.0), 1 / (1 + (noise_floor or 0.0))]
    for result in shown:
        ratio = result.speedup
        assert ratio is not None
        ends += [ratio.median, ratio.low or ratio.median, ratio.high or ratio.median]
    margin = 0.06 * (max(ends) - min(ends)) or 0.01
    return [min(ends) - margin, max(ends) + margin]


def round_by_round(ratios: pd.DataFrame) -> go.Figure:
    """Each round's ratio as a point, and the median of the rounds so far as a line, for every
    process of every run.

    `ratios`: label, role, process, round, speedup.
    """
    figure = go.Figure()
    in_order = ratios.rename(columns={"round": "step"})
    for label, _role, look, run in by_run(in_order):
        for number, (_, process) in enumerate(run.groupby("process")):
            process = process.sort_values("step")
            figure.add_scatter(
                x=process["step"],
                y=process["speedup"],
                mode="markers",
                showlegend=False,
                marker={"color": look.color, "size": 4, "symbol": look.symbol},
                opacity=0.4,
                legendgroup=label,
                hoverinfo="skip",
            )
            figure.add_scatter(
                x=process["step"],
                y=process["speedup"].expanding().median(),
                mode="lines",
                name=label,
                line=line_style(look),
                legendgroup=label,
                showlegend=number == 0,
            )
    figure.add_hline(y=1, line={"color": NEUTRAL, "width": 1})
    over_steps(figure, axis("speedup"), "round")
    # A round that another program disturbed would flatten all others.
    low, high = ratios["speedup"].quantile([0.03, 0.97])
    low, high = min(low, 0.98), max(high, 1.02)
    margin = 0.1 * (high - low)
    return figure.update_yaxes(range=[low - margin, high + margin])


def speedups_of_sides(sides: Sequence[Side]) -> go.Figure:
    """A dot and its interval per backend and side, on one axis with a line at 1."""
    figure, names = go.Figure(), labels(sides)
    for side in sides:
        look = LOOKS[side.letter]
        speedups_by_label = [
            (label, result.speedup) for label in names if (result := side.result(label))
        ]
        measured = [(label, ratio) for label, ratio in speedups_by_label if ratio is not None]
        middles = [ratio.median for _, ratio in measured]
        above = [(ratio.high or ratio.median) - ratio.median for _, ratio in measured]
        below = [ratio.median - (ratio.low or ratio.median) for _, ratio in measured]
        figure.add_scatter(
            x=middles,
            y=[[label for label, _ in measured], [side.letter] * len(measured)],
            name=side.letter,
            mode="markers",
            text=[ratio_text(ratio) for _, ratio in measured],
            error_x={"array": above, "arrayminus": below, "thickness": 2, "width": 0},
            marker={"size": 10, "color": look.color, "symbol": look.symbol},
            hovertemplate="%{text}<extra></extra>",
        )
    figure.add_vline(x=1, line={"color": NEUTRAL, "width": 1})
    height = 72 + SIDE_HEIGHT * len(names) * len(sides)
    return in_rows(figure, axis("speedup"), height, showlegend=False, margin_t=8)


MAX_EXTRAPOLATION = 30
"""Lines are extended to a break-even within this many times the measured or planned steps."""
NUM_POINTS = 60
"""Points of an estimated line, where the pointer finds values."""
MEASURED = {"width": 1.5, "dash": "2px,4px"}
LEVEL, RISING = 0.25, 0.1
"""Room of the name beside a ring, as a share of the chart's width: on a level line as wide as the
name, on a rising one until the next name is lower or higher."""


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
    return over_steps(figure, axis("cumulative_seconds"))


def saved(frame: pd.DataFrame, results: Sequence[Result], num_steps: int = 0) -> go.Figure:
    """Time saved against the baseline after each number of steps: negative before break-even."""
    curves = _curves(frame, results)
    baseline = of_role(curves, "baseline")
    figure = go.Figure() if baseline is None else _draw(curves, baseline, num_steps, is_saved=True)
    return over_steps(figure, axis("time_saved"))


def _curves(frame: pd.DataFrame, results: Sequence[Result]) -> list[Curve]:
    by_label = {result.label: result for result in results}
    baseline = of_role(results, "baseline")
    curves = []
    for label, role, look, run in by_run(frame):
        result = by_label.get(label)
        times = result.batch_times if result else 1
        break_even = result.break_even if result and baseline else None
        reached = (
            break_even is not None
            and break_even.verdict == "reached"
            and break_even.steps is not None
        )
        note = ""
        if break_even is not None:
            note = f": {METRICS['break_even_verdict'].format(break_even.verdict)}"
        if break_even is not None and reached:
            chance = ", perhaps never" if break_even.high == math.inf else ""
            note = f": after {METRICS['break_even_steps'].format(break_even.steps)} steps{chance}"
        curves.append(
            Curve(
                label=label,
                role=role,
                look=look,
                note=note,
                # After step 0, one step is done. A step of a larger batch counts as several.
                steps=(run["step"].to_numpy(float) + 1) * times,
                seconds=run["seconds"].to_numpy(float),
                estimate=None if result is None else estimate_time(result, baseline),
                pays_off=break_even.steps if break_even is not None and reached else None,
            )
        )
    return curves


def _draw(
    curves: Sequence[Curve], baseline: Curve | None, num_steps: int, *, is_saved: bool
) -> go.Figure:
    """Draws estimated lines, thin dotted lines of measurements, and a ring where each meets the
    baseline; `is_saved`: draws the difference to the baseline instead of the time."""
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
    traces = []
    for curve in curves:
        is_estimated = curve.estimate is not None and (zero is None or zero.estimate is not None)
        traces.append(
            _line(
                curve,
                *_measured(curve, zero),
                named=not is_estimated,
                opacity=0.6,
                line={**MEASURED, "color": curve.look.color},
            )
        )
        if is_estimated:
            heights = curve.at(steps) if zero is None else zero.at(steps) - curve.at(steps)
            style = line_style(curve.look)
            traces.append(_line(curve, steps, heights, named=True, line=style))
    texts = _mark_texts(near, horizon, LEVEL if is_saved else RISING)
    for curve in curves:
        if baseline is not None and curve.label in near:
            at = near[curve.label]
            height = 0.0 if is_saved else float(baseline.at(at))
            traces.append(_mark(curve, at, height, horizon, texts[curve.label]))
    figure = go.Figure(traces)  # Adding one trace after the other takes twice as long.
    if horizon > measured > 0:
        shift = 4 if measured < horizon / 2 else -4
        figure.add_vline(x=measured, line_width=1, line_dash="dot", line_color=NEUTRAL)
        figure.add_annotation(
            x=measured,
            y=1,
            yref="paper",
            text="measured",
            showarrow=False,
            yanchor="top",
            xanchor="left" if measured < horizon / 2 else "right",
            xshift=shift,
            font={"size": 11},
        )
    return figure


def _measured(curve: Curve, baseline: Curve | None) -> tuple[Any, Any]:
    """Steps and seconds; with a baseline, the seconds saved against it, up to its last step."""
    if baseline is None:
        return curve.steps, curve.seconds
    steps = curve.steps[curve.steps <= baseline.last]
    baseline_seconds = np.interp(steps, baseline.steps, baseline.seconds)
    return steps, baseline_seconds - curve.seconds[: len(steps)]


def _line(curve: Curve, x: Any, y: Any, *, named: bool, **style: Any) -> dict[str, Any]:
    return dict(
        x=x,
        y=y,
        name=curve.label + curve.note,
        showlegend=named,
        legendgroup=curve.label,
        mode="lines",
        hoverinfo=None if named else "skip",
        **style,
    )


def _mark_texts(near: Mapping[str, float], horizon: float, room: float) -> dict[str, str]:
    """Names beside the rings. Of rings within `room`, a share of the width, only the first has one,
    which tells how many follow."""
    groups: list[list[str]] = []
    for label, steps in sorted(near.items(), key=itemgetter(1)):
        if groups and steps - near[groups[-1][0]] < room * horizon:
            groups[-1].append(label)
        else:
            groups.append([label])
    texts = dict.fromkeys(near, "")
    for first, *others in groups:
        texts[first] = shortened(first) + (f" and {len(others)} more" if others else "")
    return texts


def _mark(curve: Curve, steps: float, height: float, horizon: float, text: str) -> dict[str, Any]:
    """A ring with a text, on the side where it stays inside the figure."""
    return dict(
        x=[steps],
        y=[height],
        mode="markers+text",
        name=f"{curve.label} pays off",
        legendgroup=curve.label,
        showlegend=False,
        text=[text],
        textposition="bottom right" if steps < horizon / 2 else "top left",
        cliponaxis=False,  # A text below the first steps reaches the axis.
        marker={
            "color": curve.look.color,
            "size": 12,
            "symbol": "circle-open",
            "line": {"width": 2.5},
        },
        hovertext=[f"{curve.label} pays off after {steps:,.0f} steps"],
        hovertemplate="%{hovertext}<extra></extra>",
    )
