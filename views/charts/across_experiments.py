"""Figures of several experiments: backends by their conditions, the models of a suite, one number
over time, and devices."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from breakeven.runner.protocol.states import RunState, state_words
from breakeven.storage.comparison.correctness import PASS
from breakeven.storage.library.matrix import ACROSS, BackendMatrix, MatrixCell, matrix
from breakeven.storage.library.trends import Point, Series
from breakeven.storage.numbers.formats import format_verdict
from breakeven.storage.numbers.metrics import METRICS, axis_unit
from breakeven.storage.queries import thinned
from breakeven.storage.statistics.break_even import with_ends
from breakeven.storage.statistics.parity import WRONG
from breakeven.storage.suite_runs.groups import Outcome
from breakeven.views.charts.layout import (
    HEIGHT,
    by_run,
    in_rows,
    layout,
    line_style,
    over_days,
    over_steps,
    write_cells,
)
from breakeven.views.charts.palette import BAD, FAINT, GOOD, NEUTRAL, run_looks
from breakeven.views.shared.definition_links import axis

MAX_MARKED = 12
"""Most changes of versions with a name; more names would hide each other."""


def trend(several_series: Sequence[Series]) -> go.Figure:
    """Series of one quantity over the time of submission."""
    figure = go.Figure()
    quantity = several_series[0].quantity
    looks = run_looks(series.backend for series in several_series)
    factor, title = _unit(several_series)
    for row, series in enumerate(several_series):
        look = looks[series.backend]
        known = [point for point in series.points if point.low is not None]
        figure.add_scatter(
            x=[point.submitted for point in series.points],
            y=[point.value * factor for point in series.points],
            mode="markers",
            name=series.backend,
            legendgroup=series.backend,
            marker={"color": look.color, "symbol": look.symbol, "size": 8},
            error_y=None
            if not known
            else {
                "type": "data",
                "symmetric": False,
                "color": look.color,
                "thickness": 1.2,
                "array": [(point.high or point.value) - point.value for point in series.points],
                "arrayminus": [point.value - (point.low or point.value) for point in series.points],
            },
            text=[_point_hover(series, point) for point in series.points],
            hovertemplate="%{text}<extra></extra>",
        )
        for level in series.levels:
            first, last = series.points[level.first], series.points[level.last]
            figure.add_scatter(
                x=[first.submitted, last.submitted],
                y=[level.value * factor] * 2,
                mode="lines",
                line={"color": look.color, "width": 2},
                opacity=0.6,
                showlegend=False,
                legendgroup=series.backend,
                hoverinfo="skip",
            )
        _mark_steps(figure, series, factor, row)
    _mark_versions(figure, several_series)
    if quantity == "speedup":
        figure.add_hline(y=1, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
    figure.update_layout(layout() | {"height": HEIGHT + 60, "showlegend": True})
    over_days(figure, (point.submitted for series in several_series for point in series.points))
    return figure.update_yaxes(title_text=axis(quantity, title), gridcolor=FAINT)


def _unit(several_series: Sequence[Series]) -> tuple[float, str]:
    quantity = several_series[0].quantity
    if not quantity.endswith("seconds"):
        return 1.0, METRICS[quantity].axis_title
    return axis_unit(
        quantity, pd.Series([point.value for series in several_series for point in series.points])
    )


def _mark_steps(figure: go.Figure, series: Series, factor: float, row: int) -> None:
    """An arrow from the old level to the new one, red if it is worse. Labels of several series at
    the same step are in rows."""
    for step in series.steps:
        point = series.points[step.index]
        color = BAD if series.worsening(step) > 0 else GOOD
        figure.add_annotation(
            x=point.submitted,
            y=step.after.value * factor,
            ax=point.submitted,
            ay=step.before.value * factor,
            xref="x",
            yref="y",
            axref="x",
            ayref="y",
            showarrow=True,
            arrowhead=2,
            arrowwidth=2,
            arrowcolor=color,
            text="",
        )
        figure.add_annotation(
            x=point.submitted,
            y=step.after.value * factor,
            text=f"{series.backend} {step.ratio - 1:+.1%}",
            showarrow=False,
            xanchor="left",
            xshift=8,
            yshift=15 * (row + 1),
            font={"size": 12},
        )


def _mark_versions(figure: go.Figure, several_series: Sequence[Series]) -> None:
    """A line where the version of torch changed, with its name."""
    points = sorted(
        (point for series in several_series for point in series.points),
        key=lambda point: point.submitted,
    )
    changes = [
        (after.submitted, after.versions["torch"])
        for before, after in pairwise(points)
        if before.versions["torch"] != after.versions["torch"]
    ]
    for when, version in changes[-MAX_MARKED:]:
        figure.add_vline(x=when, line={"color": NEUTRAL, "width": 1, "dash": "dash"})
        figure.add_annotation(
            x=when,
            y=1,
            yref="paper",
            text=f"torch {version}",
            showarrow=False,
            xanchor="left",
            yanchor="top",
            font={"size": 11},
        )


def _point_hover(series: Series, point: Point) -> str:
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
            x=run["step"],
            y=run[name].astype(float),
            name=label,
            mode="lines",
            line=line_style(look),
            legendgroup=label,
            connectgaps=True,
        )
    held_back = frame[frame["held_back"].notna()]
    if len(held_back):
        figure.add_scatter(
            x=held_back["step"],
            y=held_back[name].astype(float),
            name="held back",
            mode="markers",
            marker={"symbol": "x-thin", "size": 8, "line": {"color": BAD, "width": 2}},
            text=held_back["label"].astype("str") + ": " + held_back["held_back"],
            hovertemplate="%{text}<extra></extra>",
        )
    over_steps(figure, axis(name))
    if name in SHARES:
        return figure.update_yaxes(tickformat=".2~%", hoverformat=".1%", rangemode="tozero")
    return figure.update_yaxes(tickformat=",")  # Plotly's own has a comma in 1,980.5, not in 1980.


CELL_HEIGHT, ABOVE_CELLS = 56, 110
MAX_ACROSS = 10
"""Most columns of conditions; with more, the backends become the columns."""
GAIN, LOSS = "#2f7fe0", "#c2662d"
MOST_OCTAVES = 2.0
"""Doublings of speed at which a colour has its full strength."""
PARITY = {
    **dict.fromkeys(("broken", "worse"), 0.0),
    **dict.fromkeys(("cancelled", "unknown", "not decided", "nothing learned"), 0.5),
    **dict.fromkeys(("holds", "as good", "better"), 1.0),
}
"""Places of verdicts on the scale from bad to good; verdicts of checks follow."""
CHECKS = {"differs": 0.0, "failed": 0.0, "undecided": 0.5, "open": 0.5, "passes": 1.0}


def heat_map(backend_matrix: BackendMatrix) -> go.Figure:
    """One row per backend and one column per condition, or the other way round if there are many
    conditions; empty cells give their reason."""
    rows = backend_matrix.rows()
    down, across = backend_matrix.backends, backend_matrix.columns
    if len(across) > MAX_ACROSS:
        down, across, rows = across, down, [list(column) for column in zip(*rows, strict=True)]
    values = [[_color_value(backend_matrix.quantity, cell) for cell in row] for row in rows]
    low, high, colors = _scale(backend_matrix.quantity, values)
    figure = go.Figure()
    figure.add_heatmap(
        x=list(across),
        y=list(down),
        z=values,
        zmin=low,
        zmax=high,
        colorscale=colors,
        showscale=False,
        xgap=3,
        ygap=3,
        text=[[_cell_text(backend_matrix.quantity, cell) for cell in row] for row in rows],
        hoverongaps=False,
        customdata=[[_hover_and_address(backend_matrix, cell) for cell in row] for row in rows],
        hovertemplate="%{customdata[0]}<extra></extra>",
    )
    write_cells(figure)
    empty = [
        (x, y, cell)
        for y, row in zip(down, rows, strict=True)
        for x, cell in zip(across, row, strict=True)
        if cell.empty
    ]
    figure.add_scatter(
        x=[x for x, _, _ in empty],
        y=[y for _, y, _ in empty],
        mode="text",
        text=[format_verdict(cell.empty) for _, _, cell in empty],
        showlegend=False,
        textfont={"size": 12},
        hovertemplate="%{customdata[0]}<extra></extra>",
        customdata=[_hover_and_address(backend_matrix, cell) for _, _, cell in empty],
    )
    in_rows(figure, "", ABOVE_CELLS + CELL_HEIGHT * len(rows), down)
    # Even if every name is a number, such as a batch size.
    figure.update_xaxes(type="category", side="top", showgrid=False, automargin=True)
    return figure.update_yaxes(type="category", showgrid=False, ticksuffix=" ")


def _color_value(quantity: str, cell: MatrixCell) -> float | None:
    """Position of a value on its colour scale."""
    if cell.empty:
        return None
    return COLOR_VALUES[quantity](cell.value)


def _log(value: float) -> float | None:
    """A logarithm, because compile latencies and break-evens span decades; infinity means never."""
    if math.isinf(value):
        return math.inf
    return math.log10(max(value, 1e-6))


COLOR_VALUES: dict[str, Callable[[Any], float | None]] = {
    "speedup": math.log2,
    "break_even_steps": _log,
    "compile_seconds": _log,
    "peak_memory_bytes": _log,
    "parity": lambda verdict: (PARITY | CHECKS).get(verdict, 0.5),
}


def _scale(
    quantity: str, values: list[list[float | None]]
) -> tuple[float, float, list[tuple[float, str]]]:
    """Lowest and highest value of the colours, and the colours; infinite values get the last."""
    if quantity == "speedup":
        return -MOST_OCTAVES, MOST_OCTAVES, [(0.0, LOSS), (0.5, "#e3e6ea"), (1.0, GAIN)]
    if quantity == "parity":
        return 0.0, 1.0, [(0.0, BAD), (0.5, NEUTRAL), (1.0, GOOD)]
    known = [value for row in values for value in row if value is not None and math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    beyond = max(high, low + 0.5)
    for row in values:
        row[:] = [beyond if value is not None and math.isinf(value) else value for value in row]
    return low, beyond, [(0.0, "#b9cdec"), (0.5, GAIN), (1.0, "#163f75")]


def _cell_text(quantity: str, cell: MatrixCell) -> str:
    """The value, and below it what is wrong with it."""
    if cell.empty:
        return ""
    notes = []
    if quantity == "speedup" and cell.verdict and cell.verdict not in ("faster", "slower"):
        notes.append(format_verdict(cell.verdict))
    if quantity != "parity" and cell.parity in WRONG:
        notes.append(f"parity {cell.parity}")
    if (ended := _early_end(cell)) and ended not in (cell.value, *notes):
        notes.append(ended)
    return "<br>".join([_written(quantity, cell), *notes])


def _hover_and_address(backend_matrix: BackendMatrix, cell: MatrixCell) -> tuple[str, str]:
    """The text on hover, and where a click leads (`moving.js`): to the experiment, or to Launch
    with another one of this column, in which the backend is missing."""
    said = _cell_hover(backend_matrix.quantity, cell)
    if cell.experiment_id:
        return said, f"experiment?experiment={cell.experiment_id}"
    others = (other.experiment_id for other in backend_matrix.cells if other.column == cell.column)
    return said, f"launch?again={next(filter(None, others), '')}"


def _cell_hover(quantity: str, cell: MatrixCell) -> str:
    """The text on hover."""
    lines = [f"{cell.backend}, {cell.column}"]
    if cell.empty == "not run":
        return "<br>".join([*lines, "no experiment has both"])
    if cell.empty:
        lines.append(
            {
                "not finished": f"it did not finish: {_state(cell)}",
                "not measured": "it finished without this number",
                "unsure": "what it saves may be chance",
            }[cell.empty]
        )
    else:
        interval = "" if cell.low is None else f" ({cell.low:.2f} to {cell.high:.2f})"
        lines.append(f"{METRICS[quantity].title}: {_written(quantity, cell)}{interval}")
        if _early_end(cell):
            lines.append(f"of what was measured before it ended: {_state(cell)}")
    lines += [
        f"{METRICS[name].title}: {METRICS[name].format(value)}"
        for name, value in (("speed_verdict", cell.verdict), ("parity", cell.parity))
        if value
    ]
    if cell.num_experiments > 1:
        lines.append(f"the newest of {cell.num_experiments} experiments")
    return "<br>".join(lines)


def _state(cell: MatrixCell) -> str:
    return state_words(cell.state or "")


def _early_end(cell: MatrixCell) -> str | None:
    """How the run ended early, if it did."""
    return RunState(cell.state).early_end if cell.state else None


def _written(quantity: str, cell: MatrixCell) -> str:
    if isinstance(cell.value, float) and math.isinf(cell.value):
        return "never"
    return METRICS[quantity].format(cell.value)


ROW_HEIGHT = 26
MARGINS = 120
COLUMNS = ("conditions", "model", "backend", "speedup", "low", "high", "earlier", "failure")


def speedup_frame(outcomes: Sequence[Outcome], before: Sequence[Outcome] = ()) -> pd.DataFrame:
    """A row per cell with a speedup: conditions (precision and part), model, backend, speedup, low,
    high, earlier (speedup of an earlier run), failure (why the speedup does not count)."""
    earlier = {
        outcome.cell: outcome.speedup.median for outcome in before if outcome.speedup is not None
    }
    rows = [
        (
            f"{outcome.cell.precision}, {outcome.cell.part}",
            outcome.cell.model,
            outcome.cell.backend,
            outcome.speedup.median,
            outcome.speedup.low,
            outcome.speedup.high,
            earlier.get(outcome.cell),
            outcome.failure,
        )
        for outcome in outcomes
        if outcome.speedup is not None
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def by_conditions(frame: pd.DataFrame) -> dict[str, Callable[[], go.Figure]]:
    """A figure of speedups for each precision and part."""
    return {
        str(title): partial(speedups, part.reset_index(drop=True))
        for title, part in frame.groupby("conditions", sort=False)
    }


def speedup_matrix(outcomes: Sequence[Outcome]) -> BackendMatrix:
    """Models against backends, including backends without a speedup. A cell with a speedup also
    says if it fails the accuracy check. All outcomes have the same conditions."""
    rows = [
        {
            **dict.fromkeys(ACROSS),
            "model": outcome.cell.model,
            "backend": outcome.cell.backend,
            **with_ends("speedup", outcome.speedup),
            "speed_verdict": "fails accuracy"
            if outcome.status not in (None, PASS)
            else outcome.speed_verdict,
            "parity": None,
            "is_wrong": False,
            "state": outcome.speed_failure or ("finished" if outcome.is_over else "still to come"),
            "experiment_id": outcome.experiments.get("speed"),
        }
        for outcome in outcomes
    ]
    return matrix(pd.DataFrame(rows, dtype=object), "model", "speedup")


def speedups(frame: pd.DataFrame) -> go.Figure:
    """Models by their best speedup, a mark with its interval for each backend; hollow if the
    accuracy check did not pass, so that it does not count. A stroke marks an earlier run's
    speedup."""
    figure = go.Figure()
    models = frame.groupby("model")["speedup"].max().sort_values(ascending=False).index
    looks = run_looks(frame["backend"])
    write = METRICS["speedup"].format
    for backend, of_backend in frame.groupby("backend", sort=False):
        look = looks[str(backend)]
        color = look.color
        counts = of_backend["failure"].isna()
        figure.add_scatter(
            x=of_backend["speedup"],
            y=of_backend["model"],
            mode="markers",
            name=str(backend),
            marker={
                "size": 9,
                "color": color,
                "symbol": [
                    look.symbol if is_valid else f"{look.symbol}-open" for is_valid in counts
                ],
            },
            error_x={
                "type": "data",
                "symmetric": False,
                "array": of_backend["high"] - of_backend["speedup"],
                "arrayminus": of_backend["speedup"] - of_backend["low"],
                "color": color,
                "thickness": 1.4,
            },
            customdata=[write(ratio) for ratio in of_backend["speedup"]],
            text=[str(backend)] * len(of_backend),
            hovertemplate="%{y}, %{text}: %{customdata}<extra></extra>",
        )
        known = of_backend.dropna(subset=["earlier"])
        if len(known):
            figure.add_scatter(
                x=known["earlier"],
                y=known["model"],
                mode="markers",
                name=f"{backend}, earlier",
                customdata=[write(ratio) for ratio in known["earlier"]],
                hovertemplate=f"%{{y}}, {backend}, earlier: %{{customdata}}<extra></extra>",
                marker={
                    "size": 14,
                    "color": color,
                    "symbol": "line-ns-open",
                    "line": {"width": 2, "color": color},
                },
            )
    figure.add_vline(x=1, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
    height = MARGINS + ROW_HEIGHT * len(models)
    in_rows(figure, axis("speedup"), height)
    return figure.update_yaxes(categoryorder="array", categoryarray=list(models))
