"""Compare: which backend pays off, after how many steps, and does it learn the same thing?"""

from collections.abc import Callable

import pandas as pd
import streamlit as st

from breakeven.runner.folders.states import ACTIVE_EXPERIMENTS, ExperimentState
from breakeven.runner.specs.scenarios import Compared
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.storage.terminal.caution_words import caution_words
from breakeven.views.access import permissions
from breakeven.views.comparison import accuracy as compare_accuracy
from breakeven.views.comparison import (
    answers,
    behind_verdicts,
    leaderboard,
    measured_again,
    ranks,
    verdicts,
    why,
)
from breakeven.views.comparison import cache as compare_cache
from breakeven.views.comparison import charts as compare_charts
from breakeven.views.comparison import ladder as compare_ladder
from breakeven.views.parts import exchange
from breakeven.views.parts.actions import quick_race, quick_race_button
from breakeven.views.parts.damaged import show_damaged
from breakeven.views.parts.downloads import table_downloads
from breakeven.views.parts.expected import expect_parts
from breakeven.views.parts.exports import experiment_origin, files_of, origin
from breakeven.views.parts.folding import folded_on_phones
from breakeven.views.report import menu as report_menu
from breakeven.views.shared.links import sentence
from breakeven.views.shared.resources import get_store
from breakeven.views.shared.selection import choose_experiment, to_begin_with


def main() -> None:
    expect_parts()
    store = get_store()
    experiments = queries.list_experiments(store)
    show_damaged(store)
    show_start(experiments)
    if experiments.empty:
        return
    ended = experiments[~experiments["state"].isin(ACTIVE_EXPERIMENTS)]
    experiment = choose_experiment("compare", experiments, otherwise=to_begin_with(ended))
    assert experiment is not None
    with files_of(experiment_origin(store, experiment)):
        show_experiment(store, experiment)


def show_experiment(store: Store, experiment: pd.Series) -> None:
    comparison = compare(store, experiment["experiment_id"])
    SHOWN[comparison.spec.kind.compares](store, experiment, comparison)


def show_tensors(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    compare_accuracy.show(store, comparison.experiment_id, comparison.spec)
    compare_ladder.show(store, comparison.experiment_id)
    show_origin(store, experiment)


def show_caches(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    compare_cache.show(store, comparison)
    show_origin(store, experiment)


def show_runs(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    show_answer(store, experiment, comparison)
    measured_again.show(store, comparison)
    show_leaderboard(comparison)
    ranks.show(store, comparison)
    exchange.show_imported(store, comparison.experiment_id)
    with folded_on_phones("why", "Why: stages of the compiler, kernels, findings"):
        compare_ladder.show(store, comparison.experiment_id)
        why.show(store, comparison.experiment_id)
    compare_charts.show(store, comparison)


def show_start(experiments: pd.DataFrame) -> None:
    """What this is and the one button, as long as nothing was run on this machine."""
    if (experiments["origin"] == "local").any():
        return
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        with st.container():
            st.markdown("#### Which `torch.compile` backend pays off for your training?")
            below = "Below is a recorded example. " if not experiments.empty else ""
            if not permissions.may_act():
                st.markdown(f"{below}{permissions.viewing_only()}")
                return
            st.markdown(
                f"{below}One click trains a tiny BERT under several backends on this machine, "
                "side by side, and compares them. It takes a minute or two."
            )
        clicked = permissions.may_act() and quick_race_button()
    if clicked:
        quick_race()


def show_answer(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """The answer in a sentence, and where the numbers come from."""
    if ExperimentState(experiment["state"]).is_active:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.info("This experiment is not over: what follows is what is known so far.",
                    icon=":material/hourglass_top:")  # fmt: skip
            st.page_link("views/live.py", label="Watch it live", icon=":material/monitor_heart:",
                         query_params={"experiment": experiment["experiment_id"]})  # fmt: skip
    st.markdown(f"### {answers.headline(comparison)}")
    show_origin(store, experiment)


def show_origin(store: Store, experiment: pd.Series) -> None:
    """Where the numbers come from, and where they can go."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(verdicts.provenance(experiment), width="stretch")
        report_menu.links(experiment["experiment_id"])
        with st.container(width="content"):
            report_menu.show(store, experiment["experiment_id"], origin())


def show_leaderboard(comparison: Comparison) -> None:
    """All runs in numbers, and everything that a reader of the numbers must know."""
    with st.container(border=True):
        st.html(leaderboard.html(comparison.results, comparison.spec.kind))
        with st.container(horizontal=True, vertical_alignment="center"):
            notes = " ".join(sentence(caution_words(note)) for note in comparison.notes)
            known = [verdicts.noise_text(comparison), notes]
            st.caption("  \n".join(known), width="stretch")
            measured_again.menu(comparison)
            table_downloads(comparison.table(), "comparison")
            exchange.buttons(get_store(), comparison.experiment_id)
        behind_verdicts.show(comparison)
    warnings = [sentence(caution_words(warning)) for warning in comparison.warnings]
    doubts = [*warnings, *verdicts.doubts(comparison.results)]
    if doubts:
        listed = doubts if len(doubts) == 1 else [f"- {doubt}" for doubt in doubts]
        st.warning("\n".join(listed), icon=":material/info:")


SHOWN: dict[Compared, Callable[[Store, pd.Series, Comparison], None]] = {
    "runs": show_runs,
    "tensors": show_tensors,
    "caches": show_caches,
}
"""The page by what an experiment compares."""

main()
