"""The same training over days and versions, and lasting changes of its numbers."""

import shlex
from collections.abc import Sequence
from urllib.parse import quote

import pandas as pd
import streamlit as st

from breakeven.runner.commands.filters import Filter, filter_arguments
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import backend_rows, chosen
from breakeven.storage.library.trends import QUANTITIES, Point, Series, trends
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.steps import FEWEST
from breakeven.storage.terminal.trend import failure_text, out_of_line_text, sizes_text, when_text
from breakeven.views.charts.trend import trend
from breakeven.views.library.filling import (
    EXPERIMENT_LINK,
    ask_quantity,
    link_to,
    tell_pending,
    watch,
)
from breakeven.views.parts.downloads import chart_card
from breakeven.views.parts.exports import Origin, files_of
from breakeven.views.shared import words
from breakeven.views.shared.address import bound
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.links import linked

ICONS = {
    True: ":red[:material/trending_down:] worse,",
    False: ":green[:material/trending_up:] better,",
}
"""Icon of a step, by whether the new level is worse."""
MAX_LISTED = 5
"""Most trainings whose changes are listed at once."""


def show(store: Store, frame: pd.DataFrame, wanted: Filter) -> None:
    """The trends of the experiments that the filter selects from the catalog."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        quantity = ask_quantity("Trend of", "of", QUANTITIES)
        with st.popover("Command", icon=":material/terminal:", type="tertiary", width="content"):
            st.caption("For a nightly job: the exit status is 5 if a number became worse.")
            parts = ["breakeven", "trend", f"--of={quantity}", "--fail-if=worse>2%"]
            st.code(shlex.join([*parts, *filter_arguments(wanted)]), language="bash",
                    wrap_lines=True)  # fmt: skip
    found = chosen(frame, wanted)
    rows = backend_rows(store, found, wanted.facets.get("environment", ()))
    series = trends(rows, quantity)
    pending = tell_pending(found)
    if series:
        show_trends(series, pending)
    elif not pending:
        st.info("No finished experiment has this number. Remove a word or a filter.",
                icon=":material/search_off:")  # fmt: skip
    watch(store, frame, list(found["experiment_id"].dropna()))


def show_trends(series: Sequence[Series], pending: int) -> None:
    """Shows all series with another level, and one workload's series in full."""
    changed = [one for one in series if one.steps or one.is_out_of_line or one.failure]
    show_changes(series, changed, pending)
    groups: dict[str, list[Series]] = {}
    for one in [*changed, *series]:
        mine = groups.setdefault(f"{one.workload} {one.device}", [])
        if one not in mine:
            mine.append(one)
    keys = list(groups)
    # Only texts, because a session keeps its widgets' arguments in memory.
    titles = {key: inert(_group_title(group)) for key, group in groups.items()}
    key = st.selectbox(
        "Training", keys, **bound("training", keys[0], keys), format_func=titles.__getitem__
    )
    shown = groups[key if key in groups else keys[0]]
    quantity = METRICS[shown[0].quantity]
    with files_of(Origin(name="trend", facts=(f"{shown[0].title} · {shown[0].device}",))):
        chart_card(
            f"{quantity.title} over time", lambda: trend(shown), lambda: table(shown),
            name="trend", numbers=["trend", shown[0].quantity],
            help="Each mark is an experiment, each line a level, each arrow a step, which is "
            "a lasting change. Dashed lines: another version of torch.",
        )  # fmt: skip
    with st.expander("Every experiment", icon=":material/table:"):
        st.dataframe(
            linked_table(shown), hide_index=True, key="trend-experiments",
            column_config={"experiment": EXPERIMENT_LINK},
        )  # fmt: skip


def show_changes(series: Sequence[Series], changed: Sequence[Series], pending: int) -> None:
    """Shows the answer: series that are worse now, that are better, that should run again."""
    steps = [(one, step) for one in changed for step in one.steps]
    worse = [(one, step) for one, step in steps if one.worsening(step) > 0]
    long = [one for one in series if len(one.points) >= FEWEST]
    failed = [one for one in changed if one.failure]
    told_first = [f"{words.plural(len(worse), 'step')} to a worse level"] if worse else []
    told_first += [f"{words.plural(len(failed), 'latest run')} failed"] if failed else []
    if told_first:
        st.markdown(f"### {', '.join(told_first)}")
    elif pending:
        st.markdown("### No step so far")
    elif not long:
        st.markdown("### Too few experiments to detect a step")
        st.caption(f"To detect a step, {FEWEST} experiments are needed; the longest series has "
                   f"{words.plural(len(series[0].points), 'experiment')}.")  # fmt: skip
    else:
        st.markdown("### No number became worse")
        points = max(len(one.points) for one in long)
        st.caption(f"{words.plural(len(long), 'series')} of up to {points:,} experiments were "
                   "checked.")  # fmt: skip
    groups: dict[str, list[Series]] = {}
    for one in changed:
        groups.setdefault(f"{one.title} · {one.device}", []).append(one)
    listed = [_changes(title, group) for title, group in groups.items()]
    st.markdown("\n\n".join(listed[:MAX_LISTED]))
    if len(listed) > MAX_LISTED:
        with st.expander(words.plural(len(listed) - MAX_LISTED, "more training")):
            st.markdown("\n\n".join(listed[MAX_LISTED:]))


def _changes(title: str, group: Sequence[Series]) -> Markdown:
    """The changes of one training, a line each."""
    lines = []
    for one in group:
        backend = f"**{inert(one.backend)}**"
        for step in reversed(one.steps):
            since = _linked_day(one.points[step.index])
            sizes = linked(one.quantity, inert(sizes_text(one, step)))
            lines.append(f"{ICONS[one.worsening(step) > 0]} {backend} since {since}: {sizes}")
        if one.is_out_of_line:
            newest = _linked_day(one.points[-1])
            lines.append(f":orange[:material/help:] {backend}: {inert(out_of_line_text(one))} "
                         f"({newest})")  # fmt: skip
        if one.failure:
            lines.append(f":red[:material/error:] {backend}: {inert(failure_text(one.failure))}")
    return "\n".join([f"{inert(title)}\n", *(f"- {line}" for line in lines)])


def _linked_day(point: Point) -> Markdown:
    return (
        f"[{inert(when_text(point))}](./experiment?experiment={inert(quote(point.experiment_id))})"
    )


def _group_title(group: Sequence[Series]) -> str:
    points = max(len(one.points) for one in group)
    marks = sum(len(one.steps) for one in group)
    steps = f", {words.plural(marks, 'step')}" if marks else ""
    return f"{group[0].title} · {group[0].device} ({words.plural(points, 'experiment')}{steps})"


def table(shown: Sequence[Series]) -> pd.DataFrame:
    """One row per experiment and backend, oldest first."""
    return pd.DataFrame([
        {
            "experiment_id": point.experiment_id, "name": point.name,
            "submitted": point.submitted, "backend": one.backend, one.quantity: point.value,
            "low": point.low, "high": point.high, **point.versions,
        }
        for one in shown
        for point in one.points
    ])  # fmt: skip


def linked_table(shown: Sequence[Series]) -> pd.DataFrame:
    """The table for reading, newest first."""
    write = METRICS[shown[0].quantity].format
    return pd.DataFrame([
        {
            "When": when_text(point), "Backend": one.backend,
            METRICS[one.quantity].title: write(point.value), "Name": point.name,
            **{name.capitalize() if name == "host" else name: value
               for name, value in point.versions.items()},
            "experiment": link_to(point.experiment_id),
        }
        for one in shown
        for point in reversed(one.points)
    ])  # fmt: skip
