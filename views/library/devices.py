"""The devices: the experiments on each, and devices that became noisy or slow."""

import socket
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders import queue_order
from breakeven.runner.folders.states import ACTIVE_EXPERIMENTS, RunState
from breakeven.runner.texts import printable
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog
from breakeven.storage.library.devices import (
    QUANTITIES,
    DeviceHistory,
    Quantity,
    devices,
    history_table,
)
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.numbers.metrics import NUMBERS
from breakeven.storage.statistics.steps import FEWEST
from breakeven.storage.terminal.lists import devices_verdict, noisy_words, worsening_words
from breakeven.views.charts.library import device_history
from breakeven.views.library.overviews import tell_pending, watch
from breakeven.views.parts.downloads import Card, show_card
from breakeven.views.parts.pictures import Origin, files_of
from breakeven.views.shared.address import bound
from breakeven.views.shared.inert import Markdown, inert, plain
from breakeven.views.shared.links import linked, sentence
from breakeven.views.shared.resources import capabilities, data_dir

ANY = "cuda"
"""The name of any free device in a specification."""
HERE, RECORDED = "This machine", "Other machines, and earlier devices"
MAX_TOLD = 5
"""Most warnings about devices that are listed at once."""
EMPTY = (
    "No experiment has measured a device yet. The control of a finished experiment shows how "
    "noisy its device was, and the baseline shows how fast it was."
)


Place = tuple[str, str]
"""A host and one of its devices."""
Uses = defaultdict[Place, list[str]]
"""Names of experiments by place."""


def show(store: Store) -> None:
    frame = catalog(store)
    found, pending = devices(store), tell_pending(frame)
    rows = table(found, *uses(frame))
    if found:
        show_verdict(found, pending)
    elif not pending:
        st.markdown(EMPTY)
    is_here = rows["is_here"].astype(bool)
    rows = rows.drop(columns="is_here")
    for title, mine in ((HERE, rows[is_here]), (RECORDED, rows[~is_here])):
        if len(mine):
            st.markdown(f"#### {title}")
            show_table(mine, title)
    if len(rows):
        st.caption(", ".join(linked(one, NUMBERS[one].title) for one in QUANTITIES)
                   + ": from the latest experiment with data.")  # fmt: skip
    if found:
        show_history(found)
    watch(store, frame, list(frame["experiment_id"].dropna()))


def show_verdict(found: Sequence[DeviceHistory], pending: int) -> None:
    """Shows the answer: devices that are noisy, or became noisier or slower."""
    st.markdown(f"### {inert(devices_verdict(found))}{' so far' if pending else ''}")
    lines = [_line(one, ":red[:material/trending_down:]", sentence(worsening_words(change)))
             for one in found for change in one.worsenings]  # fmt: skip
    lines += [_line(one, ":orange[:material/graphic_eq:]", sentence(noisy_words(one)))
              for one in found if one.is_noisy]  # fmt: skip
    st.markdown("\n".join(lines[:MAX_TOLD]))
    if len(lines) > MAX_TOLD:
        with st.expander(f"{len(lines) - MAX_TOLD} more"):
            st.markdown("\n".join(lines[MAX_TOLD:]))
    if not any(one.can_worsen for one in found):
        st.caption(f"To detect that a device became worse, {FEWEST} experiments on it are needed.")


def _line(one: DeviceHistory, icon: Markdown, text: Markdown) -> Markdown:
    return f"- {icon} **{inert(one.name)}**, {inert(one.id)} of {inert(one.host)}: {text}"


def uses(frame: pd.DataFrame) -> tuple[Uses, Uses]:
    """Running experiments by the device of their claim, and experiments that wait for devices of
    this machine."""
    active = frame[frame["state"].isin(ACTIVE_EXPERIMENTS)]
    names: dict[str, Any] = dict(zip(active["experiment_id"], active["name"], strict=True))
    running, waiting, busy = Uses(list), Uses(list), set()
    for one in queue_order.at_work(data_dir(), names):
        for run in one.runs:
            try:
                claim = run.read_claim() if run.state is RunState.RUNNING else None
            except RunnerError:
                continue
            if claim is not None:
                busy.add(one.experiment_id)
                for device in dict.fromkeys(claim.devices):
                    running[claim.node or claim.host, device].append(str(names[one.experiment_id]))
                break
    machine = capabilities()
    ids = [one.id for one in machine.devices] if machine else []
    for one in queue_order.waiting(data_dir(), names):
        if one.experiment_id not in busy:
            wanted = set(one.spec.devices)
            for id in [id for id in ids if id in wanted or (ANY in wanted and id.startswith(ANY))]:
                waiting[socket.gethostname(), id].append(str(names[one.experiment_id]))
    return running, waiting


def table(found: Sequence[DeviceHistory], running: Uses, waiting: Uses) -> pd.DataFrame:
    """A row for each device that is present, in use or known from earlier experiments."""
    machine, here = capabilities(), socket.gethostname()
    measured = {(one.host, one.id, one.name): one for one in found}
    names = {(host, id): name for host, id, name in measured}
    keys = [(here, one.id, one.name) for one in machine.devices] if machine else []
    keys += [(host, id, names.get((host, id), id)) for host, id in {**running, **waiting}
             if machine is None or host != here]  # fmt: skip
    rows = [
        _row(*key, measured.get(key), running[key[:2]], waiting[key[:2]])
        | {"is_here": key in keys and key[0] == here}
        for key in dict.fromkeys([*keys, *measured])
    ]
    return pd.DataFrame(rows, columns=[*COLUMNS, "is_here"])


COLUMNS: dict[str, str] = {
    "device": "Device", "id": "Name", "host": "Machine", "busy": "Busy with", "waits": "Waiting",
    **{name: NUMBERS[name].title for name in QUANTITIES}, "worse": "Became", "driver": "Driver",
    "clock": "Maximum clock", "experiments": "Experiments", "seen": "Last seen",
}  # fmt: skip
"""Columns with their titles."""


def _row(
    host: str, id: str, name: str, device: DeviceHistory | None, busy: list[str], waits: list[str]
) -> dict[str, Any]:
    newest = device.newest if device else None
    levels = {quantity: device.level(quantity) if device else None for quantity in QUANTITIES}
    worse = device.worsenings if device else ()
    return {
        "device": printable(name), "id": printable(id), "host": printable(host),
        "busy": printable(", ".join(busy)) or "nothing", "waits": printable(", ".join(waits)),
        **{one: DASH if value is None else NUMBERS[one].format(value)
           for one, value in levels.items()},
        "worse": ", ".join(str(worsening_words(one)).partition(" since")[0] for one in worse),
        "driver": printable(newest.driver) if newest and newest.driver else "",
        "clock": f"{newest.max_sm_clock_mhz:,.0f} MHz"
        if newest and newest.max_sm_clock_mhz else "",
        "experiments": len(device.moments) if device else 0,
        "seen": device.moments[-1].submitted if device else None,
    }  # fmt: skip


def show_table(rows: pd.DataFrame, title: str) -> None:
    """Shows the rows without columns that are empty for every device."""
    texts = [name for name in ("driver", "clock", "worse", "waits") if not rows[name].any()]
    never = [] if rows["seen"].notna().any() else ["seen"]
    shown = rows.drop(columns=[*texts, *never])
    st.dataframe(
        shown, hide_index=True, key=f"devices {title}",
        column_config={
            **{str(name): COLUMNS[str(name)] for name in shown},
            "seen": st.column_config.DatetimeColumn(COLUMNS["seen"], format="YYYY-MM-DD HH:mm"),
        },
    )  # fmt: skip


def show_history(found: Sequence[DeviceHistory]) -> None:
    """Shows one device over time, if any is known; devices that became worse come first."""
    known = [one for one in found if any(one.series(quantity) for quantity in QUANTITIES)]
    if not known:
        st.caption("The history of a device begins with its first compared experiment.")
        return
    keys = {f"{one.host} {one.id} {one.name}": one for one in
            sorted(known, key=lambda one: not one.worsenings)}  # fmt: skip
    names = list(keys)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        key = st.selectbox(
            "Device", names, **bound("device", names[0], names), width=420,
            format_func=lambda key: plain(f"{keys[key].name}, {keys[key].id} of {keys[key].host}")
            if key in keys else "",
        )  # fmt: skip
    device = keys[key if key in keys else names[0]]
    measured = [one for one in QUANTITIES if device.series(one)]

    def draw(quantity: Quantity) -> Any:
        return lambda: device_history(device, quantity)

    with files_of(Origin(name="device", facts=(f"{device.name}, {device.id} of {device.host}",))):
        show_card(Card(
            "Over time", {NUMBERS[one].title: draw(one) for one in measured},
            lambda: history_table(device), name="device-history", numbers=measured,
            help="Each mark is an experiment, each line a level; red marks a device that became "
            "worse.",
        ))  # fmt: skip
