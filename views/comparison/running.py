"""An experiment while it runs: its state, origin and progress at the head of the page, which stays
afterwards; and steps, losses and compilations of its runs as they come.
"""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from breakeven.runner.disk_space import lacks_room
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import ACTIVE_RUNS, FAILED_RUNS, ExperimentState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage import queries
from breakeven.storage.compiling.timeline import phase_times
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import format_share
from breakeven.storage.numbers.metrics import NUMBERS
from breakeven.storage.numbers.sentences import recorded_clause, say
from breakeven.storage.queries.time_use import elapsed
from breakeven.storage.result_caches import memo
from breakeven.storage.words.candidate_settings import setting_words
from breakeven.storage.words.known_causes import KnownCause, known_causes, remedy_text
from breakeven.views.charts import losses as loss_charts
from breakeven.views.charts import over_steps as step_charts
from breakeven.views.charts.over_steps import mark_resumptions
from breakeven.views.comparison import finishing, related_experiments
from breakeven.views.parts import progress
from breakeven.views.parts.actions import again_link
from breakeven.views.parts.downloads import Card, show_card
from breakeven.views.parts.pictures import experiment_origin, files_of
from breakeven.views.parts.progress import earlier_of, usual_compile_seconds
from breakeven.views.shared import words
from breakeven.views.shared.address import write_address
from breakeven.views.shared.definition_links import linked, sentence
from breakeven.views.shared.inert import Markdown, code, inert
from breakeven.views.shared.resources import among_readers, ingest_or_warn, keeping_up

RUNS_SECONDS, RUNS_AT_MOST = 0.35, 0.5
"""Seconds between two readings of an active experiment's runs: usually, and with many readers."""
REST_SECONDS, REST_AT_MOST = 4.0, 12.0
"""The same for parts that take longer to draw for each reader, such as the losses. Their data
change as often as `keeping_up` allows."""


def show(store: Store, experiment: pd.Series) -> None:
    """Shows two parts of an active experiment, which are redrawn by themselves."""
    for part, seconds, at_most in (
        (show_runs, RUNS_SECONDS, RUNS_AT_MOST),
        (show_rest, REST_SECONDS, REST_AT_MOST),
    ):
        redraw_seconds = among_readers(seconds, at_most)
        st.fragment(part, run_every=redraw_seconds)(store, str(experiment["experiment_id"]))


def show_runs_again(store: Store, experiment_id: str) -> None:
    """One line per run, redrawn by itself."""
    redraw_seconds = among_readers(RUNS_SECONDS, RUNS_AT_MOST)
    st.fragment(show_runs, run_every=redraw_seconds)(store, experiment_id)


def show_rest(store: Store, experiment_id: str) -> None:
    with keeping_up(store):
        experiments = queries.list_experiments(store)
        experiment = experiments.set_index("experiment_id", drop=False).loc[experiment_id]
        is_active = ExperimentState(experiment["state"]).is_active
        show_device(store, experiment_id, is_active)
        show_failures(store, experiment_id)
        show_stops(store, experiment_id)
        until = time.time() // REST_SECONDS * REST_SECONDS if is_active else None
        losses, activities = st.columns([3, 2])  # Both are on the first screen.
        with files_of(experiment_origin(store, experiment)):
            with losses:
                show_race(store, experiment_id, is_active)
            with activities:
                for card in time_axis(store, experiment_id, until):
                    show_card(card)
        show_compiling(store, experiment_id)


def show_runs(store: Store, experiment_id: str) -> None:
    """One line per run: its activity, its progress, its loss and speed."""
    runs = queries.latest_runs(store, experiment_id)
    usual = usual_compile_seconds(store, experiment_id, runs)
    spec = queries.experiment_spec(store, experiment_id)
    if not spec.kind.has_planned_steps:
        runs = runs.assign(num_steps=0)
    with st.container(border=True):
        st.html(
            progress.runs_html(
                runs,
                usual,
                pd.Timestamp.now(tz="UTC"),
                has_steps=not spec.kind.has_checks,
                about={arm.label: setting_words(arm) for arm in spec.candidates},
            )
        )


def show_compiling(store: Store, experiment_id: str) -> None:
    """The time of each compile phase, compared with an earlier experiment's."""
    runs = queries.list_runs(store, experiment_id)
    times = phase_times(store, experiment_id, runs, earlier_of(store, experiment_id))
    if times:
        with st.container(border=True):
            st.html(progress.compiling_html(times, pd.Timestamp.now(tz="UTC")))


def show_device(store: Store, experiment_id: str, active: bool) -> None:
    """The state of the device and its other users, while the experiment is active."""
    sentences = progress.while_running(
        queries.latest_device_samples(store, experiment_id, progress.LATEST),
        on_cpu=queries.experiment_spec(store, experiment_id).device == "cpu",
    )
    if active and sentences:
        st.caption(f":material/memory: {sentences}")


def show_failures(store: Store, experiment_id: str) -> None:
    """Why runs did not finish. In most searches some candidates fail, so their messages are folded
    away: else they would cover the answer."""
    runs = queries.run_states(store, experiment_id)
    failed = runs[runs["state"].isin(FAILED_RUNS)]
    is_search = queries.experiment_spec(store, experiment_id).kind.has_candidates
    if is_search and len(failed) and (failed["role"] == "backend").all():
        title = f"{words.plural(len(failed), 'candidate')} failed: why"
        with st.expander(title, icon=":material/error:", key="failed-candidates"):
            _show_reasons(store, experiment_id, runs, failed)
    else:
        _show_reasons(store, experiment_id, runs, failed)
    others = [
        known_cause
        for known_cause in known_causes(store, experiment_id)
        if known_cause.label not in set(failed["label"])
    ]
    show_causes(experiment_id, others)


def _show_reasons(
    store: Store, experiment_id: str, runs: pd.DataFrame, failed: pd.DataFrame
) -> None:
    """One message for each reason, and a link to the first run."""
    records = [queries.run_record(store, run_id) for run_id in failed["run_id"]]
    reasons = [words.why_ended(record.reason, record.error) for record in records]
    causes = known_causes(store, experiment_id)
    for reason, group in failed.groupby(pd.Series(reasons, index=failed.index), sort=False):
        st.error(
            f"**{inert(', '.join(group['label']))}**: {inert(reason)}", icon=":material/error:"
        )
        show_causes(
            experiment_id,
            [known_cause for known_cause in causes if known_cause.label in set(group["label"])],
        )
        run_id = str(group["run_id"].iloc[0])
        with st.container(horizontal=True):
            st.button(
                "What happened",
                icon=":material/troubleshoot:",
                type="tertiary",
                key=f"happened-{run_id}",
                on_click=write_address,
                kwargs={"run": run_id, "tab": "Runs"},
            )
            if not runs["state"].isin(ACTIVE_RUNS).any():
                related_experiments.show_buttons(store, run_id)


def show_causes(experiment_id: str, causes: Sequence[KnownCause]) -> None:
    """Shows each cause once, and a link to Launch for each remedy."""
    for text in dict.fromkeys(known_cause.words for known_cause in causes):
        st.markdown(inert(text))
    remedies = {
        remedy_text(remedy): remedy for known_cause in causes for remedy in known_cause.remedies
    }
    for text, remedy in remedies.items():
        again_link(experiment_id, f"Try {code(text)}", dict(remedy.fields))


def show_stops(store: Store, experiment_id: str) -> None:
    """Shows the runs that stopped early by their own rules, with the reasons."""
    stops = queries.stops(store, experiment_id)
    for (step, reason), group in stops.groupby(["step", "reason"], sort=False, dropna=False):
        labels = inert(", ".join(group["label"]))
        steps = linked("num_steps", words.plural(step, "step"))
        text = reason if isinstance(reason, str) else "no reason was recorded"
        why = sentence(say(recorded_clause(text)))
        st.caption(f":material/front_hand: **{labels}** stopped early after {steps}: {why}")


def show_race(store: Store, experiment_id: str, active: bool) -> None:
    """The losses so far; for forward passes, which have no loss, the step times."""
    card = race(store, experiment_id, active)
    if card is not None:
        show_card(card)
    elif active and queries.experiment_spec(store, experiment_id).kind.has_speedups:
        st.caption("The losses appear here as soon as the first block of steps is done.")


@memo(queries.revision)
def time_axis(store: Store, experiment_id: str, until: float | None = None) -> list[Card]:
    """The activities of all runs on one axis of time; empty before the first run has begun.
    `until`: see `storage.queries.activities`; about now for an active experiment."""
    activities = queries.activities(store, experiment_id, until)
    if activities.empty:
        return []
    draw = partial(step_charts.activities, activities)
    return [Card("What each run does when", draw, activities, "activities", ["elapsed_seconds"])]


@memo(queries.revision)
def race(store: Store, experiment_id: str, active: bool) -> Card | None:
    """The chart, drawn once for all readers until new rows arrive; None without a step."""
    losses = queries.losses(store, experiment_id)
    steps = queries.step_times(store, experiment_id) if losses.empty else losses
    if steps.empty:
        return None
    resumptions = queries.resumptions(store, experiment_id)
    name = "step_seconds" if losses.empty else "loss"

    def draw() -> go.Figure:
        figure = step_charts.step_series(steps) if losses.empty else loss_charts.losses(losses)
        return mark_resumptions(figure, resumptions)

    def by_time() -> go.Figure:
        timed = every_step()
        timed["cumulative_seconds"] = timed.groupby("label")["seconds"].cumsum()
        times = timed[["label", "step", "cumulative_seconds"]]
        over = "cumulative_seconds"
        return loss_charts.losses(losses.merge(times, on=["label", "step"]), None, timed, over)

    def every_step() -> pd.DataFrame:
        return queries.step_times(store, experiment_id)

    figures = draw if losses.empty else {"By step": draw, "By time": by_time}
    title = f"{NUMBERS[name].title} so far" if active else NUMBERS[name].title
    numbers = [name, "cumulative_seconds"]
    return Card(inert(title), figures, every_step, name="race", numbers=numbers)


STOPPING = "stopping"
STATE_SECONDS, STATE_AT_MOST = 2.0, 5.0
"""Seconds between two readings of an active experiment's state: usually, and with many readers."""


def show_head(store: Store, experiment: pd.Series) -> None:
    """Shows state and origin; the progress of an active experiment is redrawn by itself."""
    experiment_id = str(experiment["experiment_id"])
    if ExperimentState(experiment["state"]).is_active:
        redraw_seconds = among_readers(STATE_SECONDS, STATE_AT_MOST)
        has_verdict = bool(finishing.what_still_runs(store, experiment_id))
        st.fragment(_show_active, run_every=redraw_seconds)(store, experiment_id, has_verdict)
        return
    with st.container(horizontal=True, vertical_alignment="center", key="head"):
        words.state_badge(experiment["state"])
        facts: list[Markdown] = [
            words.provenance(experiment),
            *_time_spent(store, experiment_id),
        ]
        st.caption(" · ".join(facts), width="stretch")
        _offer_notice(experiment)


def _show_active(store: Store, experiment_id: str, has_verdict: bool) -> None:
    """Progress and time; `has_verdict`: whether the page below shows the verdict so far."""
    before = queries.list_runs(store, experiment_id)
    # Else the time would run on until the next reading, and jump back then.
    if any(
        RunDir(Path(folder)).is_recorded
        for folder in before.loc[before["state"].isin(ACTIVE_RUNS), "folder"]
    ):
        ingest_or_warn(store.ingest)
    listed = queries.list_experiments(store).set_index("experiment_id", drop=False)
    experiment = listed.loc[experiment_id]
    if not ExperimentState(experiment["state"]).is_active:
        st.rerun()  # The experiment has ended: the whole page is drawn again, with the verdict.
    rest = finishing.what_still_runs(store, experiment_id)
    if bool(rest) != has_verdict:
        st.rerun()
    runs = queries.list_runs(store, experiment_id)
    with st.container(horizontal=True, vertical_alignment="center", key="head"):
        stops = any(map(words.is_stopping, runs.itertuples()))
        words.state_badge(STOPPING if stops else experiment["state"])
        st.caption(words.provenance(experiment), width="stretch")
        _offer_notice(experiment)
    lack = lacks_room(store.data_dir.runs)
    if lack:
        st.warning(f"Waits for disk space: {inert(lack)}", icon=":material/hard_drive:")
    if rest:
        st.info(rest, icon=":material/hourglass_bottom:")
    done = progress.progress(store, experiment_id, runs)
    if done is None:
        st.progress(0.0, text="waiting in the queue")
    else:
        so_far = words.spent(done.elapsed, done.phases, " so far")
        st.progress(done.share, text=words.elapsed_and_remaining(runs, so_far, done.left))
    _show_ending(queries.experiment_spec(store, experiment_id))


def _show_ending(spec: ExperimentSpec) -> None:
    """Explains when the experiment ends, if it ends by itself."""
    if spec.kind.has_candidates:
        st.caption(
            "The search tries a few candidates at a time and ends slow ones early. It stops when "
            "no candidate is left or its time is over; then the best candidates are trained from "
            "the beginning."
        )
    if spec.kind.ends_by_width:
        exact = format_share(spec.speed.target_width)
        st.caption(
            f"The experiment ends once every speedup is known to within {exact}: steps and time "
            "shown here are upper limits."
        )


def _time_spent(store: Store, experiment_id: str) -> list[Markdown]:
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
    data = {
        "experiment": str(experiment["experiment_id"]),
        "over": not state.is_active,
        "title": experiment["name"],
        "body": words.STATES[state][0],
    }
    _notice(key=f"notice-{experiment['experiment_id']}", data=data)
