"""Live: what waits, what races, how far it is. Polls only while something is active."""

from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.sizes import lacks_room
from breakeven.runner.folders.states import (
    ACTIVE_EXPERIMENTS,
    ACTIVE_RUNS,
    FAILED_RUNS,
    ExperimentState,
)
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.estimates.phases import phase_times
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import format_share
from breakeven.storage.numbers.recorded import NUMBERS
from breakeven.storage.queries.timeline import elapsed
from breakeven.views.access import permissions
from breakeven.views.charts import layers as charts
from breakeven.views.charts import run as run_charts
from breakeven.views.charts.marks import mark_resumptions
from breakeven.views.comparison import answers
from breakeven.views.parts import compiling, device_now, run_rows
from breakeven.views.parts.actions import again_link, resume_button, stop_button
from breakeven.views.parts.cards import Card
from breakeven.views.parts.damaged import show_damaged
from breakeven.views.parts.downloads import show_card
from breakeven.views.parts.exports import experiment_origin, files_of
from breakeven.views.parts.notice import offer_notice
from breakeven.views.parts.progress import earlier_of, progress, usual_compile_seconds
from breakeven.views.parts.queue import show_queue
from breakeven.views.shared import words
from breakeven.views.shared.inert import inert
from breakeven.views.shared.links import linked
from breakeven.views.shared.pace import among_readers, keeping_up
from breakeven.views.shared.resources import get_store
from breakeven.views.shared.selection import choose_experiment
from breakeven.views.wall import page as wall

RUNS_SECONDS, RUNS_AT_MOST = 0.35, 0.5
"""How often the runs are looked at while something is active, and with many readers at most."""
STATE_SECONDS, STATE_AT_MOST = 2.0, 5.0
"""The same for how the experiment stands as a whole."""
REST_SECONDS, REST_AT_MOST = 4.0, 12.0
"""The same for what takes longer to draw, the race above all, for each reader anew; it changes as
often as `keeping_up` allows."""
MAX_RACES = 4
"""Charts that are kept for whoever looks at them next."""


def main() -> None:
    store = get_store()
    if wall.is_asked():
        wall.show(store)
        return
    experiments = queries.list_experiments(store)
    active = experiments[experiments["state"].isin(ACTIVE_EXPERIMENTS)]
    show_damaged(store)
    if experiments.empty:
        show_nothing()
        return
    running_first = active.sort_values(["state", "submitted"], ascending=[False, True])
    experiment = choose_experiment("live", experiments, before=list(running_first["experiment_id"]))
    assert experiment is not None
    if active.empty:
        show_nothing()
    experiment_id, polling = str(experiment["experiment_id"]), bool(len(active))
    for show, seconds, at_most in (
        (show_state, STATE_SECONDS, STATE_AT_MOST),
        (show_progress, RUNS_SECONDS, RUNS_AT_MOST),
        (show_rest, REST_SECONDS, REST_AT_MOST),
    ):
        again = among_readers(seconds, at_most) if polling else None
        st.fragment(show, run_every=again)(store, experiment_id, polling)


def show_nothing() -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        if not permissions.may_act():
            st.markdown("**Nothing is running.** What is started shows here.", width="content")
            return
        st.markdown("**Nothing is running.** Start an experiment and watch its runs race here.",
                    width="content")  # fmt: skip
        st.page_link("views/launch.py", label="Launch", icon=":material/rocket_launch:")


def show_state(store: Store, experiment_id: str, polling: bool) -> None:
    """The first of three parts that draw themselves anew while something is active."""
    experiments = queries.list_experiments(store)
    if polling and not experiments["state"].isin(ACTIVE_EXPERIMENTS).any():
        st.rerun()  # Everything has ended: draw the page once more, without polling.
    experiment = experiments.set_index("experiment_id", drop=False).loc[experiment_id]
    show_summary(store, experiment, queries.list_runs(store, experiment_id))


def show_progress(store: Store, experiment_id: str, polling: bool) -> None:
    runs, needs_tick = queries.latest_runs(store, experiment_id)
    if needs_tick:
        with keeping_up(store, at_once=True):
            runs, _ = queries.latest_runs(store, experiment_id)
    show_runs(store, experiment_id, runs)


def show_rest(store: Store, experiment_id: str, polling: bool) -> None:
    with keeping_up(store):
        show_changing(store, experiment_id)


def show_changing(store: Store, experiment_id: str) -> None:
    """What takes long to draw, and is drawn so seldom that it takes a small part of a core."""
    experiments = queries.list_experiments(store)
    experiment = experiments.set_index("experiment_id", drop=False).loc[experiment_id]
    is_active = ExperimentState(experiment["state"]).is_active
    if is_active:
        show_compiling(store, experiment_id)
    show_device(store, experiment_id, is_active)
    show_failures(store, experiment_id, queries.list_runs(store, experiment_id))
    show_stops(store, experiment_id)
    with files_of(experiment_origin(store, experiment)):
        show_race(store, experiment_id, is_active)
    show_queue(experiments[experiments["state"].isin(ACTIVE_EXPERIMENTS)], experiment_id)


def show_summary(store: Store, experiment: pd.Series, runs: pd.DataFrame) -> None:
    experiment_id = str(experiment["experiment_id"])
    with st.container(horizontal=True, vertical_alignment="center"):
        words.state_badge(experiment["state"])
        what = words.workload(experiment["model"], experiment["data"])
        st.markdown(f"{what}, {inert(experiment['device'])}")
        if is_stopping(runs):
            st.caption("stopping …", width="content")
        elif ExperimentState(experiment["state"]).is_active:
            stop_button(experiment_id)
        else:
            st.page_link(
                "views/compare.py", label="See the comparison", icon=":material/leaderboard:",
                query_params={"experiment": experiment_id},
            )  # fmt: skip
            resume_button(experiment, runs)
            again_link(experiment_id)
        state = ExperimentState(experiment["state"])
        st.page_link("views/live.py", label="Wall", icon=":material/desktop_windows:",
                     query_params={wall.PARAMETER: "1"},
                     help="All devices, large, for a screen that others watch.")  # fmt: skip
        offer_notice(experiment_id, experiment["name"], words.STATES[state][0],
                     over=not state.is_active)  # fmt: skip
    if ExperimentState(experiment["state"]).is_active:
        lack = lacks_room(store.data_dir.runs)
        if lack:
            st.warning(f"Waits for disk space: {inert(lack)}", icon=":material/hard_drive:")
        done = progress(store, experiment_id, runs)
        if done is None:
            st.progress(0.0, text="waiting in the queue")
        else:
            so_far = words.spent(done.elapsed, done.phases, " so far")
            st.progress(done.share, text=words.outlook(runs, so_far, done.left))
        show_ending(queries.experiment_spec(store, experiment_id))
    else:
        show_answer(store, experiment_id, runs)


def show_answer(store: Store, experiment_id: str, runs: pd.DataFrame) -> None:
    """What came out, where somebody has waited for it, and what the time went on."""
    comparison = compare(store, experiment_id)
    if comparison.spec.kind.compares == "runs":
        st.markdown(f"### {answers.headline(comparison)}")
    ended = runs["ended"].max()
    if pd.notna(ended) and runs["started"].notna().any():
        took = max(0.0, (ended - runs["started"].min()).total_seconds())
        phases, _ = elapsed(store, experiment_id)
        st.caption(f"It took {words.spent(took, phases)}.")


def show_ending(spec: ExperimentSpec) -> None:
    """That steps and time left are the most it can take, where measuring ends by itself."""
    if spec.kind.ends_by_width:
        exact = format_share(spec.speed.target_width)
        st.caption(
            f"Ends by itself once every speedup is known to within {exact}: what is shown of steps "
            "and time is the most that it takes."
        )


def is_stopping(runs: pd.DataFrame) -> bool:
    """Whether a run was asked to stop and is still at it: while it compiles that takes a while."""
    active = runs[runs["state"].isin(ACTIVE_RUNS)]
    return any(RunDir(Path(folder)).cancel_requested for folder in active["folder"])


def show_runs(store: Store, experiment_id: str, runs: pd.DataFrame) -> None:
    """One line per run: what it does, how far it is, its loss and speed."""
    usual = usual_compile_seconds(store, experiment_id, runs)
    with st.container(border=True):
        st.html(run_rows.html(runs, usual, pd.Timestamp.now(tz="UTC")))


def show_compiling(store: Store, experiment_id: str) -> None:
    """What each phase of compiling takes, beside what it took last time."""
    runs = queries.list_runs(store, experiment_id)
    found = phase_times(store, experiment_id, runs, earlier_of(store, experiment_id))
    if found:
        with st.container(border=True):
            st.html(compiling.html(found, pd.Timestamp.now(tz="UTC")))


def show_device(store: Store, experiment_id: str, active: bool) -> None:
    """How the device is and who else uses it, while there is time to do something about it."""
    said = device_now.while_running(
        queries.latest_device_samples(store, experiment_id, device_now.LATEST),
        on_cpu=queries.experiment_spec(store, experiment_id).device == "cpu",
    )
    if active and said:
        st.caption(f":material/memory: {said}")


def show_failures(store: Store, experiment_id: str, runs: pd.DataFrame) -> None:
    """Why runs did not finish, said once where several failed alike, with a link to the first."""
    failed = runs[runs["state"].isin(FAILED_RUNS)]
    records = [queries.run_record(store, run_id) for run_id in failed["run_id"]]
    reasons = [words.why_ended(record.reason, record.error) for record in records]
    for reason, group in failed.groupby(pd.Series(reasons, index=failed.index), sort=False):
        st.error(
            f"**{inert(', '.join(group['label']))}**: {inert(reason)}", icon=":material/error:"
        )
        st.page_link(
            "views/run.py", label="What happened", icon=":material/troubleshoot:",
            query_params={"experiment": experiment_id, "run": group["run_id"].iloc[0]},
        )  # fmt: skip


def show_stops(store: Store, experiment_id: str) -> None:
    """Which runs ended by rules of their own before their last step, and why."""
    stops = queries.stops(store, experiment_id)
    for (step, reason), group in stops.groupby(["step", "reason"], sort=False, dropna=False):
        who = inert(", ".join(group["label"]))
        steps = linked("num_steps", words.plural(step, "step"))
        st.caption(f":material/front_hand: **{who}** stopped early after {steps}: {inert(reason)}")


def show_race(store: Store, experiment_id: str, active: bool) -> None:
    """The losses so far; of forward passes, which have none, the times of the steps."""
    card = race(store, experiment_id, active)
    if card is not None:
        show_card(card)
    elif active:
        st.caption("The losses appear here as soon as the first block of steps is done.")


def race(store: Store, experiment_id: str, active: bool) -> Card | None:
    """The chart, which is drawn once for all readers until something new arrives; None without a
    step."""
    key = (queries.revision(store, experiment_id), active)
    known = _races.get((store, experiment_id))
    if known is None or known[0] != key:
        known = _races[store, experiment_id] = (key, _race(store, experiment_id, active))
        for oldest in list(_races)[:-MAX_RACES]:
            _races.pop(oldest, None)
    return known[1]


_races: dict[tuple[Store, str], tuple[object, Card | None]] = {}


def _race(store: Store, experiment_id: str, active: bool) -> Card | None:
    losses = queries.losses(store, experiment_id)
    steps = queries.step_times(store, experiment_id) if losses.empty else losses
    if steps.empty:
        return None
    resumptions = queries.resumptions(store, experiment_id)
    name = "step_seconds" if losses.empty else "loss"

    def draw() -> go.Figure:
        figure = run_charts.step_series(steps) if losses.empty else charts.losses(losses)
        return mark_resumptions(figure, resumptions)

    def by_time() -> go.Figure:
        timed = every_step()
        timed["cumulative_seconds"] = timed.groupby("label")["seconds"].cumsum()
        times = timed[["label", "step", "cumulative_seconds"]]
        over = "cumulative_seconds"
        return charts.losses(losses.merge(times, on=["label", "step"]), None, timed, over)

    def every_step() -> pd.DataFrame:
        return queries.step_times(store, experiment_id)

    figures = draw if losses.empty else {"By step": draw, "By time": by_time}
    title = f"{NUMBERS[name].title} so far" if active else NUMBERS[name].title
    numbers = [name, "cumulative_seconds"]
    return Card(inert(title), figures, every_step, name="race", numbers=numbers)


main()
