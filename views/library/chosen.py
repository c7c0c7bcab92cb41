"""Code that the views of the library share: the choice of a number, and links to experiments."""

from collections.abc import Sequence

import streamlit as st

from breakeven.storage.numbers.metrics import METRICS
from breakeven.views.shared.address import bound
from breakeven.views.shared.inert import Markdown, inert

EXPERIMENT_LINK = st.column_config.LinkColumn("Experiment", display_text=r"experiment=(.+)")
"""A column with results of `link_to`."""


def ask_quantity(title: Markdown, name: str, quantities: Sequence[str]) -> str:
    """Asks for a number, by its name in METRICS; `name` is the widget's in the address."""
    chosen: str = st.selectbox(
        title, quantities, **bound(name, quantities[0], quantities), width=200,
        format_func=lambda one: inert(METRICS[one].title),
    )  # fmt: skip
    return chosen


def link_to(experiment_id: str | None) -> str | None:
    """The address of an experiment's comparison, relative to the page; None without an id."""
    return experiment_id and f"./experiment?experiment={experiment_id}"
