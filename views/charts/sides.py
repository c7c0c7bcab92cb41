"""Figures of experiments side by side: one letter, one look."""

from collections.abc import Sequence
from itertools import cycle

import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.difference.sides import LETTERS, Side, labels
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.views.charts.layers import (
    layout,
    line_style,
    moving_average,
    over_steps,
    smoothing_window,
)
from breakeven.views.charts.palette import KNOWN, NEUTRAL, Look
from breakeven.views.shared import links

ROW_HEIGHT = 30
LOOKS: dict[str, Look] = dict(
    zip(LETTERS, cycle(KNOWN[name] for name in (
        "inductor", "aot_eager", "eager", "cudagraphs", "inductor-reduce-overhead",
        "inductor-forward", "inductor-blocks", "inductor-max-autotune")))
)  # fmt: skip
"""Of each letter; here a look stands for an experiment, and not for a backend."""


def losses(frame: pd.DataFrame) -> go.Figure:
    """Training loss over steps, a line for each side. `frame`: letter, step, loss."""
    figure = go.Figure()
    window = smoothing_window(frame)
    for letter, run in frame.groupby("letter", sort=True):
        line = line_style(LOOKS[str(letter)])
        if window > 1:
            figure.add_scatter(x=run["step"], y=run["loss"], mode="lines", opacity=0.25,
                               line={"color": line["color"], "width": 1}, hoverinfo="skip",
                               legendgroup=letter, showlegend=False)  # fmt: skip
            run = moving_average(run, window)
        figure.add_scatter(x=run["step"], y=run["loss"], name=letter, mode="lines", line=line,
                           legendgroup=letter)  # fmt: skip
    return over_steps(figure, links.axis("loss"))


def speedups(sides: Sequence[Side]) -> go.Figure:
    """A dot and its interval per backend and side, on one axis with a line at 1."""
    figure, names = go.Figure(), labels(sides)
    for side in sides:
        look = LOOKS[side.letter]
        found = [(label, one.speedup) for label in names if (one := side.result(label))]
        measured = [(label, ratio) for label, ratio in found if ratio is not None]
        middles = [ratio.median for _, ratio in measured]
        above = [(ratio.high or ratio.median) - ratio.median for _, ratio in measured]
        below = [ratio.median - (ratio.low or ratio.median) for _, ratio in measured]
        figure.add_scatter(
            x=middles, y=[[label for label, _ in measured], [side.letter] * len(measured)],
            name=side.letter, mode="markers", text=[ratio_text(ratio) for _, ratio in measured],
            error_x={"array": above, "arrayminus": below, "thickness": 2, "width": 0},
            marker={"size": 10, "color": look.color, "symbol": look.symbol},
            hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
    figure.add_vline(x=1, line={"color": NEUTRAL, "width": 1})
    height = 100 + ROW_HEIGHT * len(names) * len(sides)
    figure.update_layout(**{**layout(), "height": height}, showlegend=False)
    figure.update_xaxes(title_text=links.axis("speedup"), zeroline=False)
    return figure.update_yaxes(autorange="reversed", title_text="")
