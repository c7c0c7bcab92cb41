"""Tables of what was recorded, each with its way out."""

import pandas as pd
import streamlit as st

from storage.metrics import DASH
from views.downloads import csv_button

ALWAYS_KNOWN = ["run_id", "label", "role"]
"""Columns that say which run it is."""


def of_run(frame: pd.DataFrame, run: pd.Series) -> pd.DataFrame:
    """The rows of one run in a frame of `storage.queries`."""
    return frame[frame["run_id"] == run["run_id"]]


def show_table(title: str, frame: pd.DataFrame, name: str, empty: str) -> None:
    """A table under its title, or what `empty` says; `name` is unique on the page."""
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{title}**", width="stretch")
            if not frame.empty:
                csv_button("CSV", frame, name)
        if frame.empty:
            st.caption(empty)
            return
        shown = frame.drop(columns=ALWAYS_KNOWN, errors="ignore")
        shown.columns = [_title(column) for column in shown.columns]
        st.dataframe(shown, hide_index=True, key=f"table-{name}", placeholder=DASH)


def _title(column: str) -> str:
    """`num_samples` becomes `Num samples`; what is written with a capital stays."""
    words = column.replace("_", " ")
    return words[:1].upper() + words[1:]
