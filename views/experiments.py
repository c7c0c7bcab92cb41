"""Experiments: all experiments and imported results in one table, the door to all other pages."""

import pandas as pd
import streamlit as st

from runner.folders.states import ACTIVE_EXPERIMENTS
from storage.index.store import Store
from storage.library.catalog import catalog, compute
from storage.library.filters import chosen
from views.access import permissions
from views.library import disk, query, saved, selected, table
from views.parts.actions import quick_race, quick_race_button
from views.parts.damaged import show_damaged
from views.parts.downloads import csv_button
from views.shared import words
from views.shared.inert import Markdown
from views.shared.resources import get_store, take_in

COMPUTE_SECONDS = 0.3
"""Of each look, for numbers that are not there yet: a page must not wait for a thousand."""
LOOK_SECONDS = 0.5
LOOK_SECONDS_WHILE_RACING = 3.0
"""Whoever is timed on this machine is to be disturbed little."""
IS_DUE = "experiments look is due"
"""In the session's state: whether the next run of `look` is its own, and not part of the page."""


def main() -> None:
    store = get_store()
    frame = catalog(store)
    show_damaged(store)
    if frame.empty:
        selected.show_last(store)
        show_nothing(store, frame)
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        asked = query.ask_filter(frame)
        with st.popover("Columns", icon=":material/view_column:", width="content"):
            columns = table.ask_columns()
            query.ask_sort()
        saved.show()
        disk.show(store, frame)
        with st.popover("Command", icon=":material/terminal:", type="tertiary", width="content"):
            st.caption("The same list without the browser, for programs with `--json`:")
            st.code(query.command(asked), language="bash", wrap_lines=True)
    found = chosen(frame, asked)
    actions = st.container()
    picked = show_table(frame, found, columns)
    with actions:
        selected.show(store, picked)
    selected.show_notes(picked)
    watch(store, frame, list(found["experiment_id"].dropna()))


def show_nothing(store: Store, frame: pd.DataFrame) -> None:
    """What this page is for, how to fill it, and the way back for what was deleted."""
    st.markdown("#### No experiment yet")
    st.markdown(
        "An experiment trains one model several times side by side: without a compiler, and under "
        "each backend you name. All of them are listed here with what they came to."
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        clicked = permissions.may_act() and quick_race_button()
        st.page_link("views/launch.py", label="Launch", icon=":material/rocket_launch:")
        disk.show(store, frame)
    if clicked:
        quick_race()


def show_table(frame: pd.DataFrame, found: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """What was found of all there is, and how much that is; the rows that are picked."""
    if found.empty:
        st.info("No experiment fits. Take a word or a filter away.", icon=":material/search_off:")
        return found
    with st.container():
        picked = table.show(found, columns)
        with st.container(horizontal=True, vertical_alignment="center"):
            told = " · ".join(counted(frame, found))
            st.markdown(f":gray[{told}]", help=table.explanation(columns), width="stretch")
            csv_button("CSV", found.drop(columns=["text", "known", "losses"]), "experiments")
    return found[found["experiment_id"].isin(picked)]


def counted(frame: pd.DataFrame, found: pd.DataFrame) -> list[Markdown]:
    """How many there are, how many of them are listed, what is still to come."""
    of_all = "" if len(found) == len(frame) else f" of {len(frame):,}"
    told = [f"{words.plural(len(found), 'experiment')}{of_all}"]
    if len(found) > table.MAX_ROWS:
        told.append(f"the first {table.MAX_ROWS:,} are listed; narrow it down to see others")
    pending = int((~frame["known"].astype(bool)).sum())
    if pending:
        told.append(f"{pending:,} not compared yet; their numbers fill in by themselves")
    return told


def watch(store: Store, frame: pd.DataFrame, listed: list[str]) -> None:
    """Computes in small steps what is missing, and draws the page anew once something changed."""
    unknown = not frame["known"].astype(bool).all()
    unmeasured = (frame["total_bytes"].isna() & frame["experiment_id"].notna()).any()
    active = frame["state"].isin(ACTIVE_EXPERIMENTS).any()
    if unknown or unmeasured or active:
        st.session_state[IS_DUE] = False
        every = LOOK_SECONDS_WHILE_RACING if active else LOOK_SECONDS
        st.fragment(look, run_every=every)(store, frame, listed)


def look(store: Store, frame: pd.DataFrame, listed: list[str]) -> None:
    """What is listed comes first."""
    is_due, st.session_state[IS_DUE] = st.session_state.get(IS_DUE), True
    if not is_due:
        return
    take_in(store.ingest)
    if not compute(store, COMPUTE_SECONDS, only=listed):
        compute(store, COMPUTE_SECONDS)
    if catalog(store) is not frame:
        st.rerun()


main()
