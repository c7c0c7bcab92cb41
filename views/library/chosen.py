"""What the pages about many experiments at once begin with: which of them, and what they show."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from breakeven.runner.commands.filters import Filter
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog
from breakeven.storage.numbers.metrics import METRICS
from breakeven.views.library import query
from breakeven.views.parts.damaged import show_damaged
from breakeven.views.shared.address import bound
from breakeven.views.shared.inert import Markdown, inert

EXPERIMENT_LINK = st.column_config.LinkColumn("Experiment", display_text=r"experiment=(.+)")
"""A column of what `link_to` gives."""


def ask_which(store: Store, empty: Markdown) -> tuple[pd.DataFrame, Filter]:
    """The catalog, and the filter that the reader asks for; without any experiment says what the
    page is for, and stops."""
    frame = catalog(store)
    show_damaged(store)
    if frame.empty:
        st.markdown(empty)
        st.page_link("views/launch.py", label="Launch", icon=":material/rocket_launch:")
        st.stop()
    with st.container(horizontal=True, vertical_alignment="center"):
        return frame, query.ask_filter(frame)


def ask_quantity(title: Markdown, name: str, quantities: Sequence[str]) -> str:
    """Which number is shown, by its name in METRICS; `name` is the widget's in the address."""
    chosen: str = st.selectbox(
        title, quantities, **bound(name, quantities[0], quantities), width=200,
        format_func=lambda one: inert(METRICS[one].title),
    )  # fmt: skip
    return chosen


def link_to(experiment_id: str | None) -> str | None:
    """Its comparison, relative to the page; None for none."""
    return experiment_id and f"./?experiment={experiment_id}"
