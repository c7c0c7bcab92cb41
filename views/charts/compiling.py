"""Figures of compiling: latencies with empty and with filled caches, phases, and a timeline."""

import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.compiling.timeline import PHASES, STAGES
from breakeven.storage.numbers.formats import format_seconds
from breakeven.storage.numbers.metrics import METRICS
from breakeven.views.charts.layout import in_rows
from breakeven.views.charts.palette import NEUTRAL, STAGE_FILLS, run_looks
from breakeven.views.shared.definition_links import axis

RUN_HEIGHT = 56
NARROW_ROW = 38
_seconds = METRICS["compile_seconds"].format


def latencies(data: pd.DataFrame) -> go.Figure:
    """A filled bar for each cold process, a hollow one for each warm process.

    `data`: backend, repeat, cache, seconds.
    """
    figure = go.Figure()
    looks = run_looks(data["backend"])
    for (backend, cache), group in data.groupby(["backend", "cache"], sort=False):
        color = looks[str(backend)].color
        figure.add_bar(
            x=group["seconds"],
            y=[f"{backend}, {repeat}" for repeat in group["repeat"]],
            orientation="h",
            name=f"{backend}, {cache}",
            text=[_seconds(value) for value in group["seconds"]],
            hovertemplate=f"%{{y}}, {cache}: %{{text}}<extra></extra>",
            textposition="outside",
            cliponaxis=False,
            marker={
                "color": color if cache == "cold" else "rgba(0,0,0,0)",
                "line": {"color": color, "width": 1.6},
            },
        )
    rows = data.groupby(["backend", "repeat"]).ngroups
    height = 110 + rows * RUN_HEIGHT
    return in_rows(figure, axis("compile_seconds"), height, barmode="group")


def phases(data: pd.DataFrame) -> go.Figure:
    """A bar for each backend, cold and warm, with the time of each compile phase alone.

    `data`: backend, cache, phase, seconds.
    """
    figure = go.Figure()
    for phase in PHASES:
        of_phase = data[data["phase"] == phase]
        figure.add_bar(
            x=of_phase["seconds"],
            y=[f"{row.backend}, {row.cache}" for row in of_phase.itertuples()],
            orientation="h",
            name=phase,
            marker=STAGE_FILLS[phase].marker,
            customdata=[f"{phase} {_seconds(value)}" for value in of_phase["seconds"]],
            hovertemplate="%{y}: %{customdata}<extra></extra>",
        )
    rows = data.groupby(["backend", "cache"]).ngroups
    height = 110 + rows * NARROW_ROW
    return in_rows(figure, axis("compile_phases"), height, barmode="stack")


MAX_ROWS = 24
FRAME_HEIGHT = 48
NAME_ABOVE = 0.36
"""Distance of a row's name above its bar, as a share of the row."""
HEIGHT, LANE, MAX_LANES = 0.36, 0.08, 4
"""Shares of a row: the bar of the thread that compiles, and each bar of another thread below."""
NAMED_GAP = 0.5
"""Seconds; shorter gaps between compilations are not marked."""
MAX_NAME = 48


def timeline(data: pd.DataFrame) -> go.Figure:
    """A timeline of compiling.

    `data`: a result of `storage.compiling.timeline.timeline`, not empty. Nested stages are drawn
    over their outer stage, so each colour is the time of that stage alone. Other threads have thin
    bars below. Shows at most `MAX_ROWS` frames, those that took longest.
    """
    frames = shown_frames(data)
    rows = {frame: number for number, frame in enumerate(frames)}
    data = data[data["frame"].isin(frames)]
    figure = go.Figure()
    for stage in STAGES.values():
        of_stage = data[data["stage"] == stage]
        if of_stage.empty:
            continue
        is_parallel = of_stage["thread"] > 0
        lanes = of_stage["thread"].clip(upper=MAX_LANES)
        middle = of_stage["frame"].map(rows) + is_parallel * (HEIGHT / 2 + LANE * (lanes - 0.5))
        figure.add_bar(
            x=of_stage["seconds"],
            base=of_stage["begin"],
            y=middle,
            orientation="h",
            name=stage,
            width=[LANE * 0.8 if parallel else HEIGHT for parallel in is_parallel],
            marker={"color": STAGE_FILLS[stage].color, "line": {"width": 0}},
            text=[_stage_text(row) for row in of_stage.itertuples()],
            textposition="none",
            hovertemplate="%{text}<extra></extra>",
        )
    _mark_breaks(figure, data)
    title = axis("compile_timeline", "Time spent compiling (s)")
    height = 130 + FRAME_HEIGHT * len(frames)
    in_rows(figure, title, height, barmode="overlay", bargap=0).update_xaxes(rangemode="tozero")
    # On a phone, long names next to the axis would leave no room for the bars.
    figure.add_scatter(
        x=[0] * len(frames),
        y=[row - NAME_ABOVE for row in rows.values()],
        mode="text",
        text=[_name(data, frame) for frame in frames],
        textposition="middle right",
        cliponaxis=False,
        hoverinfo="skip",
        showlegend=False,
    )
    return figure.update_yaxes(
        range=[len(frames) - 0.4, -0.6],
        autorange=None,
        showticklabels=False,
        showgrid=False,
        zeroline=False,
    )


def shown_frames(data: pd.DataFrame) -> list[str]:
    """The frames in the chart, in order of their start."""
    ends = (data["begin"] + data["seconds"]).groupby(data["frame"]).max()
    begins = data.groupby("frame")["begin"].min()
    longest = (ends - begins).nlargest(MAX_ROWS).index
    return [str(frame) for frame in begins[longest].sort_values(kind="stable").index]


def _name(data: pd.DataFrame, frame: str) -> str:
    """The frame, its line of code and its step."""
    first = data[data["frame"] == frame].iloc[0]
    step = "" if pd.isna(first["step"]) else f"step {first['step']:,.0f}"
    place = _short(str(first["place"])) if first["place"] else ""
    return ", ".join(filter(None, [_short(frame), place, step]))


def _short(text: str) -> str:
    """The end of a long name; the end of a path says more than its beginning."""
    return text if len(text) <= MAX_NAME else f"...{text[-MAX_NAME:]}"


def _stage_text(row) -> str:  # type: ignore[no-untyped-def]
    """`AOTAutograd, 1.23 s from 0.500 s on, step 0`."""
    parallel = f", parallel thread {row.thread}" if row.thread else ""
    return (
        f"{row.stage}{parallel}<br>"
        f"{format_seconds(row.seconds)} from {format_seconds(row.begin)} on"
        f"<br>{row.frame}<br>{row.place or ''}<br>{row.name}"
    )


def _mark_breaks(figure: go.Figure, data: pd.DataFrame) -> None:
    """Draws a dotted line where compiling continues after training or after a wait for the turn."""
    before = 0.0
    for row in data.sort_values("begin", kind="stable").itertuples():
        if row.gap_seconds - before > NAMED_GAP:
            text = f"{format_seconds(row.gap_seconds - before)} not compiling"
            figure.add_vline(
                x=row.begin,
                line={"color": NEUTRAL, "width": 1, "dash": "dot"},
                annotation={
                    "text": text,
                    "textangle": -90,
                    "font": {"size": 10},
                    "yanchor": "top",
                    "xanchor": "right",
                },
            )
        before = max(before, row.gap_seconds)
