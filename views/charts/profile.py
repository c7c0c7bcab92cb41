"""Figures of the time within a step and of compiling: all runs by classes of work, baseline against
backend, errors of tensors, compile latency with empty and with filled caches."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.comparison.correctness import Pass
from breakeven.storage.compiling.timeline import PHASES, STAGES
from breakeven.storage.numbers.formats import format_seconds
from breakeven.storage.numbers.metrics import METRICS, NUMBERS, axis_unit
from breakeven.storage.profile.explanation import Bridge
from breakeven.storage.profile.recorded_profiles import IDLE, Profile
from breakeven.storage.words.findings import class_title
from breakeven.views.charts.layers import in_rows, layout
from breakeven.views.charts.palette import (
    BAD,
    CLASS_FILLS,
    FAINT,
    GOOD,
    NEUTRAL,
    STAGE_FILLS,
    run_looks,
)
from breakeven.views.shared.definition_links import axis

ROW_HEIGHT = 30
MARGIN = 76
WORTH_A_BAR = 0.01
"""Share of the baseline's step; smaller parts have one bar together."""
WORTH_A_COLOUR = 0.025
"""A share of the longest step: a smaller part gets no colour of its own, because readers cannot
distinguish many small parts."""
LEGEND_LINE = 18
REST = "all others"


def breakdown(profiles: Sequence[Profile]) -> go.Figure:
    """A bar for each profiled run, as long as its step, by classes of work; idle time last."""
    known = [profile for profile in profiles if profile.is_known]
    frame = (
        pd.DataFrame({profile.label: profile.by_class for profile in known})
        .fillna(0.0)
        .clip(lower=0.0)
    )
    longest = max((profile.step_seconds or profile.busy_seconds for profile in known), default=1.0)
    shown = frame[(frame >= WORTH_A_COLOUR * longest).any(axis=1)]
    rest = frame.drop(index=shown.index).sum()
    factor, title = axis_unit("step_seconds", pd.Series([longest]))
    figure = go.Figure()
    by_itself = all(profile.works_by_itself for profile in known)
    for name in shown.index.drop(IDLE, errors="ignore"):
        title_of = class_title(name, works_by_itself=by_itself)
        _add_class(figure, title_of, shown.loc[name], factor, CLASS_FILLS[name].marker)
    if rest.sum():
        _add_class(figure, REST, rest, factor, {"color": NEUTRAL})
    if IDLE in shown.index:
        idle = {"color": FAINT, "line": {"color": NEUTRAL, "width": 1}}
        name = class_title(IDLE, works_by_itself=by_itself)
        _add_class(figure, name, shown.loc[IDLE], factor, idle)
    # The legend is below, because a narrow screen needs a line for each class.
    lines = LEGEND_LINE * len(figure.data) * 3 // 4
    height = MARGIN + lines + (ROW_HEIGHT + 8) * len(known)
    in_rows(figure, axis("profile_seconds", title), height, [profile.label for profile in known])
    legend = {"y": 0, "yref": "container", "yanchor": "bottom"}
    return figure.update_layout(
        barmode="stack", margin={"t": 8, "b": MARGIN - 20 + lines}, legend=legend
    )


def _add_class(
    figure: go.Figure, title: str, seconds: pd.Series, factor: float, marker: Mapping[str, object]
) -> None:
    figure.add_bar(
        x=seconds * factor,
        y=list(seconds.index),
        name=title,
        orientation="h",
        marker=marker,
        customdata=[format_seconds(value) for value in seconds],
        hovertemplate=f"{title}: %{{customdata}}<extra></extra>",
    )


def waterfall(bridge: Bridge) -> go.Figure:
    """From the baseline's step to the run's: the time that each class of work adds or saves."""
    parts = _shown_parts(bridge)
    longest = max(bridge.baseline.step_seconds or 0.0, bridge.run.step_seconds or 0.0)
    factor, title = axis_unit("step_seconds", pd.Series([longest]))
    seconds = [bridge.baseline.step_seconds, *parts, bridge.run.step_seconds]
    names = [bridge.baseline.label, *parts.index, bridge.run.label]
    texts = [format_seconds(seconds[0]), *map(_signed, parts), format_seconds(seconds[-1])]
    figure = go.Figure(
        go.Waterfall(
            orientation="h",
            y=names,
            x=[(value or 0.0) * factor for value in seconds],
            text=texts,
            measure=["absolute", *["relative"] * len(parts), "total"],
            textposition="outside",
            hovertemplate="%{y}: %{text}<extra></extra>",
            cliponaxis=False,
            increasing={"marker": {"color": BAD}},
            decreasing={"marker": {"color": GOOD}},
            totals={"marker": {"color": NEUTRAL}},
            connector={"line": {"color": FAINT, "width": 1}},
        )
    )
    height = MARGIN + ROW_HEIGHT * len(names)
    in_rows(figure, axis("profile_seconds", title), height, showlegend=False, margin_t=8)
    # Room for the texts after the longest bars.
    highest = (bridge.baseline.step_seconds or 0.0) + parts.cumsum().max() if len(parts) else 0.0
    furthest = factor * max(longest, highest)
    return figure.update_xaxes(range=[0, 1.16 * furthest])


def _shown_parts(bridge: Bridge) -> pd.Series:
    """Differences by title: savings first, largest first, then additions."""
    titles = [
        class_title(name, works_by_itself=bridge.run.works_by_itself)
        for name in bridge.parts["work_class"]
    ]
    differences = pd.Series(bridge.parts["difference"].to_numpy(float), index=titles)
    is_small = differences.abs() < WORTH_A_BAR * (bridge.baseline.step_seconds or 0.0)
    shown = differences[~is_small].sort_values()
    rest = float(differences[is_small].sum())
    return pd.concat([shown, pd.Series({REST: rest})]) if rest else shown


def _signed(seconds: float) -> str:
    sign = "+" if seconds > 0 else "\N{MINUS SIGN}"
    return sign + format_seconds(abs(seconds))


TITLES: dict[Pass, str] = {
    "forward": "Outputs of layers, of the model, and the loss, in the order of computing",
    "backward": "Gradients by layer, from the first to the last; computed from right to left",
    "weights": "Weights by layer after the optimizer's steps, from the first to the last",
}
FLOOR = 1e-4
"""Lowest ratio of the chart, also for exact results: a log scale has no zero."""
CEILING = 1e4
"""Highest ratio of the chart, also for larger ones and for tensors without a comparison."""
MAX_TICKS = 14
FEW = 2
"""Up to this number of points (outputs and loss) no line joins them."""
LIMIT = "what is allowed"


def errors(data: pd.DataFrame, part: str, checked_pass: Pass) -> go.Figure:
    """A point for each tensor of each backend; those above the line of the rule fail. `data`: a
    result of `storage.comparison.correctness.placed`."""
    of_pass = data[(data["part"] == part) & (data["pass"] == checked_pass)]
    figure = go.Figure()
    looks = run_looks(data["label"])
    for label, run in of_pass.groupby("label", sort=False):
        run = run.sort_values("place")
        ratios = run["error_ratio"].astype(float)
        drawn = ratios.fillna(math.inf).clip(FLOOR, CEILING)
        look = looks[str(label)]
        figure.add_scatter(
            x=run["place"],
            y=drawn,
            name=str(label),
            mode="lines+markers" if len(run) > FEW else "markers",
            line={"color": look.color, "dash": look.dash, "width": 1},
            marker={"color": look.color, "symbol": look.symbol, "size": 7},
            text=[_point_text(row) for row in run.to_dict("records")],
            hovertemplate="%{text}<extra></extra>",
        )
    names = of_pass.drop_duplicates("place").sort_values("place")
    ticks = _ticks(list(names["tensor"]))
    figure.add_hline(y=1, line={"color": BAD, "width": 1.4}, annotation_text=LIMIT)
    figure.update_layout(**{**layout(), "height": 380}, showlegend=True)
    figure.update_xaxes(
        title_text=axis("accuracy_rule", TITLES[checked_pass]),
        tickvals=[names["place"].iloc[place] for place in ticks],
        ticktext=[_layer(str(names["tensor"].iloc[place])) for place in ticks],
        tickangle=-35,
        range=[-0.5, max(len(names) - 0.5, 0.5)],
        zeroline=False,
    )
    low = min((float(np.min(trace.y)) for trace in figure.data if len(trace.y)), default=0.1)
    high = max((float(np.max(trace.y)) for trace in figure.data if len(trace.y)), default=1.0)
    span = [math.log10(min(low, 0.1)) - 0.2, math.log10(max(high, 2.0)) + 0.3]
    return figure.update_yaxes(
        type="log", range=span, title_text=axis("error_ratio"), dtick=1, tickformat="~g"
    )


def _ticks(names: list[str]) -> list[int]:
    """Places where a layer begins, thinned so that they can be read."""
    layers = [_layer(name) for name in names]
    begins = [
        place for place, layer in enumerate(layers) if not place or layer != layers[place - 1]
    ]
    stride = math.ceil(len(begins) / MAX_TICKS) if begins else 1
    return begins[::stride]


def _layer(name: str) -> str:
    """`encoder.layer.0` of `encoder.layer.0.attention.self.query.weight`: up to the first number,
    or the name of the module."""
    parts = name.split(".")
    for place, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[max(0, place - 1) : place + 1])
    return ".".join(parts[-2:-1]) or name


def _point_text(row: dict[str, object]) -> str:
    ratio = row["error_ratio"]
    known = isinstance(ratio, float) and not math.isnan(ratio)
    written = NUMBERS["error_ratio"].format(ratio) if known else "not comparable:"
    verdict = "passes" if row["passed"] else "fails"
    return f"{row['label']}, {row['quantity']}<br>{row['tensor']}<br>{written} x allowed, {verdict}"


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
