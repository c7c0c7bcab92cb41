"""Speedups with their intervals, by round, and of experiments side by side."""

from collections.abc import Sequence
from itertools import cycle

import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.comparison.results import Result
from breakeven.storage.difference.sides import LETTERS, Side, labels
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.views.charts.bars import per_run
from breakeven.views.charts.layers import by_run, in_rows, line_style, over_steps
from breakeven.views.charts.palette import FAINT, KNOWN, NEUTRAL, Look, run_looks
from breakeven.views.shared import links

ROW_HEIGHT, SIDE_HEIGHT = 58, 30
LOOKS: dict[str, Look] = dict(
    zip(LETTERS, cycle(KNOWN[name] for name in (
        "inductor", "aot_eager", "eager", "cudagraphs", "inductor-reduce-overhead",
        "inductor-forward", "inductor-blocks", "inductor-max-autotune")))
)  # fmt: skip
"""Looks of letters; here a look means an experiment, not a backend."""


def speedups(
    results: Sequence[Result], ratios: pd.DataFrame, noise_floor: float | None
) -> go.Figure:
    """A dot and its interval per run, with a line at 1 and the control's noise; rings show the
    medians of several processes.

    `ratios`: label, process, round, speedup, of `storage.comparison.rounds`.
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
            x=ends, y=[result.label] * len(ends), mode="lines",
            line={"color": look.color, "width": 3}, hoverinfo="skip", showlegend=False,
        )  # fmt: skip
        mine = medians[result.label] if result.label in medians else medians.iloc[:0]
        if len(mine) > 1:
            figure.add_scatter(
                x=mine, y=[result.label] * len(mine), mode="markers", showlegend=False,
                marker={"symbol": "circle-open", "size": 12, "color": look.color},
                text=[f"process {number}" for number in mine.index],
                hovertemplate="%{text}: %{x:.3f}x<extra></extra>",
            )  # fmt: skip
        figure.add_scatter(
            x=[ratio.median], y=[result.label], mode="markers+text", showlegend=False,
            marker={"size": 9, "color": look.color, "symbol": look.symbol},
            text=[f"{ratio_text(result.speedup)}<br> "],
            textposition="top center", cliponaxis=False, hoverinfo="skip",
        )  # fmt: skip
    figure.add_vline(x=1, line={"color": NEUTRAL, "width": 1})
    if noise_floor is not None:
        figure.add_vrect(
            x0=1 / (1 + noise_floor), x1=1 + noise_floor, fillcolor=FAINT, line_width=0
        )
    per_run(figure, [result.label for result in shown], links.axis("speedup"))
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
                x=process["step"], y=process["speedup"], mode="markers", showlegend=False,
                marker={"color": look.color, "size": 4, "symbol": look.symbol}, opacity=0.4,
                legendgroup=label, hoverinfo="skip",
            )  # fmt: skip
            figure.add_scatter(
                x=process["step"], y=process["speedup"].expanding().median(), mode="lines",
                name=label, line=line_style(look), legendgroup=label,
                showlegend=number == 0,
            )  # fmt: skip
    figure.add_hline(y=1, line={"color": NEUTRAL, "width": 1})
    over_steps(figure, links.axis("speedup"), "round")
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
    height = 100 + SIDE_HEIGHT * len(names) * len(sides)
    return in_rows(figure, links.axis("speedup"), height, showlegend=False)
