"""Figures of compile latency with empty and with filled caches."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.comparison.compile_phases import PHASES
from breakeven.storage.numbers.metrics import METRICS
from breakeven.views.charts.layers import layout
from breakeven.views.charts.palette import COLORS, FAINT, run_looks
from breakeven.views.shared.figure import Figure
from breakeven.views.shared.links import axis

ROW_HEIGHT = 56
NARROW_ROW = 38
HATCHES = ("", "/", ".", "x", "-", "\\", "+", "|", "")
PHASE_LOOKS = {phase: {"color": color, "pattern": {"shape": hatch, "solidity": 0.25}}
               for phase, color, hatch in zip(PHASES, COLORS, HATCHES, strict=False)}  # fmt: skip
_seconds = METRICS["compile_seconds"].format


def latencies(data: pd.DataFrame) -> go.Figure:
    """A filled bar for each cold process, a hollow one for each warm process.

    `data`: backend, repeat, cache, seconds.
    """
    figure = Figure()
    looks = run_looks(data["backend"])
    for (backend, cache), mine in data.groupby(["backend", "cache"], sort=False):
        color = looks[str(backend)].color
        figure.add_bar(
            x=mine["seconds"],
            y=[f"{backend}, {repeat}" for repeat in mine["repeat"]],
            orientation="h",
            name=f"{backend}, {cache}",
            text=[_seconds(value) for value in mine["seconds"]],
            textposition="outside",
            cliponaxis=False,
            marker={
                "color": color if cache == "cold" else "rgba(0,0,0,0)",
                "line": {"color": color, "width": 1.6},
            },
        )
    rows = data.groupby(["backend", "repeat"]).ngroups
    return _lying(figure, rows * ROW_HEIGHT, "group", axis("compile_seconds"))


def phases(data: pd.DataFrame) -> go.Figure:
    """A bar for each backend, cold and warm, of what each phase of compiling took alone.

    `data`: backend, cache, phase, seconds.
    """
    figure = Figure()
    for phase, look in PHASE_LOOKS.items():
        mine = data[data["phase"] == phase]
        figure.add_bar(
            x=mine["seconds"],
            y=[f"{row.backend}, {row.cache}" for row in mine.itertuples()],
            orientation="h",
            name=phase,
            marker=look,
            customdata=[f"{phase} {_seconds(value)}" for value in mine["seconds"]],
            hovertemplate="%{y}: %{customdata}<extra></extra>",
        )  # fmt: skip
    rows = data.groupby(["backend", "cache"]).ngroups
    return _lying(figure, rows * NARROW_ROW, "stack", axis("compile_phases"))


def _lying(figure: go.Figure, height: int, mode: str, title: str) -> go.Figure:
    shared: dict[str, Any] = layout() | {"height": 110 + height, "barmode": mode}
    figure.update_layout(shared)
    figure.update_xaxes(title_text=title, gridcolor=FAINT)
    return figure.update_yaxes(autorange="reversed")
