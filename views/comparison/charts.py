"""Shows the charts of a comparison for the runs that the reader picks."""

from collections.abc import Sequence

import streamlit as st

from breakeven.storage.comparison.results import Comparison, Result
from breakeven.views.parts.cards import Card
from breakeven.views.parts.downloads import show_card
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.selection import remembered

RUNS_OF = "runs of"
"""Key in the session state: the experiment whose runs were picked last."""


def show(cards: Sequence[Card], empty: Markdown = "", *, side_by_side: bool = False) -> None:
    """Shows the cards below each other or in two columns; without cards the text `empty`."""
    if not cards and empty:
        st.caption(empty)
    if not side_by_side:
        for card in cards:
            show_card(card)
        return
    for place, column in enumerate(st.columns(2)):
        with column:
            for card in cards[place::2]:
                show_card(card)


def pick(comparison: Comparison) -> list[Result]:
    """The runs that the reader picks."""
    labels = [result.label for result in comparison.results]
    default, remember = remembered("runs", labels, comparison.experiment_id)
    # Runs picked in one experiment are no selection in another.
    before = st.session_state.get(RUNS_OF)
    if before not in (None, comparison.experiment_id):
        st.session_state["runs"] = labels
    st.session_state[RUNS_OF] = comparison.experiment_id
    shown = st.pills(
        "Runs", labels, selection_mode="multi", key="runs", default=default, bind="query-params",
        format_func=inert, label_visibility="collapsed", on_change=remember,
    )  # fmt: skip
    return [result for result in comparison.results if result.label in shown]
