"""What happened at a step, marked on figures over steps: resumptions, and the compiler's work."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from breakeven.views.charts.palette import NEUTRAL, run_looks
from breakeven.views.shared.figure import traces_of

FEW = 2
"""Runs that a mark calls by name."""
EVENTS = {"compiled": "triangle-up", "recompiled": "diamond", "graph break": "x"}
"""Kinds of compiler events and their symbols, from the axis upwards."""
EVENT_NUMBERS = ("graph_breaks", "recompiles")
"""What a figure with such marks tells beside its own numbers."""
ROW = 0.035
"""Height of a row of marks, as a share of the figure."""
MAX_DETAIL = 160


def mark_compiler_events(figure: go.Figure, events: pd.DataFrame) -> go.Figure:
    """Marks compilations, recompilations and graph breaks at their steps, above the axis of steps.

    `events`: label, step, phase, kind, count, detail. Each has the colour of its run's line and
    says on hover what it is. They stand on an axis of their own: the figure keeps its range.
    """
    if events.empty:
        return figure
    lines = {
        trace.get("name"): trace.get("line", {}).get("color")
        for trace in traces_of(figure)
        if trace.get("mode") == "lines"
    }
    colors = {label: lines.get(label, look.color)
              for label, look in run_looks(events["label"]).items()}  # fmt: skip
    for row, (kind, symbol) in enumerate(EVENTS.items()):
        mine = events[events["kind"] == kind]
        if mine.empty:
            continue
        figure.add_scatter(
            x=mine["step"], y=[ROW * (row + 0.6)] * len(mine), yaxis="y2", name=kind,
            mode="markers", text=[_event_text(event) for event in mine.to_dict("records")],
            hovertemplate="%{text}<extra></extra>", legendgroup=kind,
            marker={"symbol": symbol, "size": 8,
                    "color": [colors[label] for label in mine["label"]]},
        )  # fmt: skip
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
    """Draws a vertical line where runs were resumed, with that word.

    `resumptions`: label, step. `named`: whether to say which runs, as the figure shows several.
    """
    for step, group in resumptions.groupby("step"):
        labels = list(dict.fromkeys(group["label"]))
        figure.add_vline(
            # The step of that number is the first one after it.
            x=float(step) - 0.5,
            line_width=1,
            line_dash="dash",
            line_color=NEUTRAL,
            annotation_text=_said(labels) if named else "resumed",
            annotation_position="top left",
            annotation_textangle=-90,  # lines may lie close together
            annotation_font_size=11,
            annotation_font_color=NEUTRAL,
        )
    return figure


def _said(labels: Sequence[str]) -> str:
    return f"{', '.join(labels) if len(labels) <= FEW else f'{len(labels)} runs'} resumed"
