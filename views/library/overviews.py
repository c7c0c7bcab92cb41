"""Views of the library: every backend against models, batch sizes, devices, versions, in one heat
map; and the same training over days and versions.

Missing results are computed in small steps while a page shows the known ones.
"""

import shlex
from collections.abc import Sequence
from urllib.parse import quote

import pandas as pd
import streamlit as st

from breakeven.runner.arguments.filters import Filter, filter_arguments
from breakeven.runner.protocol.states import ACTIVE_EXPERIMENTS
from breakeven.runner.texts import first_few
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import backend_rows, catalog, compute_missing, matching_rows
from breakeven.storage.library.matrix import ACROSS, QUANTITIES, BackendMatrix, cells_table, matrix
from breakeven.storage.library.trends import QUANTITIES as TRENDED
from breakeven.storage.library.trends import Point, Series, trends
from breakeven.storage.numbers.formats import format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.lasting_changes import FEWEST
from breakeven.storage.words.trends import failure_text, out_of_line_text, sizes_text, when_text
from breakeven.views.charts.across_experiments import heat_map, trend
from breakeven.views.library import table
from breakeven.views.parts.downloads import Card, show_card
from breakeven.views.parts.pictures import Origin, files_of
from breakeven.views.shared import words
from breakeven.views.shared.address import bound
from breakeven.views.shared.definition_links import linked
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.resources import ingest_or_warn

COMPUTE_SECONDS = 0.3
"""Time limit of each computation of missing numbers: a page must not wait for all of them."""
LOOK_SECONDS = 0.5
SEPARATED = ("device", "precision")
"""What a matrix does not mix unasked."""
LOOK_SECONDS_WHILE_RUNNING = 3.0
"""Longer, because each computation disturbs a run that this machine times."""
IS_DUE = "experiments look is due"
"""Key in the session state: whether the timer, not the page, runs `_compute_some` next."""


def tell_pending(matching: pd.DataFrame) -> int:
    """Shows how many of the found rows have no numbers yet; returns their number."""
    pending = int((~matching["known"].astype(bool)).sum())
    if pending:
        st.info(
            f"{pending:,} of {len(matching):,} experiments are not compared yet; they appear by "
            "themselves.",
            icon=":material/hourglass_top:",
        )
    return pending


def compute_meanwhile(store: Store, frame: pd.DataFrame, listed: list[str]) -> None:
    """Computes missing numbers in small steps, and redraws the page after a change."""
    unknown = not frame["known"].astype(bool).all()
    unmeasured = (frame["total_bytes"].isna() & frame["experiment_id"].notna()).any()
    active = frame["state"].isin(ACTIVE_EXPERIMENTS).any()
    if unknown or unmeasured or active:
        st.session_state[IS_DUE] = False
        every = LOOK_SECONDS_WHILE_RUNNING if active else LOOK_SECONDS
        st.fragment(_compute_some, run_every=every)(store, frame, listed)


def _compute_some(store: Store, frame: pd.DataFrame, listed: list[str]) -> None:
    """Computes the listed experiments first."""
    is_due, st.session_state[IS_DUE] = st.session_state.get(IS_DUE), True
    if not is_due:
        return
    ingest_or_warn(store.ingest)
    if not compute_missing(store, COMPUTE_SECONDS, only=listed):
        compute_missing(store, COMPUTE_SECONDS)
    if catalog(store) is not frame:
        st.rerun()


EXPERIMENT_LINK = st.column_config.LinkColumn("Experiment", display_text=r"experiment=(.+)")
"""A column with results of `link_to`."""


def ask_quantity(title: Markdown, name: str, quantities: Sequence[str]) -> str:
    """Asks for a number, by its name in METRICS; `name` is the widget's in the address."""
    chosen: str = st.selectbox(
        title,
        quantities,
        **bound(name, quantities[0], quantities),
        width=200,
        format_func=lambda number_name: inert(METRICS[number_name].title),
    )
    return chosen


def link_to(experiment_id: str | None) -> str | None:
    """The address of an experiment's comparison, relative to the page; None without an id."""
    return experiment_id and f"./experiment?experiment={experiment_id}"


MAX_NAMED_VALUES = 8
"""Values that a sentence names."""


def show_as_matrix(store: Store, frame: pd.DataFrame, wanted: Filter) -> None:
    """The matrix of the experiments that the filter selects from the catalog."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        across = st.selectbox(
            "Across",
            ACROSS,
            **bound("across", "model", ACROSS),
            format_func=table.facet_title,
            width=180,
        )
        quantity = ask_quantity("In each cell", "cells", QUANTITIES)
    matching = matching_rows(frame, wanted)
    rows = backend_rows(store, matching, wanted.facets.get("environment", ()))
    pending = tell_pending(matching)
    if not rows.empty:
        show_matrix(matrix(_alike(rows, across, wanted), across, quantity))
    elif not pending:
        st.info(
            "No finished experiment matches. Remove a word or a filter.",
            icon=":material/search_off:",
        )
    compute_meanwhile(store, frame, list(matching["experiment_id"].dropna()))


def _alike(rows: pd.DataFrame, across: str, wanted: Filter) -> pd.DataFrame:
    """The rows of one device and precision, the latest unless the reader picks others; all of them
    where the columns or the filter tell them apart."""
    names = [name for name in SEPARATED if name != across and name not in wanted.facets]
    groups = rows[names].astype(str).agg(" · ".join, axis=1) if names else rows.index.astype(str)
    known = list(dict.fromkeys(reversed(groups.tolist())))
    if not names or len(known) < 2:
        return rows
    everything = "all"
    chosen = st.segmented_control(
        "Only those of",
        [*known, everything],
        default=known[0],
        required=True,
        format_func=inert,
        key="matrix-of",
    )
    return rows if chosen == everything else rows[groups == (chosen or known[0])]


def show_matrix(backend_matrix: BackendMatrix) -> None:
    """Shows the heat map, other differences between its cells, and a link to each experiment."""
    across = table.facet_title(backend_matrix.across).lower()
    title = f"{METRICS[backend_matrix.quantity].title} by backend and {across}"
    with files_of(Origin(name="matrix")):
        show_card(
            Card(
                title,
                lambda: heat_map(backend_matrix),
                lambda: cells_table(backend_matrix),
                name="matrix",
                numbers=[backend_matrix.quantity],
                help="Each cell shows the latest experiment with that backend; point at a cell for "
                "its interval, click it to open it. Grey is near 1.",
            )
        )
    if backend_matrix.mixed:
        st.caption(mixed_text(backend_matrix))
    with st.expander("Every cell, with its experiment", icon=":material/table:"):
        st.dataframe(
            _linked_cells(backend_matrix),
            hide_index=True,
            key="matrix-cells",
            column_config={"experiment": EXPERIMENT_LINK},
        )


def mixed_text(backend_matrix: BackendMatrix) -> Markdown:
    """Names conditions that differ within a row, because readers would take their effect for the
    columns' effect."""
    parts = []
    for name, values in backend_matrix.mixed.items():
        shown = inert(first_few(values, MAX_NAMED_VALUES))
        parts.append(f"{table.facet_title(name).lower()} ({shown})")
    return (
        f":material/info: These experiments also differ in {'; '.join(parts)}. Filter to one "
        "value of each before you attribute a difference to the column."
    )


def _linked_cells(backend_matrix: BackendMatrix) -> pd.DataFrame:
    """The table for reading: values in their usual format, and a link."""
    write = METRICS[backend_matrix.quantity].format
    frame = cells_table(backend_matrix)
    shown = frame[["backend", backend_matrix.across]].rename(
        columns={
            "backend": "Backend",
            backend_matrix.across: table.facet_title(backend_matrix.across),
        }
    )
    shown[METRICS[backend_matrix.quantity].title] = [
        format_verdict(empty) if empty else ("never" if value == float("inf") else write(value))
        for value, empty in zip(frame[backend_matrix.quantity], frame["why_empty"], strict=True)
    ]
    for title, name in (("Verdict", "speed_verdict"), ("Parity", "parity")):
        shown[title] = frame[name].map(METRICS[name].format)
    shown["experiment"] = [link_to(key) for key in frame["experiment_id"]]
    return shown


ICONS = {
    True: ":red[:material/trending_down:] worse,",
    False: ":green[:material/trending_up:] better,",
}
"""Icon of a step, by whether the new level is worse."""
MAX_LISTED = 5
"""Most trainings whose changes are listed at once."""


def show_as_trends(store: Store, frame: pd.DataFrame, wanted: Filter) -> None:
    """The trends of the experiments that the filter selects from the catalog."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        quantity = ask_quantity("Trend of", "of", TRENDED)
        with st.popover("Command", icon=":material/terminal:", type="tertiary", width="content"):
            st.caption("For a nightly job: the exit status is 5 if a number became worse.")
            parts = ["breakeven", "trend", f"--of={quantity}", "--fail-if=worse>2%"]
            st.code(
                shlex.join([*parts, *filter_arguments(wanted)]), language="bash", wrap_lines=True
            )
    matching = matching_rows(frame, wanted)
    rows = backend_rows(store, matching, wanted.facets.get("environment", ()))
    all_series = trends(rows, quantity)
    pending = tell_pending(matching)
    if all_series:
        show_trends(all_series, pending)
    elif not pending:
        st.info(
            "No finished experiment has this number. Remove a word or a filter.",
            icon=":material/search_off:",
        )
    compute_meanwhile(store, frame, list(matching["experiment_id"].dropna()))


def show_trends(all_series: Sequence[Series], pending: int) -> None:
    """Shows all series with another level, and one workload's series in full."""
    changed = [
        series for series in all_series if series.steps or series.is_out_of_line or series.failure
    ]
    show_changes(all_series, changed, pending)
    groups: dict[str, list[Series]] = {}
    for series in [*changed, *all_series]:
        group = groups.setdefault(f"{series.workload} {series.device}", [])
        if series not in group:
            group.append(series)
    keys = list(groups)
    # Only texts, because a session keeps its widgets' arguments in memory.
    titles = {key: inert(_group_title(group)) for key, group in groups.items()}
    key = st.selectbox(
        "Training", keys, **bound("training", keys[0], keys), format_func=titles.__getitem__
    )
    shown = groups[key if key in groups else keys[0]]
    quantity = METRICS[shown[0].quantity]
    if sum(len(series.points) for series in shown) > len(shown):  # A single one has no trend.
        with files_of(Origin(name="trend", facts=(f"{shown[0].title} · {shown[0].device}",))):
            show_card(
                Card(
                    f"{quantity.title} over time",
                    lambda: trend(shown),
                    lambda: _points_table(shown),
                    name="trend",
                    numbers=["trend", shown[0].quantity],
                    help="Each mark is an experiment, each line a level, each arrow a step, which "
                    "is a lasting change. Dashed lines: another version of torch.",
                )
            )
    with st.expander("Every experiment", icon=":material/table:"):
        st.dataframe(
            _linked_points(shown),
            hide_index=True,
            key="trend-experiments",
            column_config={"experiment": EXPERIMENT_LINK},
        )


def show_changes(all_series: Sequence[Series], changed: Sequence[Series], pending: int) -> None:
    """Shows the answer: series that are worse now, that are better, that should run again."""
    steps = [(series, step) for series in changed for step in series.steps]
    worse = [(series, step) for series, step in steps if series.worsening(step) > 0]
    long = [series for series in all_series if len(series.points) >= FEWEST]
    failed = [series for series in changed if series.failure]
    headline = [f"{words.plural(len(worse), 'step')} to a worse level"] if worse else []
    headline += [f"{words.plural(len(failed), 'latest run')} failed"] if failed else []
    if headline:
        st.markdown(f"### {', '.join(headline)}")
    elif pending:
        st.markdown("### No number became worse so far")
    elif not long:
        st.markdown("### Too few experiments to detect a change")
        most = words.plural(max(len(series.points) for series in all_series), "experiment")
        st.caption(
            f"That takes {FEWEST} experiments with the same training on the same device; "
            f"the longest series has {most}."
        )
    else:
        st.markdown("### No number became worse")
        points = max(len(series.points) for series in long)
        st.caption(
            f"{words.plural(len(long), 'series')} of up to {points:,} experiments were checked."
        )
    groups: dict[str, list[Series]] = {}
    for series in changed:
        groups.setdefault(f"{series.title} · {series.device}", []).append(series)
    listed = [_changes(title, group) for title, group in groups.items()]
    st.markdown("\n\n".join(listed[:MAX_LISTED]))
    if len(listed) > MAX_LISTED:
        with st.expander(words.plural(len(listed) - MAX_LISTED, "more training")):
            st.markdown("\n\n".join(listed[MAX_LISTED:]))


def _changes(title: str, group: Sequence[Series]) -> Markdown:
    """The changes of one training, a line each."""
    lines = []
    for series in group:
        backend = f"**{inert(series.backend)}**"
        for step in reversed(series.steps):
            since = _linked_day(series.points[step.index])
            sizes = linked(series.quantity, inert(sizes_text(series, step)))
            lines.append(f"{ICONS[series.worsening(step) > 0]} {backend} since {since}: {sizes}")
        if series.is_out_of_line:
            newest = _linked_day(series.points[-1])
            lines.append(
                f":orange[:material/help:] {backend}: {inert(out_of_line_text(series))} ({newest})"
            )
        if series.failure:
            lines.append(f":red[:material/error:] {backend}: {inert(failure_text(series.failure))}")
    return "\n".join([f"{inert(title)}\n", *(f"- {line}" for line in lines)])


def _linked_day(point: Point) -> Markdown:
    return (
        f"[{inert(when_text(point))}](./experiment?experiment={inert(quote(point.experiment_id))})"
    )


def _group_title(group: Sequence[Series]) -> str:
    points = max(len(series.points) for series in group)
    marks = sum(len(series.steps) for series in group)
    steps = f", {words.plural(marks, 'step')}" if marks else ""
    return f"{group[0].title} · {group[0].device} ({words.plural(points, 'experiment')}{steps})"


def _points_table(shown: Sequence[Series]) -> pd.DataFrame:
    """One row per experiment and backend, oldest first."""
    return pd.DataFrame(
        [
            {
                "experiment_id": point.experiment_id,
                "name": point.name,
                "submitted": point.submitted,
                "backend": series.backend,
                series.quantity: point.value,
                "low": point.low,
                "high": point.high,
                **point.versions,
            }
            for series in shown
            for point in series.points
        ]
    )


def _linked_points(shown: Sequence[Series]) -> pd.DataFrame:
    """The table for reading, newest first."""
    write = METRICS[shown[0].quantity].format
    return pd.DataFrame(
        [
            {
                "When": when_text(point),
                "Backend": series.backend,
                METRICS[series.quantity].title: write(point.value),
                "Name": point.name,
                **{
                    name.capitalize() if name == "host" else name: value
                    for name, value in point.versions.items()
                },
                "experiment": link_to(point.experiment_id),
            }
            for series in shown
            for point in reversed(series.points)
        ]
    )
