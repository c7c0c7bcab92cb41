"""The charts of a comparison on its page: of the runs that the reader picks."""

from collections import deque
from collections.abc import Sequence
from functools import partial
from threading import Lock

import streamlit as st

from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.index.store import Store
from breakeven.views.comparison import kept_charts
from breakeven.views.comparison import predictions as compare_predictions
from breakeven.views.comparison.cards import cards
from breakeven.views.parts.cards import Charts
from breakeven.views.parts.downloads import show_card
from breakeven.views.parts.folding import folded_on_phones
from breakeven.views.shared.inert import inert
from breakeven.views.shared.selection import remembered

MAX_KEPT = 2
"""Comparisons whose charts are kept for whoever looks at them next; with their series the largest
have some ten megabytes."""
RUNS_OF = "runs of"
"""In the session's state: the experiment of which runs were picked last."""


def show(store: Store, comparison: Comparison) -> None:
    """All charts, of the runs that the reader picks."""
    if not has_steps(comparison):
        st.caption("No step was recorded, so there is nothing to chart.")
        return
    results = _pick(comparison)
    if not results:
        st.caption("Pick at least one run above to see its charts.")
        return
    charts = _charts(store, comparison, results)
    for card in charts.above:
        show_card(card)
    with folded_on_phones("charts", "More charts"):
        for column, mine in zip(st.columns(2), (charts.left, charts.right), strict=True):
            with column:
                for card in mine:
                    show_card(card)
        for card in charts.below:
            show_card(card)
        if comparison.spec.kind.trains_fully:
            compare_predictions.show(store, comparison, results)


def draw(store: Store, experiment_id: str) -> None:
    """Draws what `show` is going to show of all runs, and keeps it: of an experiment that is over
    also for the next process."""

    def drawn() -> tuple[Comparison, Charts]:
        now = compare(store, experiment_id)
        return now, _drawn(store, now, now.results)

    comparison = compare(store, experiment_id)
    if comparison.spec.kind.compares == "runs" and has_steps(comparison):
        kept_charts.keep(store, experiment_id, drawn)
        kept_charts.write(comparison, _charts(store, comparison, comparison.results))


def has_steps(comparison: Comparison) -> bool:
    """Whether there is anything to chart."""
    return any(result.measured.num_steps for result in comparison.results)


def _charts(store: Store, comparison: Comparison, results: Sequence[Result]) -> Charts:
    """The cards with all that was drawn of them, as long as the comparison is the same: one in
    which anything changed is another object."""
    labels = tuple(result.label for result in results)
    with _lock:
        for known, of, charts in _kept:
            if known is comparison and of == labels:
                return charts

    draw = partial(_drawn, store, comparison, results)
    is_whole = len(results) == len(comparison.results)
    charts = (kept_charts.find(store, comparison, draw) if is_whole else None) or draw()
    with _lock:
        _kept.append((comparison, labels, charts))
    return charts


def _drawn(store: Store, comparison: Comparison, results: Sequence[Result]) -> Charts:
    steps = queries.step_times(store, comparison.experiment_id)
    return cards(store, comparison, results, steps)


_lock = Lock()
_kept: deque[tuple[Comparison, tuple[str, ...], Charts]] = deque(maxlen=MAX_KEPT)


def _pick(comparison: Comparison) -> list[Result]:
    labels = [result.label for result in comparison.results]
    default, remember = remembered("runs", labels, comparison.experiment_id)
    # What was picked of one experiment is no choice of another's runs.
    before = st.session_state.get(RUNS_OF)
    if before not in (None, comparison.experiment_id):
        st.session_state["runs"] = labels
    st.session_state[RUNS_OF] = comparison.experiment_id
    shown = st.pills(
        "Runs", labels, selection_mode="multi", key="runs", default=default, bind="query-params",
        format_func=inert, label_visibility="collapsed", on_change=remember,
    )  # fmt: skip
    return [result for result in comparison.results if result.label in shown]
