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

QUEUE_SECONDS, QUEUE_SECONDS_AT_MOST = 4.0, 12.0
"""Seconds between readings of the queue while something runs: usually, and with many readers."""


def main() -> None:
    store = get_store()
    words.name_tab("Machine")
    show_damaged(store)
    show_tabs("tab", TABS if permissions.may_act() else FOR_VIEWERS, store)


def show_refusal(store: Store) -> None:
    st.markdown(permissions.viewing_only())


def show_queue_tab(store: Store) -> None:
    """Shows running and waiting experiments; draws again only while there is one."""
    active = queries.list_experiments(store)["state"].isin(ACTIVE_EXPERIMENTS)
    refresh_seconds = among_readers(QUEUE_SECONDS, QUEUE_SECONDS_AT_MOST) if active.any() else None
    st.fragment(_draw_current_queue, run_every=refresh_seconds)(store)


def _draw_current_queue(store: Store) -> None:
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
    "Queue": show_queue_tab,
    "Environments": show_environments,
    "Health": health.show_health,
    "Log": health.show_logs,
}
FOR_VIEWERS: dict[Markdown, Callable[[Store], None]] = {
    **TABS,
    **dict.fromkeys(("Health", "Log"), show_refusal),
}
"""Some tabs are for operators only; in their place, viewers see why not."""


MAX_NAMED = 2
"""How many experiments are named of those that an experiment waits for."""
NUM_SHOWN = 20
"""Waiting experiments at first and per "Show more". A row has six buttons, and the page draws all
rows every few seconds on the machine that times a run."""
RELEASE_PIXELS = 64
"""Width of the two buttons that share a place, so that the others line up."""


def show_queue(active: pd.DataFrame) -> None:
    """Running and waiting experiments in order, with the buttons for each on the right; `active`:
    the active rows of `storage.queries.list_experiments`."""
    folder, names = data_dir(), titles(active.set_index("experiment_id"))
    running = queue_order.at_work(folder, names)
    # While runs of a running experiment load, its others wait, so `waiting` has it, too.
    running_ids = {experiment.experiment_id for experiment in running}
    waiting = [
        experiment
        for experiment in queue_order.waiting(folder, names)
        if experiment.experiment_id not in running_ids
    ]
    order = queue_order.read_order(folder)
    not_held = [experiment for experiment in waiting if experiment.experiment_id not in order.held]
    places = places_in_use(running)
    waits = plan_starts(folder, not_held, running).waits if running and not order.paused else {}
    devices_known = bool(waits) and knows_devices(folder)
    with st.container(horizontal=True, vertical_alignment="center"):
        counts = f"{len(names) - len(waiting):,} running, {len(waiting):,} waiting"
        st.markdown(f"**Queue: {counts}**", width="content")
        if order.paused:
            st.badge("paused: nothing new begins", icon=":material/pause:", color="orange")
        if permissions.may_act():
            _show_pause(order.paused)
    waiting_ids = [experiment.experiment_id for experiment in waiting]
    not_waiting_ids = [experiment_id for experiment_id in names if experiment_id not in waiting_ids]
    num_shown = st.session_state.get("queue-shown", NUM_SHOWN)
    for experiment_id in [*not_waiting_ids, *waiting_ids[:num_shown]]:
        position = waiting_ids.index(experiment_id) if experiment_id in waiting_ids else None
        held = experiment_id in order.held
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                _show_experiment(experiment_id, names[experiment_id], position=position, held=held)
                if experiment_id in places:
                    st.caption(inert(held_words(places[experiment_id])), width="content")
                elif position is not None and experiment_id in waits:
                    others = first_few(
                        [names.get(other, other) for other in waits[experiment_id]], MAX_NAMED
                    )
                    why = waiting_words(waiting[position], others, devices_known=devices_known)
                    st.caption(inert(why), width="content")
            with st.container(horizontal=True, width="content", gap="small"):
                if permissions.may_act() and position is not None:
                    _show_queue_buttons(
                        waiting[position], position, held=held, last=len(waiting) - 1
                    )
                actions.stop_button(experiment_id)
    if len(waiting) > num_shown:
        _show_more(len(waiting) - num_shown, num_shown)


def _show_more(more: int, num_shown: int) -> None:
    def show() -> None:
        st.session_state["queue-shown"] = num_shown + NUM_SHOWN

    label = f"Show {NUM_SHOWN} more of {more}" if more > NUM_SHOWN else f"Show {more} more"
    st.button(
        label, key="queue-more", type="tertiary", icon=":material/expand_more:", on_click=show
    )


def _show_pause(paused: bool) -> None:
    label = "Go on" if paused else "Pause the queue"
    icon = "play_arrow" if paused else "pause"
    help = "Active experiments continue; nothing new begins in a paused queue."
    if st.button(label, key="queue-pause", type="tertiary", icon=f":material/{icon}:", help=help):
        _act(lambda folder: queue_order.pause(folder, paused=not paused))


def _show_experiment(experiment_id: str, name: str, *, position: int | None, held: bool) -> None:
    if held:
        st.badge("held", icon=":material/pause:", color="orange")
    else:
        words.state_badge(ExperimentState.RUNNING if position is None else ExperimentState.QUEUED)
    number = "" if position is None else f"{position + 1}. "
    st.page_link(
        "views/experiment.py",
        label=f"{number}{inert(name)}",
        query_params={"experiment": experiment_id},
    )


def _show_queue_buttons(experiment: Experiment, position: int, *, held: bool, last: int) -> None:
    experiment_id = experiment.experiment_id
    if _quiet_button("Up", experiment_id, "One place forward.", position == 0):
        _act(lambda folder: queue_order.move(folder, experiment_id, by=-1))
    if _quiet_button("Down", experiment_id, "One place back.", position == last):
        _act(lambda folder: queue_order.move(folder, experiment_id, by=1))
    if _quiet_button("Next", experiment_id, "The first to begin.", position == 0):
        _act(lambda folder: queue_order.move(folder, experiment_id))
    if held:
        if _quiet_button(
            "Release", experiment_id, "Let it begin when its turn comes.", width=RELEASE_PIXELS
        ):
            _act(lambda folder: queue_order.release(folder, experiment_id))
    elif _quiet_button(
        "Hold", experiment_id, "Skip the experiment until it is released.", width=RELEASE_PIXELS
    ):
        _act(lambda folder: queue_order.hold(folder, experiment_id))
    if _quiet_button("Duplicate", experiment_id, "Queue the same once more."):
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
    """Does the action, then starts a supervisor for experiments that can begin now."""
    permissions.require_acting()
    with actions.errors_shown():
        act(data_dir())
        actions.work_off_the_queue()
        st.rerun()


main()
