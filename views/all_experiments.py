"""Experiments: the library of all experiments and imported results, as a table and other views."""

from collections.abc import Callable

import pandas as pd
import streamlit as st

from breakeven.runner.arguments.filters import Filter
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog, matching_rows
from breakeven.views.access import permissions
from breakeven.views.library import overviews, selected, sides, suites, table
from breakeven.views.library.overviews import compute_meanwhile
from breakeven.views.parts import exchange
from breakeven.views.parts.actions import quick_race, quick_race_button
from breakeven.views.parts.downloads import table_downloads
from breakeven.views.shared import words
from breakeven.views.shared.address import choice
from breakeven.views.shared.inert import Markdown
from breakeven.views.shared.resources import get_store
from breakeven.views.upkeep.health import show_damaged

OPENED_BEFORE = "library opened"
"""Key in the session state: the library was opened before."""


def main() -> None:
    store = get_store()
    frame = catalog(store)
    lead_to_experiment(frame)
    show_damaged(store)
    view = choice("View", "view", ["Table", *FILTERED_VIEWS, "Side by side", "Suites"])
    words.name_tab(*([] if view == "Table" else [view]), "Experiments")
    if view == "Side by side":
        sides.show(store)
    elif view == "Suites":
        suites.show(store)
    elif frame.empty:
        selected.show_last(store)
        show_nothing(store, frame)
    else:
        with st.container(horizontal=True, vertical_alignment="center"):
            criteria = table.ask_filter(frame)
            columns = show_tools(store, frame, criteria) if view == "Table" else []
        if view == "Table":
            show_experiments(store, frame, criteria, columns)
        else:
            FILTERED_VIEWS[view](store, frame, criteria)


def lead_to_experiment(frame: pd.DataFrame) -> None:
    """At the start of a session, opens the experiment that an address of version 0.1 names, or the
    recorded example if nothing was run on this machine yet."""
    if OPENED_BEFORE in st.session_state:
        st.query_params.pop("experiment", None)  # The Back button restores it.
        return
    st.session_state[OPENED_BEFORE] = True
    if experiment_id := st.query_params.get("experiment"):
        st.switch_page("views/experiment.py", query_params={"experiment": experiment_id})
    is_unused = not st.query_params and not (frame["origin"] == "local").any()
    if is_unused and len(frame):
        st.switch_page("views/experiment.py")


def show_tools(store: Store, frame: pd.DataFrame, criteria: Filter) -> list[str]:
    """Shows the choice of columns and order, the space on disk, and the command that prints the
    same list; returns the chosen columns."""
    with st.popover("Columns", icon=":material/view_column:", width="content"):
        columns = table.ask_columns()
        table.ask_sort()
    selected.show_disk(store, frame)
    with st.popover("Command", icon=":material/terminal:", type="tertiary", width="content"):
        st.caption("The same list without the browser, for programs with `--json`:")
        st.code(table.list_command(criteria), language="bash", wrap_lines=True)
    return columns


def show_experiments(
    store: Store, frame: pd.DataFrame, criteria: Filter, columns: list[str]
) -> None:
    """The table of the experiments that match the filter, and actions on the ticked rows."""
    matching = matching_rows(frame, criteria)
    actions = st.container()
    picked = show_table(frame, matching, columns)
    with actions:
        selected.show(store, picked)
    selected.show_notes(picked)
    compute_meanwhile(store, frame, list(matching["experiment_id"].dropna()))


def show_nothing(store: Store, frame: pd.DataFrame) -> None:
    """Explains the page and how to fill it, and offers to restore deleted experiments."""
    st.markdown("#### No experiment yet")
    st.markdown(
        "An experiment trains one model several times side by side: without a compiler, and with "
        "each backend that you choose. This page lists all experiments and their results."
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        clicked = permissions.may_act() and quick_race_button()
        st.page_link("views/launch.py", label="Launch", icon=":material/rocket_launch:")
        selected.show_disk(store, frame)
        exchange.show_import()
    if clicked:
        quick_race()


def show_table(frame: pd.DataFrame, matching: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Shows the matching experiments and their number; returns the selected rows."""
    if matching.empty:
        st.info("No experiment matches. Remove a word or a filter.", icon=":material/search_off:")
        return matching
    with st.container(key=table.KEY):
        picked_ids = table.show(matching, columns)
        with st.container(horizontal=True, vertical_alignment="center"):
            counts = " · ".join(count_texts(frame, matching))
            st.markdown(f":gray[{counts}]", help=table.explanation(columns), width="stretch")
            with st.container(width="content"):
                exchange.show_import()
            rows = matching.drop(columns=["text", "known", "losses"])
            table_downloads(rows, "experiments", ["csv"])
    return matching[matching["experiment_id"].isin(picked_ids)]


def count_texts(frame: pd.DataFrame, matching: pd.DataFrame) -> list[Markdown]:
    """The number of experiments, of listed ones, and of those that are not compared yet."""
    of_all = "" if len(matching) == len(frame) else f" of {len(frame):,}"
    counts = [f"{words.plural(len(matching), 'experiment')}{of_all}"]
    if len(matching) > table.MAX_ROWS:
        counts.append(f"the first {table.MAX_ROWS:,} are listed; narrow it down to see others")
    pending = int((~frame["known"].astype(bool)).sum())
    if pending:
        counts.append(f"{pending:,} not compared yet; their numbers fill in by themselves")
    return counts


FILTERED_VIEWS: dict[str, Callable[[Store, pd.DataFrame, Filter], None]] = {
    "Matrix": overviews.show_as_matrix,
    "Trends": overviews.show_as_trends,
}
"""Views of the experiments that match the filter."""

main()
