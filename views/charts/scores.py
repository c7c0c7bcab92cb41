"""Figures of evaluations: scores over the steps and of the last evaluation, and confusions."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.comparison.results import Result
from breakeven.storage.numbers.metrics import METRICS, Metric
from breakeven.views.charts import bars
from breakeven.views.charts.layout import (
    HEIGHT,
    LEGEND_LINE,
    by_run,
    in_rows,
    layers_of,
    over_steps,
    write_cells,
)
from breakeven.views.charts.palette import NEUTRAL, SPLITS, UNKNOWN_SPLIT
from breakeven.views.shared.definition_links import axis

MAX_NAMED_CELLS = 15
"""Most classes for which the cells of a confusion matrix show their numbers."""
CELL, MAX_HEIGHT = 34, 900
SCORE_HEIGHT = 230


def score_metric(name: str) -> Metric | None:
    """The metric of an evaluation's score; None for a score of a callback."""
    return METRICS.get("eval_loss" if name == "loss" else name)


def scores(frame: pd.DataFrame, name: str) -> go.Figure:
    """One number of one run's evaluations over the steps, a line for each split.

    `frame`: step, split, compiled, value. The compiled model has a dashed line and rings, drawn
    around the marks of the same weights without a compiler: equal values lie inside each other.
    """
    figure = go.Figure()
    legend = {"showlegend": True}
    for (split, compiled), group in frame.groupby(["split", "compiled"], sort=False):
        look = SPLITS.get(str(split), UNKNOWN_SPLIT)
        figure.add_scatter(
            x=group["step"],
            y=group["value"],
            mode="lines+markers",
            legendgroup=str(split),
            name="under the compiled model" if compiled else str(split),
            line={"color": look.color, "width": 1.6, "dash": "dash" if compiled else look.dash},
            marker={"size": 12, "symbol": f"{look.symbol}-open"}
            if compiled
            else {"size": 6, "symbol": look.symbol},
            **(legend if compiled else {}),
        )
        if compiled:  # one legend for all splits
            legend = {"showlegend": False}
    named = sum(trace.showlegend is not False for trace in figure.data)
    return _score_axis(figure, name).update_layout(height=SCORE_HEIGHT + LEGEND_LINE * named)


def last_scores(
    results: Sequence[Result], name: str, majority_share: float | None = None
) -> go.Figure:
    """Each run's score at its last evaluation, one bar per run.

    `majority_share`, drawn as a line: the score of always guessing the most frequent label.
    """
    figure = bars.metric(results, name)
    if _is_share(name):  # the room beyond 100 % is for text only
        figure.update_xaxes(tickformat=".0%", tickvals=[0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    if majority_share is not None:
        figure.add_vline(x=majority_share, **_reference("top right"))
        figure.update_layout(margin_t=26)
    return figure


def scores_of_runs(
    frame: pd.DataFrame, name: str, majority_share: float | None = None, over: str = ""
) -> go.Figure:
    """Scores of each run by epoch, or by step if an epoch had several evaluations.

    `frame`: label, role, epoch, step, value of one number on one split. `over`: another column and
    number of the registry, as x-axis.
    """
    figure = go.Figure()
    over = over or ("step" if frame.duplicated(["label", "epoch"]).any() else "epoch")
    layers = layers_of(frame)
    for label, _role, look, run in by_run(frame):
        figure.add_scatter(
            x=run[over],
            y=run["value"],
            name=label,
            mode="lines+markers",
            marker={"size": 8, "symbol": look.symbol},
            **layers[label],
        )
    if majority_share is not None:
        figure.add_hline(y=majority_share, **_reference("top left"))
    _score_axis(figure, name, over)
    return figure.update_xaxes(dtick=1) if over == "epoch" else figure


def _score_axis(figure: go.Figure, name: str, over: str = "step") -> go.Figure:
    metric = score_metric(name)
    over_steps(figure, axis(metric.name) if metric else axis("own_values", name), over)
    if _is_share(name):
        figure.update_yaxes(tickformat=".2~%", hoverformat=".1%", rangemode="tozero")
    return figure


def _is_share(name: str) -> bool:
    """Whether the score is written in per cent."""
    metric = score_metric(name)
    return metric is not None and metric.format(0.5).endswith("%")


def _reference(position: str) -> dict[str, Any]:
    """A dotted line at the score of guessing."""
    return {
        "line_width": 1,
        "line_dash": "dot",
        "line_color": NEUTRAL,
        "annotation_text": "always the most frequent label",
        "annotation_position": position,
        "annotation_yanchor": "bottom",
        "annotation_font_size": 11,
    }


def confusion(counts: pd.DataFrame) -> go.Figure:
    """Number of samples of each label (rows) by prediction (columns).

    Colours are shares of the row, so that rare labels show as clearly as frequent ones.
    """
    totals = counts.sum(axis=1).replace(0, 1)
    shares = counts.div(totals, axis=0)
    named = len(counts) <= MAX_NAMED_CELLS
    figure = go.Figure(
        go.Heatmap(
            x=[str(label) for label in counts.columns],
            y=[str(label) for label in counts.index],
            z=shares,
            text=counts,
            colorscale="Blues",
            zmin=0,
            zmax=1,
            showscale=False,
            hovertemplate="%{y}, predicted as %{x}: %{text} samples, %{z:.1%}<extra></extra>",
        )
    )
    if named:
        write_cells(figure)
    height = min(MAX_HEIGHT, max(HEIGHT, 110 + CELL * len(counts)))
    in_rows(figure, "Prediction", height, margin_t=8)
    figure.update_xaxes(type="category", showgrid=False)
    return figure.update_yaxes(title_text="Label", type="category", showgrid=False)
