"""Addresses of the pages of version 0.1, which lead to the pages of today."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import streamlit as st
from streamlit.navigation.page import StreamlitPage

EXPERIMENT, EXPERIMENTS, MACHINE = (
    f"views/{name}.py" for name in ("experiment", "experiments", "machine")
)


@dataclass(frozen=True)
class Target:
    """Where an address leads: the page, what is added to the query, and names that changed."""

    page: str
    query: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


TARGETS = {
    "experiments": Target(EXPERIMENTS),
    "compare": Target(EXPERIMENT),
    "live": Target(EXPERIMENT),
    "run": Target(EXPERIMENT, {"tab": "Runs"}, {"tab": "part"}),
    "difference": Target(EXPERIMENTS, {"view": "Side by side"}),
    "matrix": Target(EXPERIMENTS, {"view": "Matrix"}),
    "trends": Target(EXPERIMENTS, {"view": "Trends"}),
    "suites": Target(EXPERIMENTS, {"view": "Suites"}),
    "devices": Target(MACHINE),
    "system": Target(MACHINE, {"tab": "Health"}),
}


def pages() -> list[StreamlitPage]:
    """A page for each address, in no navigation."""
    return [
        st.Page(_leads_to(target), title=name.capitalize(), url_path=name, visibility="hidden")
        for name, target in TARGETS.items()
    ]


def _leads_to(target: Target) -> Callable[[], None]:
    def lead() -> None:
        parameters = {target.renamed.get(name, name): st.query_params.get_all(name)
                 for name in st.query_params}  # fmt: skip
        page = MACHINE if "wall" in parameters else target.page
        st.switch_page(page, query_params={**parameters, **target.query})

    return lead
