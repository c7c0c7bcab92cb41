"""Related experiments: replications of a recorded number, with the button that starts one and its
result, and the training that confirms the answer of a search."""

from typing import Literal

import pandas as pd
import streamlit as st

from breakeven.runner.folders.states import ExperimentState, RunState
from breakeven.runner.specs.candidates import untried
from breakeven.runner.specs.investigations import replay
from breakeven.runner.supervision.search import why_unconfirmed
from breakeven.runner.texts import printable
from breakeven.storage import queries
from breakeven.storage.comparison.evidence import of_role
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.difference.replays import (
    Replay,
    ReplayedNumber,
    ReplayVerdict,
    load_replay,
    replays_of,
)
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.terminal.difference import WHY_NOT, figure_texts, remarks, summary
from breakeven.views.access import permissions
from breakeven.views.comparison.leaderboard import heading, table, verdict_word
from breakeven.views.parts.actions import errors_shown, launch
from breakeven.views.shared import words
from breakeven.views.shared.address import write_address
from breakeven.views.shared.inert import Html, Markdown, inert
from breakeven.views.shared.links import anchor_html, explained, linked, sentence
from breakeven.views.shared.resources import data_dir, get_store, look_at_machine

ButtonType = Literal["secondary", "tertiary"]
PATIENCE = 0.3
"""Seconds that a page spends on computing other replays; the next page has these results."""
MAX_LISTED = 3
CLASSES: dict[ReplayVerdict, Html] = {"inside": "good", "outside": "bad", "not judged": "plain"}
TITLES: dict[ReplayVerdict, str] = {
    "inside": "as expected", "outside": "not as expected", "not judged": "not judged"
}  # fmt: skip
HELP = (
    "Runs this backend, its baseline and a control once more, with the same settings and seed. "
    "Each number is then compared with the range that it should fall into by chance alone."
)


def menu(comparison: Comparison) -> None:
    """A menu at the numbers of a whole experiment: the user picks the backend to replicate."""
    names = [one.label for one in comparison.results if one.role == "backend"]
    if not names or not permissions.may_act():
        return
    with st.popover("Replicate", icon=":material/replay:", help=HELP):
        label = st.selectbox("Backend", names, format_func=inert, key="measure-again-label")
        _button(comparison.experiment_id, str(label))


def button(store: Store, experiment_id: str, label: str) -> None:
    """A button at the numbers of one run that replicates the run."""
    if permissions.may_act() and queries.experiment_spec(store, experiment_id).kind.compares_runs:
        _button(experiment_id, label)


def _button(experiment_id: str, label: str) -> None:
    if st.button("Replicate", icon=":material/replay:", help=HELP,
                 key=f"measure-again-{experiment_id}-{label}"):  # fmt: skip
        with errors_shown():
            measure_again(experiment_id, label)


def measure_again(experiment_id: str, label: str) -> None:
    """Queues the replication of a run and opens its page; raises `RunnerError`."""
    permissions.require_acting()
    with st.spinner("Looking at what this machine offers …"):
        machine = look_at_machine(data_dir()).result()
    spec = queries.experiment_spec(get_store(), experiment_id)
    launch(replay(spec, experiment_id, label), machine)


def show(store: Store, comparison: Comparison) -> None:
    """Shows the outcome of a replay, or links from the original to its replays."""
    if comparison.spec.replay_of is not None:
        _show_outcome(store, comparison.experiment_id)
    found = replays_of(store, comparison.experiment_id)
    if found:
        _show_links(store, found)


def _show_outcome(store: Store, experiment_id: str) -> None:
    try:
        found = load_replay(store, experiment_id, PATIENCE)
    except NotInStore as error:
        reason = inert(permissions.redacted(error))
        st.info(f"This replicates an experiment that is not here. {reason}",
                icon=":material/replay:")  # fmt: skip
        return
    with st.container(border=True):
        st.markdown(f"**{inert(found.label)}, replicated**", help=explained(["replayed"]))
        st.markdown(sentence(summary(found)))
        if found.figures:
            st.html(html(found))
        if notes := remarks(found):
            st.caption(" ".join(map(sentence, notes)))
        with st.container(horizontal=True, vertical_alignment="center"):
            label = f"Recorded, {words.moment(found.recorded.submitted)}"
            _open_button(label, ":material/history:", found.recorded.experiment_id)
            sides = [found.recorded.experiment_id, experiment_id]
            st.page_link("views/experiments.py", label="Side by side, with what differs",
                         icon=":material/compare_arrows:",
                         query_params={"view": "Side by side", "side": sides})  # fmt: skip


def html(found: Replay) -> Html:
    """A row for each number: its recorded value, its new value, the expected range."""
    titles = [anchor_html("replayed", title) for title in ("", "Recorded", "Again", "Expected")]
    return table("Replication", ["Number", *titles], map(_row, found.figures))


def _row(figure: ReplayedNumber) -> list[Html]:
    why = "" if figure.reason is None else WHY_NOT[figure.reason]
    verdict = verdict_word(TITLES[figure.verdict], CLASSES[figure.verdict], why)
    # The second column is in view on a phone, where the table scrolls.
    return [heading(figure.name), verdict, *map(inert, figure_texts(figure))]


def _show_links(store: Store, found: list[str]) -> None:
    listed = queries.list_experiments(store).set_index("experiment_id")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"Replicated {words.plural(len(found), 'time')}:", width="content")
        for experiment_id in found[:MAX_LISTED]:
            row: pd.Series = listed.loc[experiment_id]
            spec = queries.experiment_spec(store, experiment_id)
            of = printable(", ".join(spec.backends) or "baseline")
            label = f"{inert(of)}, {words.moment(row['submitted'])}"
            _open_button(label, ":material/replay:", experiment_id)


def _open_button(
    label: Markdown, icon: str, experiment_id: str, type: ButtonType = "tertiary"
) -> None:
    """Opens another experiment on the same page."""
    st.button(label, icon=icon, type=type, key=f"open-{experiment_id}",
              on_click=write_address, kwargs={"experiment": experiment_id})  # fmt: skip


def show_search(store: Store, comparison: Comparison) -> None:
    """Links a search to its confirmation, and a confirmation to its search."""
    spec = comparison.spec
    if spec.confirms is not None:
        _open_button("The search", ":material/manage_search:", spec.confirms, "secondary")
    if not spec.kind.searches:
        return
    st.caption(inert(untried(spec)))
    listed = queries.list_experiments(store)
    found = listed[listed["confirms"] == comparison.experiment_id]
    if found.empty:
        ended = next((one.figures["reason"] for one in comparison.notes
                      if one.kind == "search ended"), "")  # fmt: skip
        why = f" The search ended because {inert(ended)}." if ended else ""
        baseline = of_role(comparison.results, "baseline")
        ended_as = RunState(baseline.state) if baseline else RunState.LOST
        st.info(inert(why_unconfirmed(ended_as)) + why, icon=":material/manage_search:")
        return
    row = found.iloc[0]
    state = ExperimentState(row["state"])
    with st.container(horizontal=True, vertical_alignment="center"):
        verb = "are trained" if state.is_active else "were trained"
        finalists = linked("speedup", "The best candidates")
        st.markdown(f"{finalists} {verb} from the beginning, in fresh processes.", width="content")
        _open_button("The confirmed answer", ":material/verified:", str(row["experiment_id"]),
                     "secondary")  # fmt: skip
