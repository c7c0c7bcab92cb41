"""Add rounds: times an experiment further if its speeds are inconclusive."""

import math
from pathlib import Path

import pandas as pd
import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.added_rounds import add_rounds, refuse_rounds
from breakeven.runner.folders.queue import Experiment, find_experiment
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.scenarios import MAX_REPEATS, AddedRounds
from breakeven.storage import queries
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.storage.queries.timeline import elapsed
from breakeven.views.access import permissions
from breakeven.views.parts.actions import EXPERIMENT, errors_shown, work_off_the_queue
from breakeven.views.shared import words
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.links import linked
from breakeven.views.shared.resources import data_dir

MOST_MINUTES = 60
ROUNDS_OFFERED = 40
"""Rounds of each process for which the offered minutes suffice."""


def button(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """Offers further rounds of the backends whose speed is inconclusive, where rounds can be
    added and the reader may act."""
    labels = [one.label for one in comparison.results if one.speed_verdict == "unsure"]
    if not labels or experiment["origin"] != "local" or not permissions.may_act():
        return
    runs = queries.list_runs(store, comparison.experiment_id)
    folders = tuple(RunDir(Path(folder)) for folder in runs["folder"])
    try:
        refuse_rounds(
            Experiment(experiment_id=comparison.experiment_id, spec=comparison.spec, runs=folders)
        )
    except RunnerError:
        return
    a_round = seconds_of_a_round(store, comparison, labels)
    defaults = AddedRounds()
    with st.popover("Add rounds", icon=":material/more_time:"):
        st.markdown(outlook(store, comparison, labels, a_round))
        processes = st.number_input("Processes of each run", 1, MAX_REPEATS, defaults.processes,
                                    key="added-processes")  # fmt: skip
        width = st.number_input("A process ends when intervals are narrower than (%)", 0.1, 100.0,
                                100 * defaults.target_width, format="%.2g")  # fmt: skip
        offered = minutes_for(ROUNDS_OFFERED * defaults.processes * a_round)
        minutes = st.number_input("Maximum minutes of steps in all", 1, MOST_MINUTES, offered,
                                  key="added-minutes")  # fmt: skip
        if st.button("Add rounds", type="primary", key=f"add-rounds-{comparison.experiment_id}"):
            permissions.require_acting()
            with errors_shown():
                rounds = AddedRounds(processes=processes, target_width=width / 100,
                                     max_seconds=60.0 * minutes)  # fmt: skip
                add_rounds(find_experiment(data_dir(), comparison.experiment_id), labels, rounds)
                work_off_the_queue()
                st.switch_page(EXPERIMENT, query_params={"experiment": comparison.experiment_id})


def seconds_of_a_round(store: Store, comparison: Comparison, labels: list[str]) -> float:
    """Seconds of steps in a round of the runs that are timed further."""
    timed = [
        one.label for one in comparison.results if one.role != "backend" or one.label in labels
    ]
    members = {run for label in timed for run in comparison.spec.repeats_by_label[label]}
    blocks = queries.blocks(store, comparison.experiment_id)
    blocks = blocks[blocks["label"].isin(members) & blocks["steady"]]
    return float(blocks.groupby("label", observed=True)["seconds"].median().sum())


def minutes_for(seconds: float) -> int:
    """The minutes that the form offers for this time."""
    return min(MOST_MINUTES, max(1, math.ceil(seconds / 60)))


def outlook(store: Store, comparison: Comparison, labels: list[str], a_round: float) -> Markdown:
    """The runs that are timed again, the reason, and the time to start them."""
    phases, _ = elapsed(store, comparison.experiment_id)
    again = words.duration(phases.get("loading", 0.0) + phases.get("compiling", 0.0))
    return (
        f"Starts {inert(', '.join(labels))} and the baseline again, one process after the other, "
        "because two processes of the same program differ in speed. Losses do not change. "
        f"A round takes {linked('round', words.duration(a_round))}; loading and compiling take "
        f"about {linked('elapsed_seconds', again)} for each process."
    )
