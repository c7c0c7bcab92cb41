"""Machine: devices, queue, environments, health, logs; and the wall for a large screen."""

from collections.abc import Callable

import streamlit as st

from breakeven.runner.folders.states import ACTIVE_EXPERIMENTS
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.views.access import permissions
from breakeven.views.library import devices
from breakeven.views.parts import wall
from breakeven.views.parts.queue import show_queue
from breakeven.views.shared.address import tabs
from breakeven.views.shared.resources import among_readers, get_store, keeping_up
from breakeven.views.upkeep import health
from breakeven.views.upkeep.environments import show_environments
from breakeven.views.upkeep.health import show_damaged

QUEUE_SECONDS, QUEUE_AT_MOST = 4.0, 12.0
"""Seconds between readings of the queue while something runs: usually, and with many readers."""


def main() -> None:
    store = get_store()
    if wall.is_asked():
        wall.show(store)
        return
    show_damaged(store)
    st.page_link("views/machine.py", label="Wall", icon=":material/desktop_windows:",
                 query_params={wall.PARAMETER: "1"},
                 help="All devices, large, for a screen that others watch.")  # fmt: skip
    opened = tabs("tab", list(TABS))
    for tab, (name, show) in zip(opened, TABS.items(), strict=True):
        if tab.open:
            with tab:
                if name in FOR_OPERATORS and not permissions.may_act():
                    st.markdown(permissions.viewing_only())
                else:
                    show(store)


def show_running(store: Store) -> None:
    """Shows running and waiting experiments; polls only while something is active."""
    active = queries.list_experiments(store)["state"].isin(ACTIVE_EXPERIMENTS)
    again = among_readers(QUEUE_SECONDS, QUEUE_AT_MOST) if active.any() else None
    st.fragment(_show_queue, run_every=again)(store)


def _show_queue(store: Store) -> None:
    with keeping_up(store):
        experiments = queries.list_experiments(store)
        active = experiments[experiments["state"].isin(ACTIVE_EXPERIMENTS)]
    if active.empty:
        st.markdown("**Nothing is running.**")
        if permissions.may_act():
            st.page_link("views/launch.py", label="Launch", icon=":material/rocket_launch:")
        return
    show_queue(active)


TABS: dict[str, Callable[[Store], None]] = {
    "Devices": devices.show,
    "Queue": show_running,
    "Environments": show_environments,
    "Health": health.show_health,
    "Log": health.show_logs,
    "Audit log": health.show_history,
}
FOR_OPERATORS = ("Health", "Log", "Audit log")
"""Tabs for operators only; others see the reason."""

main()
