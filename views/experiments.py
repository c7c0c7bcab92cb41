"""Experiments: all experiments and imported results in one table, the door to all other pages."""

import pandas as pd
import streamlit as st

from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog
from breakeven.storage.library.filters import chosen
from breakeven.views.access import permissions
from breakeven.views.library import disk, query, saved, selected, table
from breakeven.views.library.filling import watch
from breakeven.views.parts import importing
from breakeven.views.parts.actions import quick_race, quick_race_button
from breakeven.views.parts.damaged import show_damaged
from breakeven.views.parts.downloads import csv_button
from breakeven.views.shared import words
from breakeven.views.shared.inert import Markdown
from breakeven.views.shared.resources import get_store


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
        importing.show()
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
            with st.container(width="content"):
                importing.show()
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


main()
