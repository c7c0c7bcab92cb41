"""Machine: devices, queue, environments, health, logs."""

from collections.abc import Callable
from typing import Literal

import pandas as pd
import streamlit as st

from breakeven.runner.experiments import queue_order
from breakeven.runner.experiments.queue import Experiment
from breakeven.runner.machine.capabilities import knows_devices
from breakeven.runner.machine.occupancy import held_words, places_in_use, plan_starts, waiting_words
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import ACTIVE_EXPERIMENTS, ExperimentState
from breakeven.runner.texts import first_few
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.views.access import permissions
from breakeven.views.library import device_use
from breakeven.views.parts import actions
from breakeven.views.shared import words
from breakeven.views.shared.address import show_tabs, titles
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.resources import among_readers, data_dir, get_store, keeping_up
from breakeven.views.upkeep import health
from breakeven.views.upkeep.health import show_damaged, show_environments

QUEUE_SECONDS, QUEUE_AT_MOST = 4.0, 12.0
"""Seconds between readings of the queue while something runs: usually, and with many readers."""


def main() -> None:
    store = get_store()
    words.name_tab("Machine")
    show_damaged(store)
    show_tabs("tab", TABS if permissions.may_act() else FOR_VIEWERS, store)


def show_refusal(store: Store) -> None:
    st.markdown(permissions.viewing_only())


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


TABS: dict[Markdown, Callable[[Store], None]] = {
    "Devices": device_use.show,
    "Queue": show_running,
    "Environments": show_environments,
    "Health": health.show_health,
    "Log": health.show_logs,
}
FOR_VIEWERS: dict[Markdown, Callable[[Store], None]] = {
    **TABS,
    **dict.fromkeys(("Health", "Log"), show_refusal),
}
"""Some tabs are for operators only; others see the reason."""


MAX_NAMED = 2
"""Most names of experiments that a request waits for."""
SHOWN = 20
"""Waiting requests at first and per "Show more". A row has six buttons, and the page draws all rows
every few seconds on the machine that times a run."""
RELEASE_PIXELS = 64
"""Width of the two buttons that share a place, so that the others line up."""


def show_queue(active: pd.DataFrame) -> None:
    """Running and waiting experiments in order, with the buttons for each on the right; `active`:
    the active rows of `storage.queries.list_experiments`."""
    folder, names = data_dir(), titles(active.set_index("experiment_id"))
    at_work = queue_order.at_work(folder, names)
    # An experiment at work also has runs that wait until others have loaded.
    busy = {experiment.experiment_id for experiment in at_work}
    waiting = queue_order.waiting(folder, names)
    queued = [experiment for experiment in waiting if experiment.experiment_id not in busy]
    order = queue_order.read_order(folder)
    free = [experiment for experiment in queued if experiment.experiment_id not in order.held]
    held = places_in_use(at_work)
    waits = plan_starts(folder, free, at_work).waits if at_work and not order.paused else {}
    known = bool(waits) and knows_devices(folder)
    with st.container(horizontal=True, vertical_alignment="center"):
        counts = f"{len(names) - len(queued):,} running, {len(queued):,} waiting"
        st.markdown(f"**Queue: {counts}**", width="content")
        if order.paused:
            st.badge("paused: nothing new begins", icon=":material/pause:", color="orange")
        if permissions.may_act():
            _show_pause(order.paused)
    queued_ids = [experiment.experiment_id for experiment in queued]
    running = [key for key in names if key not in queued_ids]
    num_shown = st.session_state.get("queue-shown", SHOWN)
    for key in [*running, *queued_ids[:num_shown]]:
        place = queued_ids.index(key) if key in queued_ids else None
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                _show_experiment(key, names[key], place=place, held=key in order.held)
                if key in held:
                    st.caption(inert(held_words(held[key])), width="content")
                elif place is not None and key in waits:
                    others = first_few([names.get(other, other) for other in waits[key]], MAX_NAMED)
                    why = waiting_words(queued[place], others, devices_known=known)
                    st.caption(inert(why), width="content")
            with st.container(horizontal=True, width="content", gap="small"):
                if permissions.may_act() and place is not None:
                    _show_moves(queued[place], place, held=key in order.held, last=len(queued) - 1)
                actions.stop_button(key)
    if len(queued) > num_shown:
        _show_more(len(queued) - num_shown, num_shown)


def _show_more(more: int, num_shown: int) -> None:
    def show() -> None:
        st.session_state["queue-shown"] = num_shown + SHOWN

    label = f"Show {SHOWN} more of {more}" if more > SHOWN else f"Show {more} more"
    st.button(
        label, key="queue-more", type="tertiary", icon=":material/expand_more:", on_click=show
    )


def _show_pause(paused: bool) -> None:
    label = "Go on" if paused else "Pause the queue"
    icon = "play_arrow" if paused else "pause"
    help = "Active experiments continue; nothing new begins in a paused queue."
    if st.button(label, key="queue-pause", type="tertiary", icon=f":material/{icon}:", help=help):
        _act(lambda folder: queue_order.pause(folder, paused=not paused))


def _show_experiment(key: str, name: str, *, place: int | None, held: bool) -> None:
    if held:
        st.badge("held", icon=":material/pause:", color="orange")
    else:
        words.state_badge(ExperimentState.RUNNING if place is None else ExperimentState.QUEUED)
    number = "" if place is None else f"{place + 1}. "
    st.page_link(
        "views/experiment.py", label=f"{number}{inert(name)}", query_params={"experiment": key}
    )


def _show_moves(experiment: Experiment, place: int, *, held: bool, last: int) -> None:
    key = experiment.experiment_id
    if _quiet_button("Up", key, "One place forward.", place == 0):
        _act(lambda folder: queue_order.move(folder, key, by=-1))
    if _quiet_button("Down", key, "One place back.", place == last):
        _act(lambda folder: queue_order.move(folder, key, by=1))
    if _quiet_button("Next", key, "The first to begin.", place == 0):
        _act(lambda folder: queue_order.move(folder, key))
    if held:
        if _quiet_button("Release", key, "Let it begin when its turn comes.", width=RELEASE_PIXELS):
            _act(lambda folder: queue_order.release(folder, key))
    elif _quiet_button(
        "Hold", key, "Skip the experiment until it is released.", width=RELEASE_PIXELS
    ):
        _act(lambda folder: queue_order.hold(folder, key))
    if _quiet_button("Duplicate", key, "Queue the same once more."):
        _act(lambda folder: queue_order.duplicate(folder, experiment))


def _quiet_button(
    label: Markdown,
    key: str,
    help: Markdown,
    disabled: bool = False,
    width: int | Literal["content"] = "content",
) -> bool:
    return st.button(
        label,
        key=f"queue-{label.lower()}-{key}",
        help=help,
        disabled=disabled,
        type="tertiary",
        width=width,
    )


def _act(act: Callable[[DataDir], object]) -> None:
    """Does the action, then starts a supervisor for requests that can begin now."""
    permissions.require_acting()
    with actions.errors_shown():
        act(data_dir())
        actions.work_off_the_queue()
        st.rerun()


main()
