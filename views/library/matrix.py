"""Every backend against models, batch sizes, devices, versions, in one heat map."""

import pandas as pd
import streamlit as st

from breakeven.runner.commands.filters import Filter
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import backend_rows, chosen
from breakeven.storage.library.matrix import ACROSS, QUANTITIES, BackendMatrix, cells_table, matrix
from breakeven.storage.numbers.formats import format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.views.charts.matrix import heat_map
from breakeven.views.library import query
from breakeven.views.library.filling import (
    EXPERIMENT_LINK,
    ask_quantity,
    link_to,
    tell_pending,
    watch,
)
from breakeven.views.parts.downloads import chart_card
from breakeven.views.parts.exports import Origin, files_of
from breakeven.views.shared.address import bound
from breakeven.views.shared.inert import Markdown, inert

SHOWN = 8
"""Values that a sentence names."""


def show(store: Store, frame: pd.DataFrame, wanted: Filter) -> None:
    """The matrix of the experiments that the filter selects from the catalog."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        across = st.selectbox(
            "Across", ACROSS, **bound("across", "model", ACROSS), format_func=query.title,
            width=180,
        )  # fmt: skip
        quantity = ask_quantity("In each cell", "cells", QUANTITIES)
    found = chosen(frame, wanted)
    rows = backend_rows(store, found, wanted.facets.get("environment", ()))
    pending = tell_pending(found)
    if not rows.empty:
        show_matrix(matrix(rows, across, quantity))
    elif not pending:
        st.info("No finished experiment matches. Remove a word or a filter.",
                icon=":material/search_off:")  # fmt: skip
    watch(store, frame, list(found["experiment_id"].dropna()))


def show_matrix(found: BackendMatrix) -> None:
    """Shows the heat map, other differences between its cells, and a link to each experiment."""
    title = f"{METRICS[found.quantity].title} by backend and {query.title(found.across).lower()}"
    with files_of(Origin(name="matrix")):
        chart_card(
            title, lambda: heat_map(found), lambda: cells_table(found), name="matrix",
            numbers=[found.quantity],
            help="Each cell shows the latest experiment with that backend; point at a cell for "
            "its interval. Grey is near 1.",
        )  # fmt: skip
    if found.mixed:
        st.caption(mixed_text(found))
    with st.expander("Every cell, with its experiment", icon=":material/table:"):
        st.dataframe(
            linked_table(found), hide_index=True, key="matrix-cells",
            column_config={"experiment": EXPERIMENT_LINK},
        )  # fmt: skip


def mixed_text(found: BackendMatrix) -> Markdown:
    """Names conditions that differ within a row, because readers would take their effect for the
    columns' effect."""
    parts = []
    for name, values in found.mixed.items():
        more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
        parts.append(f"{query.title(name).lower()} ({inert(', '.join(values[:SHOWN]))}{more})")
    return (
        f":material/info: These experiments also differ in {'; '.join(parts)}. Filter to one "
        "value of each before you attribute a difference to the column."
    )


def linked_table(found: BackendMatrix) -> pd.DataFrame:
    """The table for reading: values in their usual format, and a link."""
    write = METRICS[found.quantity].format
    frame = cells_table(found)
    shown = frame[["backend", found.across]].rename(
        columns={"backend": "Backend", found.across: query.title(found.across)}
    )
    shown[METRICS[found.quantity].title] = [
        format_verdict(empty) if empty else ("never" if one == float("inf") else write(one))
        for one, empty in zip(frame[found.quantity], frame["why_empty"], strict=True)
    ]
    for title, name in (("Speed", "speed_verdict"), ("Parity", "parity")):
        shown[title] = frame[name].map(METRICS[name].format)
    shown["experiment"] = [link_to(key) for key in frame["experiment_id"]]
    return shown
