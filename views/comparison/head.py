"""The head of an experiment's page: its state, its origin and its progress."""

from contextlib import suppress
from pathlib import Path

import pandas as pd
import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.runner.files import lacks_room
from breakeven.runner.folders.added_rounds import rounds_to_add
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import ACTIVE_RUNS, ExperimentState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenarios import AddedRounds
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import format_share
from breakeven.storage.queries.timeline import elapsed
from breakeven.views.comparison import verdicts
from breakeven.views.parts.progress import progress
from breakeven.views.shared import words
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.links import linked
from breakeven.views.shared.resources import among_readers

STATE_SECONDS, STATE_AT_MOST = 2.0, 5.0
"""Seconds between two readings of an active experiment's state: usually, and with many readers."""


def show(store: Store, experiment: pd.Series) -> None:
    """Shows state and origin; the progress of an active experiment is redrawn by itself."""
    experiment_id = str(experiment["experiment_id"])
    if ExperimentState(experiment["state"]).is_active:
        again = among_readers(STATE_SECONDS, STATE_AT_MOST)
        st.fragment(_show_active, run_every=again)(store, experiment_id)
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        words.state_badge(experiment["state"])
        facts: list[Markdown] = [verdicts.provenance(experiment), *_took(store, experiment_id)]
        st.caption(" · ".join(facts), width="stretch")
        _offer_notice(experiment)


def is_stopping(runs: pd.DataFrame) -> bool:
    """Whether a run still runs after a request to stop: compiling delays the stop."""
    active = runs[runs["state"].isin(ACTIVE_RUNS)]
    return any(RunDir(Path(folder)).cancel_requested for folder in active["folder"])


def _show_active(store: Store, experiment_id: str) -> None:
    listed = queries.list_experiments(store).set_index("experiment_id", drop=False)
    experiment = listed.loc[experiment_id]
    if not ExperimentState(experiment["state"]).is_active:
        st.rerun()  # The experiment has ended: the whole page is drawn again, with the verdict.
    runs = queries.list_runs(store, experiment_id)
    with st.container(horizontal=True, vertical_alignment="center"):
        words.state_badge(experiment["state"])
        st.caption(verdicts.provenance(experiment), width="stretch")
        _offer_notice(experiment)
    lack = lacks_room(store.data_dir.runs)
    if lack:
        st.warning(f"Waits for disk space: {inert(lack)}", icon=":material/hard_drive:")
    active = runs[runs["state"].isin(ACTIVE_RUNS)]
    for folder in active["folder"].head(1):
        with suppress(RunnerError):
            if rounds := rounds_to_add(RunDir(Path(folder))):
                _show_added(rounds)
                return
    done = progress(store, experiment_id, runs)
    if done is None:
        st.progress(0.0, text="waiting in the queue")
    else:
        so_far = words.spent(done.elapsed, done.phases, " so far")
        st.progress(done.share, text=words.outlook(runs, so_far, done.left))
    _show_ending(queries.experiment_spec(store, experiment_id))


def _show_added(rounds: AddedRounds) -> None:
    """Shows the conditions that end added rounds; their number is unknown."""
    width = linked("speedup", format_share(rounds.target_width))
    seconds = linked("elapsed_seconds", words.duration(rounds.max_seconds_each))
    left = linked("attempt", words.plural(rounds.processes, "process"))
    st.caption(
        f"Adds rounds in {left} more of each run. A process ends once every interval is narrower "
        f"than {width}, or once the steps of all runs together have taken {seconds}."
    )


def _show_ending(spec: ExperimentSpec) -> None:
    """Explains that steps and time left are upper limits, if the experiment ends by itself."""
    if spec.kind.ends_by_width:
        exact = format_share(spec.speed.target_width)
        st.caption(
            f"The experiment ends once every speedup is known to within {exact}: steps and time "
            "shown here are upper limits."
        )


def _took(store: Store, experiment_id: str) -> list[Markdown]:
    """How the experiment spent its time; empty if no run started."""
    phases, _ = elapsed(store, experiment_id)
    return [words.spent(sum(phases.values()), phases)] if phases else []


_notice = st.components.v2.component(
    "notice",
    html='<button class="notice" type="button" hidden></button>',
    js=Path(__file__).with_name("notice.js").read_text(),
    isolate_styles=False,
)


def _offer_notice(experiment: pd.Series) -> None:
    """A button while the experiment runs; afterwards a silent notification with the outcome if the
    reader pressed it. Browsers allow notifications only from this machine and over https; elsewhere
    there is no button."""
    state = ExperimentState(experiment["state"])
    data = {"experiment": str(experiment["experiment_id"]), "over": not state.is_active,
            "title": experiment["name"], "body": words.STATES[state][0]}  # fmt: skip
    _notice(key=f"notice-{experiment['experiment_id']}", data=data)
