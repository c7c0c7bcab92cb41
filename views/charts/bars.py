"""Figures with one mark per run: step times, throughput, compile latency, memory, scores.

Each run has a row on the vertical axis, the baseline on top. The value is next to the mark, so a
figure needs no legend.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.comparison.results import Result
from breakeven.storage.compiling.ladder import Ladder, RungResult
from breakeven.storage.numbers.formats import format_seconds
from breakeven.storage.numbers.metrics import METRICS, axis_unit
from breakeven.views.charts.layout import in_rows
from breakeven.views.charts.palette import BAD, FAINT, GOOD, NEUTRAL, run_looks
from breakeven.views.shared.definition_links import axis
from breakeven.views.shared.words import shortened

WHISKERS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles of a box: whisker, box edge, median, box edge, whisker."""
ROW_HEIGHT = 34
ROOM, LEGEND_HEIGHT = 84, 28
"""Pixels: height of a figure without rows and legend, and height of a legend."""
LONG_LABEL = 14
NARROW, LABEL_PIXELS, TEXT_PIXELS, TEXT_GAP, MOST_BESIDE = 400, 6.2, 4.8, 16, 0.6
"""Pixels: a plot with its labels, between half of a page 1,280 wide and a phone; a character of a
label, a character next to a bar, and the gap from bar to text. The last value is the largest share
of the plot for texts."""
MEMORY_MARKS = {
    "compile_peak_memory_bytes": ("\N{WHITE DIAMOND}", "diamond-open"),
    "allocated_memory_bytes": ("|", "line-ns"),
}
"""The marks that the memory figure adds to its bars: their names and Plotly's symbols."""


def step_times(frame: pd.DataFrame) -> go.Figure:
    """Distribution of steady step times per run: median, quartiles, and 5 % to 95 % whiskers.

    `frame`: label, seconds; steady steps only.
    """
    figure = go.Figure()
    looks = run_looks(frame["label"])
    factor, title = axis_unit("step_seconds", frame["seconds"])
    title = axis("step_seconds", title)
    for label, run in frame.groupby("label", sort=False):
        seconds = np.quantile(run["seconds"], WHISKERS)
        low, first, median, third, high = factor * seconds
        figure.add_box(
            y=[label],
            q1=[first],
            median=[median],
            q3=[third],
            lowerfence=[low],
            upperfence=[high],
            orientation="h",
            name=str(label),
            showlegend=False,
            line={"color": looks[str(label)].color, "width": 1.6},
            width=0.5,
            hoverinfo="skip",
        )
        figure.add_scatter(  # Plotly's own text of a box has no unit and too many digits.
            x=[median],
            y=[label],
            mode="markers",
            showlegend=False,
            marker={"size": 24, "color": "rgba(0, 0, 0, 0)"},
            text=[_box_words(label, seconds)],
            hovertemplate="%{text}<extra></extra>",
        )
    return per_run(figure, list(looks), title)


def _box_words(label: str, seconds: Sequence[float]) -> str:
    """What a box shows, with its unit; `seconds`: at the quantiles `WHISKERS`."""
    low, first, median, third, high = map(format_seconds, seconds)
    return (
        f"{label}: median {median}<br>half of the steps: {first} to {third}"
        f"<br>9 of 10 steps: {low} to {high}"
    )


def metric(results: Sequence[Result], name: str) -> go.Figure:
    """One bar per run for a metric of `Result`; runs without it show a dash."""
    values = [result.value(name) for result in results]
    figure = _bars(results, values, values, [METRICS[name].format(value) for value in values])
    return figure.update_xaxes(title_text=axis(name))


def peak_memory(results: Sequence[Result]) -> go.Figure:
    """Bars for the memory of steady steps, open diamonds for the compile phase, upright lines for
    allocated memory."""
    write = METRICS["peak_memory_bytes"].format
    names = ["peak_memory_bytes", *MEMORY_MARKS]
    ends = [max((result.value(name) for name in names), key=_number) for result in results]
    texts = [_memory_text(result) for result in results]
    figure = _bars(results, [result.measured.peak_memory_bytes for result in results], ends, texts)
    looks = run_looks(result.label for result in results)
    for name, (_sign, symbol) in MEMORY_MARKS.items():
        marked = [result for result in results if result.value(name) is not None]
        color = [looks[result.label].color for result in marked]
        figure.add_scatter(
            x=[result.value(name) for result in marked],
            y=[result.label for result in marked],
            mode="markers",
            hoverinfo="skip",
            showlegend=bool(marked),
            name=METRICS[name].title,
            marker={
                "symbol": symbol,
                "size": 10,
                "line": {"width": 2, "color": color},
                "color": color,
            },
        )
    if any(trace.showlegend for trace in figure.data):
        # The legend names the marks, so that readers need no hover.
        height = ROOM + ROW_HEIGHT * len(results)
        figure.update_layout(showlegend=True, margin_t=36, height=height + LEGEND_HEIGHT)
    ticks = _binary_ticks(max((_number(end) for end in ends), default=0.0))
    return figure.update_xaxes(
        tickvals=ticks,
        ticktext=[write(tick).replace(".0 ", " ").replace(".00 ", " ") for tick in ticks],
        title_text=axis("peak_memory_bytes", METRICS["peak_memory_bytes"].title),
    )


def _memory_text(result: Result) -> str:
    """`1.01, ◇ 2.72, | 3.21 GiB`, without missing measurements; equal units are written once."""
    write = METRICS["peak_memory_bytes"].format
    marks = [(f"{sign} ", result.value(name)) for name, (sign, _symbol) in MEMORY_MARKS.items()]
    known = [
        ("", result.measured.peak_memory_bytes),
        *(mark for mark in marks if mark[1] is not None),
    ]
    texts = [f"{sign}{write(value)}" for sign, value in known]
    unit = texts[-1].rpartition(" ")[2]
    if all(text.endswith(f" {unit}") for text in texts):
        texts = [text.removesuffix(f" {unit}") for text in texts[:-1]] + texts[-1:]
    return ", ".join(texts)


def _bars(
    results: Sequence[Result],
    values: Sequence[float | None],
    ends: Sequence[float | None],
    texts: Sequence[str],
) -> go.Figure:
    """A bar per run, with its text to the right of `ends`."""
    looks = run_looks(result.label for result in results)
    labels, colors = list(looks), [look.color for look in looks.values()]
    # The control's colour is close to the baseline's.
    shapes = ["/" if result.role == "control" else "" for result in results]
    pattern = {"shape": shapes, "fgcolor": colors, "bgcolor": FAINT, "size": 6}
    figure = go.Figure()
    figure.add_bar(
        x=[_number(value) for value in values],
        y=labels,
        orientation="h",
        width=0.56,
        marker={"color": colors, "pattern": pattern},
        hoverinfo="skip",
        showlegend=False,
    )
    _add_texts(figure, list(map(_number, ends)), labels, texts)
    return per_run(figure, labels, "")


def _add_texts(
    figure: go.Figure, ends: Sequence[float], labels: Sequence[str], texts: Sequence[str]
) -> None:
    """Writes a text to the right of each bar's end, and leaves room for it."""
    figure.add_scatter(
        x=list(ends),
        y=list(labels),
        text=list(texts),
        mode="markers+text",
        marker={"size": 22, "color": "rgba(0, 0, 0, 0)"},  # invisible; keeps the text off the bar
        textposition="middle right",
        cliponaxis=False,
        hoverinfo="skip",
        showlegend=False,
    )
    longest = max(map(len, texts), default=0)
    text_share = (TEXT_GAP + TEXT_PIXELS * longest) / _narrowest_plot(labels)
    room = max(1.25 + 0.008 * longest, 1 / (1 - min(text_share, MOST_BESIDE)))
    figure.update_xaxes(range=[0.0, room * (max(ends, default=0.0) or 1.0)])


def per_run(figure: go.Figure, labels: Sequence[str], x_title: str) -> go.Figure:
    height = ROOM + ROW_HEIGHT * len(labels)
    in_rows(figure, x_title, height, labels, bargap=0.4, margin_t=8)
    return figure.update_yaxes(ticktext=[_in_two_lines(label) for label in labels])


def _narrowest_plot(labels: Sequence[str]) -> float:
    """Pixels for bars and texts next to the labels."""
    lines = [line for label in labels for line in _in_two_lines(label).split("<br>")]
    return NARROW - LABEL_PIXELS * max(map(len, lines), default=0)


def _in_two_lines(label: str) -> str:
    """Splits a long label in two short lines to leave room for its bar on a narrow screen."""
    if len(label) <= LONG_LABEL:
        return label
    first, dash, rest = label.partition("-")
    return "<br>".join(map(shortened, [first + dash, rest] if dash else [label]))


def _binary_ticks(highest: float) -> list[float]:
    """Three or four ticks at round numbers of MiB."""
    step = 2.0 ** np.floor(np.log2(max(highest, 2.0**20) / 2))
    return [float(tick) for tick in np.arange(0, highest, step)]


def _number(value: float | None) -> float:
    """Undefined values are 0: no bar, and a dash as the text."""
    return 0.0 if value is None else float(value)


SAVED_OR_ADDED = {"faster": GOOD, "slower": BAD}
"""Colours of changes that are certain; all others are neutral."""


def waterfall(ladder: Ladder) -> go.Figure:
    """From the baseline's step time to the highest rung's, with a bar for each rung's change.

    Green: surely faster than the rung below. Red: surely slower. Grey, hatched: unsure.
    """
    baseline = None if ladder.baseline is None else ladder.baseline.measured.step_seconds
    timed = [rung for rung in ladder.rungs if rung.seconds_gained is not None]
    tops = [baseline or 0.0, *(rung.step_seconds_below or 0.0 for rung in timed)]
    factor, title = axis_unit(
        "step_seconds", pd.Series([value for value in tops if value], dtype=float)
    )
    figure = go.Figure()
    labels = ["baseline", *(rung.result.label for rung in ladder.rungs)]
    figure.add_bar(
        y=["baseline"],
        x=[(baseline or 0.0) * factor],
        orientation="h",
        width=0.56,
        marker={"color": NEUTRAL},
        hoverinfo="skip",
        showlegend=False,
    )
    for rung in timed:
        below, own = (rung.step_seconds_below or 0.0), rung.result.measured.step_seconds or 0.0
        sure = rung.verdict in SAVED_OR_ADDED
        color = SAVED_OR_ADDED.get(rung.verdict or "", NEUTRAL)
        figure.add_bar(
            y=[rung.result.label],
            base=[min(below, own) * factor],
            x=[abs(below - own) * factor],
            orientation="h",
            width=0.56,
            hoverinfo="skip",
            showlegend=False,
            marker={
                "color": color,
                "pattern": {
                    "shape": "" if sure else "/",
                    "fgcolor": color,
                    "bgcolor": "rgba(0, 0, 0, 0)",
                    "size": 6,
                },
            },
        )
    _connect(figure, ladder, baseline, factor)
    ends = {"baseline": (baseline or 0.0) * factor}
    ends |= {rung.result.label: _text_start(rung) * factor for rung in ladder.rungs}
    texts = {"baseline": format_seconds(baseline)}
    texts |= {rung.result.label: _rung_text(rung) for rung in ladder.rungs}
    _add_texts(figure, list(ends.values()), labels, list(texts.values()))
    per_run(figure, labels, axis("step_seconds", title))
    stages = [f"+ {rung.rung.stage}" for rung in ladder.rungs]
    return figure.update_yaxes(ticktext=["no compiler", *stages])


def _connect(figure: go.Figure, ladder: Ladder, baseline: float | None, factor: float) -> None:
    """A thin line from the end of each bar down to the start of the next."""
    row, height = 0, baseline
    for place, rung in enumerate(ladder.rungs, start=1):
        own = rung.result.measured.step_seconds
        if height is not None and own is not None:
            figure.add_shape(
                type="line",
                x0=height * factor,
                x1=height * factor,
                y0=row + 0.28,
                y1=place - 0.28,
                line={"color": NEUTRAL, "width": 1, "dash": "dot"},
                layer="below",
            )
        if own is not None:
            row, height = place, own


def _text_start(rung: RungResult) -> float:
    """Where the text of a rung begins."""
    own = rung.result.measured.step_seconds
    return max(own or 0.0, (rung.step_seconds_below or 0.0) if own is not None else 0.0)


def _rung_text(rung: RungResult) -> str:
    """`12.3 ms, 1.20 ms less`."""
    own, gained = rung.result.measured.step_seconds, rung.seconds_gained
    if own is None or gained is None:
        return "fails" if "fails" in rung.faults else "no step timed"
    change = f"{format_seconds(abs(gained))} {'less' if gained >= 0 else 'more'}"
    return f"{format_seconds(own)}, {change}"
