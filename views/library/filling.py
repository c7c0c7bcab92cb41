"""What the views of the library share: missing results, computed in small steps while a page shows
the known ones; the choice of a number; links to experiments."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from breakeven.runner.folders.states import ACTIVE_EXPERIMENTS
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog, compute
from breakeven.storage.numbers.metrics import METRICS
from breakeven.views.shared.address import bound
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.resources import take_in

COMPUTE_SECONDS = 0.3
"""Time limit of each computation of missing numbers: a page must not wait for all of them."""
LOOK_SECONDS = 0.5
LOOK_SECONDS_WHILE_RACING = 3.0
"""Longer, because each computation disturbs a run that this machine times."""
IS_DUE = "experiments look is due"
"""Key in the session state: whether the next run of `look` is by its timer, not by the page."""


def tell_pending(found: pd.DataFrame) -> int:
    """Shows how many of the found rows have no numbers yet; returns their number."""
    pending = int((~found["known"].astype(bool)).sum())
    if pending:
        st.info(f"{pending:,} of {len(found):,} experiments are not compared yet; they appear by "
                "themselves.", icon=":material/hourglass_top:")  # fmt: skip
    return pending


def watch(store: Store, frame: pd.DataFrame, listed: list[str]) -> None:
    """Computes missing numbers in small steps, and redraws the page after a change."""
    unknown = not frame["known"].astype(bool).all()
    unmeasured = (frame["total_bytes"].isna() & frame["experiment_id"].notna()).any()
    active = frame["state"].isin(ACTIVE_EXPERIMENTS).any()
    if unknown or unmeasured or active:
        st.session_state[IS_DUE] = False
        every = LOOK_SECONDS_WHILE_RACING if active else LOOK_SECONDS
        st.fragment(look, run_every=every)(store, frame, listed)


def look(store: Store, frame: pd.DataFrame, listed: list[str]) -> None:
    """Computes the listed experiments first."""
    is_due, st.session_state[IS_DUE] = st.session_state.get(IS_DUE), True
    if not is_due:
        return
    take_in(store.ingest)
    if not compute(store, COMPUTE_SECONDS, only=listed):
        compute(store, COMPUTE_SECONDS)
    if catalog(store) is not frame:
        st.rerun()


EXPERIMENT_LINK = st.column_config.LinkColumn("Experiment", display_text=r"experiment=(.+)")
"""A column with results of `link_to`."""


def ask_quantity(title: Markdown, name: str, quantities: Sequence[str]) -> str:
    """Asks for a number, by its name in METRICS; `name` is the widget's in the address."""
    chosen: str = st.selectbox(
        title, quantities, **bound(name, quantities[0], quantities), width=200,
        format_func=lambda one: inert(METRICS[one].title),
    )  # fmt: skip
    return chosen


def link_to(experiment_id: str | None) -> str | None:
    """The address of an experiment's comparison, relative to the page; None without an id."""
    return experiment_id and f"./experiment?experiment={experiment_id}"
