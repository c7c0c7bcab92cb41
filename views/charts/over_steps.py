"""Figures of runs over their steps: times, activities, settings, gradients; and marks of events."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.numbers.metrics import METRICS, axis_unit
from breakeven.storage.queries import thinned
from breakeven.storage.queries.time_use import ACTIVITY_NAMES
from breakeven.views.charts.layout import (
    HEIGHT,
    by_run,
    in_order,
    in_rows,
    layers_of,
    line_style,
    over_steps,
)
from breakeven.views.charts.palette import ACTIVITY_SHAPES, NEUTRAL, Fill, run_looks
from breakeven.views.shared.definition_links import axis

SMALL_HEIGHT = 220
SHAPES = {"learning_rate": "hv", "gradient_norm": "linear"}
"""How Plotly joins the points: a learning rate is constant within a step."""
LOG_FROM_RATIO = 30
"""Ratio of the longest step to the shortest from which the axis is logarithmic."""
ROW_HEIGHT = 14
MAX_NAME = 36
"""Characters of a parameter's name beside its row; hover shows the full name."""
COLOR_BAR = {"thickness": 8, "outlinewidth": 0, "xpad": 4}


def step_series(frame: pd.DataFrame) -> go.Figure:
    """Time of every step, a line for each run; markers show steps that compiled.

    `frame`: label, role, step, seconds, compiled.
    """
    figure = go.Figure()
    factor, title = axis_unit("step_seconds", frame["seconds"])
    frame = frame.assign(seconds=frame["seconds"] * factor)
    legend = {"showlegend": True}
    layers = layers_of(frame)
    for label, _role, look, run in by_run(frame):
        few = thinned(run, "seconds")
        figure.add_scatter(
            x=few["step"], y=few["seconds"], name=label, mode="lines", **layers[label]
        )
        compiled = run[run["compiled"].astype(bool)]
        if len(compiled):
            figure.add_scatter(
                x=compiled["step"],
                y=compiled["seconds"],
                name="compiled during this step",
                mode="markers",
                marker={"color": look.color, "size": 9, "symbol": "circle-open"},
                **legend,
            )
            legend = {"showlegend": False}  # one legend for all runs
    over_steps(figure, axis("step_seconds", title))
    if frame["seconds"].max() > LOG_FROM_RATIO * frame["seconds"].min() > 0:
        figure.update_yaxes(type="log", dtick=1, exponentformat="power")
    return figure


def activities(frame: pd.DataFrame) -> go.Figure:
    """Activities of each run: a bar for each period of one activity, on one axis of time. The
    colour is the run's, the pattern is the activity's, which the legend shows without a colour.

    `frame`: label, kind, start, end, in seconds since the experiment began.
    """
    figure = go.Figure()
    labels = list(dict.fromkeys(frame["label"]))
    looks = run_looks(labels)
    for kind, shape in ACTIVITY_SHAPES.items():
        periods = frame[frame["kind"] == kind]
        if periods.empty:
            continue
        name, length = ACTIVITY_NAMES.get(kind, kind), periods["end"] - periods["start"]
        colors = [looks[label].color for label in periods["label"]]
        figure.add_bar(
            base=periods["start"],
            x=length,
            y=periods["label"],
            orientation="h",
            name=name,
            legendgroup=kind,
            showlegend=False,
            marker=Fill(NEUTRAL, shape).marker | {"color": colors, "line": {"width": 0}},
            customdata=[
                f"{name}, {METRICS['cumulative_seconds'].format(seconds)}" for seconds in length
            ],
            hovertemplate="%{y}: %{customdata}<extra></extra>",
        )
        figure.add_bar(
            x=[None],
            y=labels[:1],
            orientation="h",
            name=name,
            legendgroup=kind,
            showlegend=True,
            marker=Fill(NEUTRAL, shape).marker,
            hoverinfo="skip",
        )
    height = 120 + 26 * len(labels)
    in_rows(figure, axis("elapsed_seconds"), height, barmode="overlay", bargap=0.35)
    return figure.update_yaxes(categoryorder="array", categoryarray=labels)


def setting(frame: pd.DataFrame, name: str) -> go.Figure:
    """A small chart of one run's `learning_rate` or `gradient_norm` over the steps.

    `frame`: run_id, label, role, step and a column of that name. Gradient norms that are not
    finite, as in fp16 before its scale settles, leave a gap.
    """
    figure = named_series(frame.assign(name=frame["label"], value=frame[name]), axis(name))
    figure.update_traces(name=METRICS[name].title, line_shape=SHAPES[name])
    return figure.update_yaxes(exponentformat="e")


def named_series(frame: pd.DataFrame, title: str) -> go.Figure:
    """One run's numbers by name over the steps; a small chart if there is only one name.

    `frame`: step, name, value. Values that are not finite leave a gap.
    """
    figure = go.Figure()
    looks = run_looks(frame["name"])
    for name, series in frame.groupby("name", sort=False):
        series = thinned(in_order(series), "value")
        values = series["value"].astype(float)
        figure.add_scatter(
            x=series["step"],
            y=values.where(np.isfinite(values)),
            name=str(name),
            mode="lines" if len(series) > 1 else "markers",  # a line needs two points
            line=line_style(looks[str(name)]),
            showlegend=len(looks) > 1,
        )
    over_steps(figure, title)
    return figure if len(looks) > 1 else figure.update_layout(height=SMALL_HEIGHT, margin_t=8)


def gradient_norms(frame: pd.DataFrame, column: str) -> go.Figure:
    """A statistic of each parameter's gradient over the steps, a row for each parameter.

    `frame`: step, name and the statistic `column`: `zeros` is a share, the others are sizes on a
    logarithmic scale. Sizes that are 0 or not finite stay empty.
    """
    table = frame.pivot_table(
        index="name", columns="step", values=column, sort=False, dropna=False
    ).astype(float)
    share = column == "zeros"
    sizes = np.log10(table.abs().where(np.isfinite(table) & (table != 0)))
    figure = go.Figure(
        go.Heatmap(
            x=list(table.columns),
            y=list(table.index),
            z=table if share else sizes,
            customdata=table,
            colorscale="Viridis",
            zmin=0 if share else None,
            zmax=1 if share else None,
            colorbar={**COLOR_BAR, **({} if share else _powers_of_ten(sizes))},
            hovertemplate="%{y}<br>step %{x}: %{customdata:.4g}<extra></extra>",
        )
    )
    over_steps(figure, "")
    figure.update_layout(height=max(HEIGHT, 90 + ROW_HEIGHT * len(table)), hovermode="closest")
    return figure.update_yaxes(
        autorange="reversed",
        type="category",
        tickfont_size=10,
        tickvals=list(table.index),
        ticktext=[_end_of(str(name)) for name in table.index],
    )


def _end_of(name: str) -> str:
    """The last parts of a dotted name that fit in front of a row."""
    parts = name.split(".")
    while len(parts) > 1 and len(".".join(parts)) > MAX_NAME:
        parts.pop(0)
    return ".".join(parts)


def _powers_of_ten(logarithms: pd.DataFrame) -> dict[str, list[Any]]:
    """At most about eight ticks of a logarithmic colour bar."""
    if not logarithms.notna().any(axis=None):
        return {}
    low, high = np.floor(np.nanmin(logarithms)), np.ceil(np.nanmax(logarithms))
    ticks = np.arange(low, high + 1, max(1, (high - low) // 8))
    return {"tickvals": list(ticks), "ticktext": [f"10<sup>{tick:.0f}</sup>" for tick in ticks]}


MAX_NAMED_RUNS = 2
"""Most runs that a mark names."""
EVENTS = {"compiled": "triangle-up", "recompiled": "diamond", "graph break": "x"}
"""Kinds of compiler events and their symbols, from the axis upwards."""
EVENT_NUMBERS = ("graph_breaks", "recompiles")
"""Numbers that the marks of compiler events show, besides the numbers of the figure."""
ROW = 0.035
"""Height of a row of marks, as a share of the figure."""
MAX_DETAIL = 160


def mark_compiler_events(figure: go.Figure, events: pd.DataFrame) -> go.Figure:
    """Marks compilations, recompilations and graph breaks at their steps, above the axis of steps.

    `events`: label, step, phase, kind, count, detail. Each mark has the colour of its run's line
    and shows its event on hover. Marks have an axis of their own, so the figure keeps its range.
    """
    if events.empty:
        return figure
    lines = {trace.name: trace.line.color for trace in figure.data if trace.mode == "lines"}
    colors = {
        label: lines.get(label, look.color) for label, look in run_looks(events["label"]).items()
    }
    for row, (kind, symbol) in enumerate(EVENTS.items()):
        of_kind = events[events["kind"] == kind]
        if of_kind.empty:
            continue
        figure.add_scatter(
            x=of_kind["step"],
            y=[ROW * (row + 0.6)] * len(of_kind),
            yaxis="y2",
            name=kind,
            mode="markers",
            text=[_event_text(event) for event in of_kind.to_dict("records")],
            hovertemplate="%{text}<extra></extra>",
            legendgroup=kind,
            marker={
                "symbol": symbol,
                "size": 8,
                "color": [colors[label] for label in of_kind["label"]],
            },
        )
    above = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
    return figure.update_layout(yaxis2=above, showlegend=True, margin_t=36)


def _event_text(event: dict[Any, Any]) -> str:
    """`inductor, 2 x recompiled: 0/0: tensor 'x' size mismatch`."""
    often = f"{event['count']:.0f} x " if event["count"] > 1 else ""
    when = " while evaluating" if event["phase"] == "evaluating" else ""
    what = f"{event['label']}, {often}{event['kind']}{when}"
    detail = "" if pd.isna(event["detail"]) else str(event["detail"])
    return f"{what}: {detail[:MAX_DETAIL]}" if detail else what


def mark_resumptions(
    figure: go.Figure, resumptions: pd.DataFrame, *, named: bool = True
) -> go.Figure:
    """Draws a vertical line where runs were resumed, with a label.

    `resumptions`: label, step, only_times; what is only timed further starts after the last step of
    the chart. `named`: whether the label names the runs, for figures of several.
    """
    for step, group in resumptions[~resumptions["only_times"]].groupby("step"):
        labels = list(dict.fromkeys(group["label"]))
        figure.add_vline(
            # The line is before the first step after the resumption.
            x=float(step) - 0.5,
            line_width=1,
            line_dash="dash",
            line_color=NEUTRAL,
            annotation_text=_resumed_text(labels) if named else "resumed",
            annotation_position="top left",
            annotation_textangle=-90,  # lines may lie close together
            annotation_font_size=11,
        )
    return figure


def _resumed_text(labels: Sequence[str]) -> str:
    few = len(labels) <= MAX_NAMED_RUNS
    return f"{', '.join(labels) if few else f'{len(labels)} runs'} resumed"
