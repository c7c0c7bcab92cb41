"""Experiment: one comparison while it runs and after, in tabs."""

import pandas as pd
import streamlit as st

from breakeven.runner.protocol.states import ACTIVE_EXPERIMENTS, ExperimentState
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from breakeven.views.access import permissions
from breakeven.views.comparison import running
from breakeven.views.library import selected
from breakeven.views.parts.actions import (
    again_link,
    quick_race,
    quick_race_button,
    resume_button,
    stop_button,
)
from breakeven.views.parts.downloads import expect_parts
from breakeven.views.parts.pictures import experiment_origin, files_of, origin
from breakeven.views.report import menu as report_menu
from breakeven.views.scenarios.by_name import SCENARIOS
from breakeven.views.shared import words
from breakeven.views.shared.address import choose_experiment, default_experiments, show_tabs
from breakeven.views.shared.inert import plain
from breakeven.views.shared.resources import get_store
from breakeven.views.upkeep.health import show_damaged


def main() -> None:
    expect_parts()
    store = get_store()
    experiments = queries.list_experiments(store)
    show_damaged(store)
    show_start(experiments)
    if experiments.empty:
        words.name_tab("Experiment")
        return
    ended = experiments[~experiments["state"].isin(ACTIVE_EXPERIMENTS)]
    active = experiments[experiments["state"] == ExperimentState.RUNNING]
    with st.container(horizontal=True, vertical_alignment="center"):
        experiment = choose_experiment(
            experiments, otherwise=[*active["experiment_id"], *default_experiments(ended)]
        )
        about = experiment_origin(store, experiment)
        with files_of(about):
            show_actions(store, experiment)
    experiment_id = str(experiment["experiment_id"])
    words.name_tab(plain(experiment["name"]), "Experiment")
    selected.show_last(store, experiment_id)
    with files_of(about):
        running.show_head(store, experiment)
        comparison = compare(store, experiment_id)
        shown = SCENARIOS[comparison.spec.scenario].tabs
        show_tabs("tab", shown, store, experiment, comparison)


def show_actions(store: Store, experiment: pd.Series) -> None:
    """Buttons: stop, while active; afterwards resume, change and run again; report and files."""
    experiment_id = str(experiment["experiment_id"])
    runs = queries.run_states(store, experiment_id)
    if ExperimentState(experiment["state"]).is_active:
        if any(map(words.is_stopping, runs.itertuples())):
            st.caption("stopping …", width="content")
        else:
            stop_button(experiment_id)
    else:
        resume_button(experiment, runs)
        if pd.isna(experiment["investigates"]):  # an investigation has no form
            again_link(experiment_id)
    st.page_link(
        "views/all_experiments.py",
        label="Side by side",
        icon=":material/compare_arrows:",
        query_params={"view": "Side by side", "side": experiment_id},
        help="Compares this experiment with others that you choose.",
    )
    report_menu.links(experiment_id)
    with st.container(width="content"):
        report_menu.show(store, experiment_id, origin())
    if experiment["origin"] == "local" and permissions.may_act():
        with st.container(width="content"):
            selected.show_menu(store, experiment_id)


def show_start(experiments: pd.DataFrame) -> None:
    """Shows an introduction and the start button until something was run on this machine."""
    if (experiments["origin"] == "local").any():
        return
    with st.container(border=True, horizontal=True, vertical_alignment="center", key="start"):
        with st.container():
            question = "**Which `torch.compile` backend pays off for your training?**"
            below = "Below is a recorded example. " if not experiments.empty else ""
            if not permissions.may_act():
                st.markdown(f"{question}  \n{below}{permissions.viewing_only()}")
                return
            st.markdown(
                f"{question}  \n{below}One click trains a tiny BERT under several backends on "
                "this machine, side by side, and compares them. It takes a minute or two."
            )
        clicked = permissions.may_act() and quick_race_button()
    if clicked:
        quick_race()


main()
