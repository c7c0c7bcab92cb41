"""The ladder as a waterfall: what each stage of the compiler takes off a step, or adds to it."""

import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.compiling.ladder import Ladder, RungResult
from breakeven.storage.numbers.formats import format_seconds
from breakeven.storage.numbers.metrics import axis_unit
from breakeven.views.charts.bars import per_run
from breakeven.views.charts.palette import BAD, KNOWN, NEUTRAL
from breakeven.views.shared import links
from breakeven.views.shared.figure import Figure

COLORS = {"faster": KNOWN["eager"].color, "slower": BAD}
"""Of changes that the interval is sure of; all others are neutral."""
TEXT_ROOM = 1.1


def waterfall(ladder: Ladder) -> go.Figure:
    """From the baseline's step time down to the highest rung's, a bar for what each rung changes.

    Green: surely faster than the rung below. Red: surely slower. Grey, hatched: cannot be told.
    """
    baseline = None if ladder.baseline is None else ladder.baseline.measured.step_seconds
    timed = [one for one in ladder.rungs if one.seconds_gained is not None]
    tops = [baseline or 0.0, *(one.step_seconds_below or 0.0 for one in timed)]
    factor, title = axis_unit(
        "step_seconds", pd.Series([value for value in tops if value], dtype=float)
    )
    figure = Figure()
    labels = ["baseline", *(one.result.label for one in ladder.rungs)]
    figure.add_bar(y=["baseline"], x=[(baseline or 0.0) * factor], orientation="h", width=0.56,
                   marker={"color": NEUTRAL}, hoverinfo="skip", showlegend=False)  # fmt: skip
    for one in timed:
        below, own = (one.step_seconds_below or 0.0), one.result.measured.step_seconds or 0.0
        sure = one.verdict in COLORS
        color = COLORS.get(one.verdict or "", NEUTRAL)
        figure.add_bar(
            y=[one.result.label], base=[min(below, own) * factor], x=[abs(below - own) * factor],
            orientation="h", width=0.56, hoverinfo="skip", showlegend=False,
            marker={"color": color, "pattern": {"shape": "" if sure else "/", "fgcolor": color,
                                                "bgcolor": "rgba(0, 0, 0, 0)", "size": 6}},
        )  # fmt: skip
    _connect(figure, ladder, baseline, factor)
    ends = {"baseline": (baseline or 0.0) * factor}
    ends |= {one.result.label: _end(one) * factor for one in ladder.rungs}
    texts = {"baseline": format_seconds(baseline)}
    texts |= {one.result.label: _text(one) for one in ladder.rungs}
    figure.add_scatter(
        x=[ends[label] for label in labels], y=labels, text=[texts[label] for label in labels],
        mode="markers+text", textposition="middle right", cliponaxis=False, hoverinfo="skip",
        showlegend=False, marker={"size": 14, "color": "rgba(0, 0, 0, 0)"},
    )  # fmt: skip
    highest = max(ends.values(), default=0.0) or 1.0
    room = TEXT_ROOM + 0.012 * max(len(text) for text in texts.values())
    per_run(figure, labels, links.axis("step_seconds", title))
    figure.update_yaxes(ticktext=["no compiler", *(f"+ {one.rung.stage}" for one in ladder.rungs)])
    return figure.update_xaxes(range=[0.0, highest * room])


def _connect(figure: go.Figure, ladder: Ladder, baseline: float | None, factor: float) -> None:
    """A thin line from the end of each bar down to where the next one begins."""
    row, height = 0, baseline
    for place, one in enumerate(ladder.rungs, start=1):
        own = one.result.measured.step_seconds
        if height is not None and own is not None:
            figure.add_shape(type="line", x0=height * factor, x1=height * factor, y0=row + 0.28,
                             y1=place - 0.28, line={"color": NEUTRAL, "width": 1, "dash": "dot"},
                             layer="below")  # fmt: skip
        if own is not None:
            row, height = place, own


def _end(one: RungResult) -> float:
    """Where the text of a rung begins."""
    own = one.result.measured.step_seconds
    return max(own or 0.0, (one.step_seconds_below or 0.0) if own is not None else 0.0)


def _text(one: RungResult) -> str:
    """`12.3 ms, 1.20 ms less`."""
    own, gained = one.result.measured.step_seconds, one.seconds_gained
    if own is None or gained is None:
        return "fails" if "fails" in one.faults else "no step timed"
    change = f"{format_seconds(abs(gained))} {'less' if gained >= 0 else 'more'}"
    return f"{format_seconds(own)}, {change}"
