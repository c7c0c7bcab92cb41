"""The command palette, Ctrl+K or Cmd+K on every page: pages, experiments and actions by name."""

from collections.abc import Container
from functools import partial

import streamlit as st

from breakeven.storage import queries
from breakeven.views.access import permissions
from breakeven.views.parts.actions import EXPERIMENT, quick_race
from breakeven.views.shared.address import titles
from breakeven.views.shared.resources import get_store

MAX_EXPERIMENTS = 500
"""Most experiments, the latest ones; the browser filters them while the reader types."""
_focus = st.components.v2.component(
    "palette_focus",
    js="""export default ({ parentElement }) => {
  parentElement.ownerDocument.querySelector('[role="dialog"] input')?.focus();
}""",
)
"""Moves the focus to the text field; Streamlit leaves it on the dialog."""
OPEN = "palette open"
"""Key in the session state: whether the reader opened the palette and has not closed it."""
RACE = "Quick race on this machine"
DESTINATIONS: dict[str, tuple[str, dict[str, str]]] = {
    "Experiments": ("all_experiments", {"view": "Table"}),
    **{
        view: ("all_experiments", {"view": view})
        for view in ("Matrix", "Trends", "Side by side", "Suites")
    },
    "Launch": ("launch", {}),
    **{tab: ("machine", {"tab": tab}) for tab in ("Devices", "Queue", "Health", "Log")},
    "Definitions": ("definitions", {}),
}
"""Pages of the dashboard, with the parameters of their addresses."""
AGAIN = "This experiment: run again with changes"
TABS = ("Verdict", "Why", "Learning", "Runs", "Settings")


def show_palette() -> None:
    """The button in the bar on top of every page, and the open palette."""
    with st.container(key="palette"):
        st.button(
            "Search",
            icon=":material/search:",
            type="tertiary",
            shortcut="Mod+K",
            key="palette-search",
            on_click=_keep_open,
            args=[True],
            help="Go to a page or an experiment, or start the quick race.",
        )
    # Otherwise a page that redraws itself, such as the list, would close the palette.
    if st.session_state.get(OPEN):
        _ask()


def _keep_open(is_open: bool) -> None:
    st.session_state[OPEN] = is_open


@st.dialog("Go to", on_dismiss=partial(_keep_open, False))
def _ask() -> None:
    store = get_store()
    experiments = queries.list_experiments(store)
    latest = experiments[~experiments["archived"].astype(bool)].head(MAX_EXPERIMENTS)
    named = titles(latest.set_index("experiment_id", drop=False))
    by_title = {title: experiment_id for experiment_id, title in named.items()}
    actions = [RACE] if permissions.may_act() else []
    places = _in_experiment(named) | DESTINATIONS
    chosen = st.selectbox(
        "Page, experiment or action",
        [*actions, *places, *by_title],
        index=None,
        placeholder="Type a page, an experiment or an action",
        label_visibility="collapsed",
    )
    _focus()
    if chosen:
        _keep_open(False)
    if chosen == RACE:
        quick_race()
    elif chosen in places:
        page, query = places[chosen]
        st.switch_page(f"views/{page}.py", query_params=query)
    elif chosen:
        st.switch_page(EXPERIMENT, query_params={"experiment": by_title[chosen]})


def _in_experiment(known: Container[str]) -> dict[str, tuple[str, dict[str, str]]]:
    """The tabs of the experiment that the reader opened last, and Launch with its settings."""
    given = str(st.query_params.get("experiment", st.session_state.get("experiment")))
    if given not in known:
        return {}
    places = {
        f"This experiment: {tab}": ("experiment", {"experiment": given, "tab": tab}) for tab in TABS
    }
    return places | ({AGAIN: ("launch", {"again": given})} if permissions.may_act() else {})
