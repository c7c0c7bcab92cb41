"""What the views of the library share: the number that is shown, and links to experiments."""

from collections.abc import Sequence

import streamlit as st

from breakeven.storage.numbers.metrics import METRICS
from breakeven.views.shared.address import bound
from breakeven.views.shared.inert import Markdown, inert

EXPERIMENT_LINK = st.column_config.LinkColumn("Experiment", display_text=r"experiment=(.+)")
"""A column of what `link_to` gives."""


def ask_quantity(title: Markdown, name: str, quantities: Sequence[str]) -> str:
    """Which number is shown, by its name in METRICS; `name` is the widget's in the address."""
    chosen: str = st.selectbox(
        title, quantities, **bound(name, quantities[0], quantities), width=200,
        format_func=lambda one: inert(METRICS[one].title),
    )  # fmt: skip
    return chosen


def link_to(experiment_id: str | None) -> str | None:
    """Its comparison, relative to the page; None for none."""
    return experiment_id and f"./experiment?experiment={experiment_id}"
