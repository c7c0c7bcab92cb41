"""One number over time: each experiment with its interval, the levels and their steps."""

from collections.abc import Sequence
from itertools import pairwise

import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.library.devices import DeviceHistory, Quantity
from breakeven.storage.library.trends import Point, Series
from breakeven.storage.numbers.metrics import METRICS, NUMBERS, axis_unit
from breakeven.storage.queries import thinned
from breakeven.storage.statistics.steps import divide
from breakeven.views.charts.layers import (
    HEIGHT,
    by_run,
    layout,
    line_style,
    over_days,
    over_steps,
)
from breakeven.views.charts.palette import BAD, FAINT, KNOWN, NEUTRAL, run_looks
from breakeven.views.shared import links
from breakeven.views.shared.inert import inert
from breakeven.views.shared.links import axis

BETTER = KNOWN["eager"].color
MAX_MARKED = 12
"""Most changes of versions with a name; more names would hide each other."""


def trend(found: Sequence[Series]) -> go.Figure:
    """Series of one quantity over the time of submission."""
    figure = go.Figure()
    quantity = found[0].quantity
    looks = run_looks(series.backend for series in found)
    factor, title = _unit(found)
    for row, series in enumerate(found):
        look = looks[series.backend]
        known = [point for point in series.points if point.low is not None]
        figure.add_scatter(
            x=[point.submitted for point in series.points],
            y=[point.value * factor for point in series.points],
            mode="markers", name=series.backend, legendgroup=series.backend,
            marker={"color": look.color, "symbol": look.symbol, "size": 8},
            error_y=None if not known else {
                "type": "data", "symmetric": False, "color": look.color, "thickness": 1.2,
                "array": [(point.high or point.value) - point.value for point in series.points],
                "arrayminus": [point.value - (point.low or point.value)
                               for point in series.points]},
            text=[_in_full(series, point) for point in series.points],
            hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
        for level in series.levels:
            first, last = series.points[level.first], series.points[level.last]
            figure.add_scatter(
                x=[first.submitted, last.submitted], y=[level.value * factor] * 2, mode="lines",
                line={"color": look.color, "width": 2}, opacity=0.6, showlegend=False,
                legendgroup=series.backend, hoverinfo="skip",
            )  # fmt: skip
        _mark_steps(figure, series, factor, row)
    _mark_versions(figure, found)
    if quantity == "speedup":
        figure.add_hline(y=1, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
    figure.update_layout(layout() | {"height": HEIGHT + 60, "showlegend": True})
    over_days(figure, (point.submitted for series in found for point in series.points))
    return figure.update_yaxes(title_text=links.axis(quantity, title), gridcolor=FAINT)


def _unit(found: Sequence[Series]) -> tuple[float, str]:
    quantity = found[0].quantity
    if not quantity.endswith("seconds"):
        return 1.0, METRICS[quantity].axis_title
    return axis_unit(quantity, pd.Series([p.value for one in found for p in one.points]))


def _mark_steps(figure: go.Figure, series: Series, factor: float, row: int) -> None:
    """An arrow from the old level to the new one, red if it is worse. Labels of several series at
    the same step are in rows."""
    for step in series.steps:
        point = series.points[step.index]
        color = BAD if series.worsening(step) > 0 else BETTER
        figure.add_annotation(
            x=point.submitted, y=step.after.value * factor, ax=point.submitted,
            ay=step.before.value * factor, xref="x", yref="y", axref="x", ayref="y",
            showarrow=True, arrowhead=2, arrowwidth=2, arrowcolor=color, text="",
        )  # fmt: skip
        figure.add_annotation(
            x=point.submitted, y=step.after.value * factor,
            text=f"{series.backend} {step.ratio - 1:+.1%}",
            showarrow=False, xanchor="left", xshift=8, yshift=15 * (row + 1),
            font={"color": color, "size": 12},
        )  # fmt: skip


def _mark_versions(figure: go.Figure, found: Sequence[Series]) -> None:
    """A line where the version of torch changed, with its name."""
    points = sorted((point for series in found for point in series.points),
                    key=lambda point: point.submitted)  # fmt: skip
    changes = [
        (after.submitted, after.versions["torch"])
        for before, after in pairwise(points)
        if before.versions["torch"] != after.versions["torch"]
    ]
    for when, version in changes[-MAX_MARKED:]:
        figure.add_vline(x=when, line={"color": NEUTRAL, "width": 1, "dash": "dash"})
        figure.add_annotation(
            x=when, y=1, yref="paper", text=f"torch {version}", showarrow=False, xanchor="left",
            yanchor="top", font={"color": NEUTRAL, "size": 11},
        )  # fmt: skip


def _in_full(series: Series, point: Point) -> str:
    write = METRICS[series.quantity].format
    interval = "" if point.low is None else f" ({point.low:.2f} to {point.high:.2f})"
    versions = ", ".join(f"{name} {value}" for name, value in point.versions.items() if value)
    return f"{point.name}<br>{series.backend}: {write(point.value)}{interval}<br>{versions}"


SHARES = ("utilization", "others_cpu_share", "stolen_cpu_share")
"""Numbers in per cent."""


def device_series(frame: pd.DataFrame, name: str) -> go.Figure:
    """One number of every block, one line per run; marks show blocks that were held back.

    `frame`: run_id, label, role, step, `held_back` (the reason as text, else None) and a column of
    that name.
    """
    figure = go.Figure()
    for label, _role, look, run in by_run(frame):
        run = thinned(run, name)
        figure.add_scatter(
            x=run["step"], y=run[name].astype(float), name=label, mode="lines",
            line=line_style(look), legendgroup=label, connectgaps=True,
        )  # fmt: skip
    held_back = frame[frame["held_back"].notna()]
    if len(held_back):
        figure.add_scatter(
            x=held_back["step"], y=held_back[name].astype(float), name="held back", mode="markers",
            marker={"symbol": "x-thin", "size": 8, "line": {"color": BAD, "width": 2}},
            text=held_back["label"].astype("str") + ": " + held_back["held_back"],
            hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
    over_steps(figure, axis(name))
    if name in SHARES:
        return figure.update_yaxes(tickformat=".2~%", rangemode="tozero")
    return figure.update_yaxes(tickformat=",")  # Plotly's own has a comma in 1,980.5, not in 1980.


def device_history(device: DeviceHistory, quantity: Quantity) -> go.Figure:
    """One number of a device over its experiments, its levels, and the step to a worse level."""
    known = device.series(quantity)
    values = [one.value(quantity) or 0.0 for one in known]
    when = [one.submitted for one in known]
    look = KNOWN["inductor"]
    figure = go.Figure()
    figure.add_scatter(
        x=when, y=values, mode="markers", name="Experiment",
        marker={"color": look.color, "symbol": look.symbol, "size": 7},
        text=[f"{inert(one.name)}<br>{NUMBERS[quantity].format(value)}"
              for one, value in zip(known, values, strict=True)],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    worse = {one.step.index for one in device.worsenings if one.quantity == quantity}
    for level in divide(values)[0] if values else ():
        color = BAD if level.first in worse else NEUTRAL
        figure.add_scatter(
            x=[when[level.first], when[level.last]], y=[level.value] * 2, mode="lines",
            line={"color": color, "width": 3}, name="Level", showlegend=False, hoverinfo="skip",
        )  # fmt: skip
    figure.update_layout(layout() | {"height": HEIGHT, "showlegend": False})
    over_days(figure, when)
    if quantity != "device_pace":
        figure.update_yaxes(tickformat=".1%", rangemode="tozero")
    return figure.update_yaxes(title_text=axis(quantity), gridcolor=FAINT)
