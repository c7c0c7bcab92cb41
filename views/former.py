"""Addresses that redirect to the current pages, most of them from version 0.1."""

from collections.abc import Callable

import streamlit as st
from streamlit.navigation.page import StreamlitPage

EXPERIMENT, EXPERIMENTS, MACHINE = (
    f"views/{name}.py" for name in ("experiment", "experiments", "machine")
)
TARGETS: dict[str, tuple[str, dict[str, str]]] = {
    "experiments": (EXPERIMENTS, {"view": "Table"}),
    "library": (EXPERIMENTS, {"view": "Table"}),
    "compare": (EXPERIMENT, {}),
    "live": (EXPERIMENT, {}),
    "run": (EXPERIMENT, {"tab": "Runs"}),
    "difference": (EXPERIMENTS, {"view": "Side by side"}),
    "matrix": (EXPERIMENTS, {"view": "Matrix"}),
    "trends": (EXPERIMENTS, {"view": "Trends"}),
    "suites": (EXPERIMENTS, {"view": "Suites"}),
    "devices": (MACHINE, {}),
    "system": (MACHINE, {"tab": "Health"}),
}
"""Target of each address: the page, and additional parameters of the query."""
RENAMED = {("run", "tab"): "part"}
"""Parameters of addresses that have another name today."""


def pages() -> list[StreamlitPage]:
    """A page for each address, hidden from the navigation."""
    return [
        st.Page(_leads_to(name), title=name.capitalize(), url_path=name, visibility="hidden")
        for name in TARGETS
    ]


def _leads_to(former: str) -> Callable[[], None]:
    def lead() -> None:
        page, query = TARGETS[former]
        parameters = {RENAMED.get((former, name), name): st.query_params.get_all(name)
                 for name in st.query_params}  # fmt: skip
        page = MACHINE if "wall" in parameters else page
        st.switch_page(page, query_params={**parameters, **query})

    return lead
