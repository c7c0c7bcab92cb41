"""The command palette, Ctrl+K or Cmd+K on every page: pages, experiments and actions by name."""

from dataclasses import dataclass, field

import streamlit as st

from breakeven.storage import queries
from breakeven.views.access import permissions
from breakeven.views.parts.actions import EXPERIMENT, quick_race
from breakeven.views.shared.resources import get_store
from breakeven.views.shared.selection import titles

MAX_EXPERIMENTS = 500
"""The latest; a browser filters them as the reader types."""
_focus = st.components.v2.component(
    "palette_focus",
    js="""export default ({ parentElement }) => {
  parentElement.ownerDocument.querySelector('[role="dialog"] input')?.focus();
}""",
)
"""The field to type in is ready at once; Streamlit leaves the focus on the dialog."""
RACE = "Start a race on this machine"


@dataclass(frozen=True)
class Place:
    """A page of the dashboard, with what its address names."""

    page: str
    query: dict[str, str] = field(default_factory=dict)


PLACES = {
    "Experiments": Place("views/experiments.py", {"view": "Table"}),
    **{
        name: Place("views/experiments.py", {"view": name})
        for name in ("Matrix", "Trends", "Side by side", "Suites")
    },
    "Launch": Place("views/launch.py"),
    **{
        name: Place("views/machine.py", {"tab": name})
        for name in ("Devices", "Queue", "Health", "Log", "Audit log")
    },
    "Wall": Place("views/machine.py", {"wall": "1"}),
    "Definitions": Place("views/definitions.py"),
}


def show() -> None:
    """The button in the bar on top of every page."""
    with st.container(key="palette"):
        opened = st.button("Search", icon=":material/search:", type="tertiary", shortcut="Mod+K",
                           key="palette-search",
                           help="Go to a page or an experiment, or start a race.")  # fmt: skip
    if opened:
        _ask()


@st.dialog("Go to")
def _ask() -> None:
    store = get_store()
    experiments = queries.list_experiments(store)
    latest = experiments[~experiments["archived"]].head(MAX_EXPERIMENTS)
    named = titles(latest.set_index("experiment_id", drop=False))
    by_title = {title: experiment_id for experiment_id, title in named.items()}
    actions = [RACE] if permissions.may_act() else []
    chosen = st.selectbox(
        "Page, experiment or action", [*actions, *PLACES, *by_title], index=None,
        placeholder="Type a name", label_visibility="collapsed",
    )  # fmt: skip
    _focus()
    if chosen == RACE:
        quick_race()
    elif chosen in PLACES:
        st.switch_page(PLACES[chosen].page, query_params=PLACES[chosen].query)
    elif chosen:
        st.switch_page(EXPERIMENT, query_params={"experiment": by_title[chosen]})
