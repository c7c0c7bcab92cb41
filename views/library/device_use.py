"""The devices: the experiments that run on each, and those that wait for it."""

import socket
from collections import defaultdict
from typing import Any

import pandas as pd
import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments import queue_order
from breakeven.runner.protocol.states import ACTIVE_EXPERIMENTS, RunState
from breakeven.runner.texts import printable
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog
from breakeven.views.library.overviews import compute_meanwhile
from breakeven.views.shared.resources import capabilities, data_dir

ANY = "cuda"
"""The name of any free device in a specification."""
COLUMNS: dict[str, str] = {
    "device": "Device",
    "id": "Name",
    "host": "Machine",
    "busy": "Busy with",
    "waits": "Waiting",
}
"""Columns with their titles."""
EMPTY = "The devices of this machine are not known yet: the first experiment looks for them."

NamesByDevice = defaultdict[tuple[str, str], list[str]]
"""Names of experiments by host and device."""


def show(store: Store) -> None:
    frame = catalog(store)
    rows = table(*names_by_device(frame))
    if rows.empty:
        st.markdown(EMPTY)
    else:
        shown = rows if rows["waits"].any() else rows.drop(columns="waits")
        st.dataframe(shown, hide_index=True, key="devices", column_config=dict(COLUMNS))
    compute_meanwhile(store, frame, list(frame["experiment_id"].dropna()))


def names_by_device(frame: pd.DataFrame) -> tuple[NamesByDevice, NamesByDevice]:
    """Running experiments by the device of their claim, and experiments that wait for devices of
    this machine."""
    active = frame[frame["state"].isin(ACTIVE_EXPERIMENTS)]
    names: dict[str, Any] = dict(zip(active["experiment_id"], active["name"], strict=True))
    running, waiting, busy = NamesByDevice(list), NamesByDevice(list), set()
    for experiment in queue_order.at_work(data_dir(), names):
        for run in experiment.runs:
            try:
                claim = run.read_claim() if run.state is RunState.RUNNING else None
            except RunnerError:
                continue
            if claim is not None:
                busy.add(experiment.experiment_id)
                for device in dict.fromkeys(claim.devices):
                    at_work = running[claim.node or claim.host, device]
                    at_work.append(str(names[experiment.experiment_id]))
                break
    machine = capabilities()
    ids = [device.id for device in machine.devices] if machine else []
    for experiment in queue_order.waiting(data_dir(), names):
        if experiment.experiment_id not in busy:
            wanted = set(experiment.spec.devices)
            for id in [id for id in ids if id in wanted or (ANY in wanted and id.startswith(ANY))]:
                waits = waiting[socket.gethostname(), id]
                waits.append(str(names[experiment.experiment_id]))
    return running, waiting


def table(running: NamesByDevice, waiting: NamesByDevice) -> pd.DataFrame:
    """A row for each device that is present or in use."""
    machine, here = capabilities(), socket.gethostname()
    names = {(here, device.id): device.name for device in machine.devices} if machine else {}
    in_use = [place for place in {**running, **waiting} if machine is None or place[0] != here]
    rows = [
        {
            "device": printable(names.get((host, id), id)),
            "id": printable(id),
            "host": printable(host),
            "busy": printable(", ".join(running[host, id])) or "nothing",
            "waits": printable(", ".join(waiting[host, id])),
        }
        for host, id in [*names, *in_use]
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))
