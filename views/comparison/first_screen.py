"""The first screen of a verdict: the answer with the plan and the next step, the break-even chart,
and a card for each backend."""

import math
from argparse import ArgumentTypeError
from pathlib import Path
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from breakeven.runner.arguments.lengths import LENGTHS, read_length, write_length
from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments.continuing import (
    USUAL_SECONDS,
    check_can_continue,
    continue_experiment,
    plan_of,
)
from breakeven.runner.experiments.queue import Experiment, find_experiment
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import ExperimentState, RunState
from breakeven.runner.settings import read_settings
from breakeven.runner.specs.arms import words_of_arm
from breakeven.runner.texts import capital
from breakeven.storage import queries
from breakeven.storage.comparison.measuring_warnings import CandidatesEnded
from breakeven.storage.comparison.plan import (
    Plan,
    UnknownLength,
    in_starts,
    own_plan,
    own_steps,
    plan,
    steps_of,
)
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.numbers.metrics import METRICS, NUMBERS
from breakeven.storage.profile.findings import arm_of
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.words.answer_sentence import plan_costs, plan_doubts, total_words
from breakeven.storage.words.candidate_settings import setting_words
from breakeven.storage.words.recipe import FURTHER, how_to_use
from breakeven.views.access import permissions
from breakeven.views.charts.palette import Look, run_looks, run_mark
from breakeven.views.comparison import headline, leaderboard
from breakeven.views.comparison.cards import verdict_cards
from breakeven.views.parts.actions import EXPERIMENT, errors_shown, work_off_the_queue
from breakeven.views.parts.downloads import show_card
from breakeven.views.shared import words
from breakeven.views.shared.address import bound, value
from breakeven.views.shared.definition_links import anchor_html, linked, sentence
from breakeven.views.shared.inert import Html, inert
from breakeven.views.shared.resources import data_dir


def show_answer(store: Store, experiment: pd.Series, comparison: Comparison, planned: Plan) -> None:
    """The answer, its reason, the planned length with the total, and the next step; energy, costs
    and other lengths are folded away. In red if there is nothing to recommend from."""
    kind = planned.answer.kind if planned.answer else ""
    with st.container(border=True, key=f"answer-{LOOKS.get(kind, 'bad')}", gap="small"):
        st.markdown(f"### {headline.headline(comparison, planned)}")
        doubts = inert(plan_doubts(planned))
        if behind := f"{headline.evidence(comparison, planned)} {doubts}".strip():
            st.markdown(behind)
        if headline.is_bad(planned):  # There is nothing to plan with.
            return
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key="planned"):
            ask_steps(comparison)
            if kind == "not decided" or not _show_use(store, comparison, planned):
                _continue(store, experiment, comparison, planned)
            st.markdown(sentence(total_words(planned)), width="stretch")
        costs = plan_costs(planned, read_settings(store.data_dir.path).prices)
        if costs:
            with st.expander("Energy, costs and other lengths", icon=":material/bolt:"):
                st.markdown(inert(costs))


def _continue(store: Store, experiment: pd.Series, comparison: Comparison, planned: Plan) -> None:
    """Offers to time an undecided experiment further, or says why it cannot be, if the reader may
    act."""
    if ExperimentState(experiment["state"]).is_active:
        return
    may_decide = planned.is_open and (comparison.unsure or comparison.lacks_turns)
    if not may_decide or experiment["origin"] != "local" or not permissions.may_act():
        return
    runs = queries.run_states(store, comparison.experiment_id)
    folders = tuple(RunDir(Path(folder)) for folder in runs["folder"])
    finished = Experiment(
        experiment_id=comparison.experiment_id, spec=comparison.spec, runs=folders
    )
    try:
        check_can_continue(finished)
    except RunnerError as error:
        st.caption(inert(f"{error}."))
        return
    minutes = f"Continue for {USUAL_SECONDS / 60:.0f} minutes"
    if st.button(
        minutes,
        type="primary",
        icon=":material/more_time:",
        key=f"continue-{comparison.experiment_id}",
        help="Starts baseline, controls and backends again, and times them until it is decided "
        "which takes the least time, at most for so long. Losses do not change.",
    ):
        permissions.require_acting()
        with errors_shown():
            again = find_experiment(data_dir(), comparison.experiment_id)
            continue_experiment(again, plan_of(again, USUAL_SECONDS, planned.num_steps))
            work_off_the_queue()
            st.switch_page(EXPERIMENT, query_params={"experiment": comparison.experiment_id})


def _show_use(store: Store, comparison: Comparison, planned: Plan) -> bool:
    """Shows how to train as the plan recommends; returns whether there is something to use."""
    use = how_to_use(store, comparison, planned)
    if use is None:
        return False
    # Colours of syntax are hard to read in the dark theme.
    with st.popover("Use it", icon=":material/content_paste:", type="primary"):
        st.caption(inert(f"{use.intro[:1].upper()}{use.intro[1:]}"))
        if use.diff:
            st.code(use.command, language=None)
            st.caption("The change that this command makes:")
            st.code(use.diff, language=None)
        if use.diff and use.lines:
            st.caption(inert(FURTHER.capitalize()))
        if use.lines:
            st.code(use.lines, language=None)
    return True


LOOKS: dict[str, str] = {
    "use": "good",
    "do not compile": "plain",
    "not decided": "doubtful",
    "": "plain",
}
"""The colour of an answer, by its kind; all others are bad."""
CHART_SHARE, CARDS_SHARE = 3, 2
"""The chart takes 60 % of the width."""


def show_first_screen(store: Store, comparison: Comparison, planned: Plan) -> None:
    """Chart on the left, cards on the right; on a phone the cards come first. Only cards if nothing
    was compiled or nothing worked."""
    num_steps, in_all = planned.num_steps or 0, in_starts(comparison, planned.starts)
    drawn = (
        [] if headline.is_bad(planned) else verdict_cards(store, in_all, in_all.results, num_steps)
    )
    if not drawn:
        st.html(cards_html(comparison, planned))
        return
    with st.container(key="first-screen"):
        chart, cards = st.columns([CHART_SHARE, CARDS_SHARE])
    with chart:
        for card in drawn:
            show_card(card, has_legend=False)
    with cards:
        st.html(cards_html(comparison, planned))


def read_plan(comparison: Comparison) -> Plan:
    """The plan for the length in the address; for any length if this is empty; without one in the
    address for the experiment's own, if it has one."""
    text = value("plan", None)
    try:
        if text:
            length = read_length(text)
            return plan(comparison, steps_of(length, comparison), length.starts)
        if text is not None:
            return plan(comparison, None)
    except (ArgumentTypeError, UnknownLength) as error:
        st.warning(inert(f"{error}. The plan takes the experiment's own length."))
    return own_plan(comparison)


def ask_steps(comparison: Comparison) -> None:
    """Asks for the length of the intended training; the experiment's own number by default."""
    st.markdown("I plan to train", width="content")
    text = st.text_input(
        "Length of the training",
        label_visibility="collapsed",
        width=120 if comparison.spec.plan.starts == 1 else 190,
        placeholder="any number of",
        help=f"For example: {LENGTHS}.",
        **bound("plan", _own_length(comparison)),
    )
    if not text or text.replace(",", "").strip().isdecimal():
        st.markdown(f"{linked('num_steps', 'steps')}.", width="content")


def _own_length(comparison: Comparison) -> str:
    """The experiment's own length, as a person would write it; empty without one."""
    steps, starts = own_steps(comparison), comparison.spec.plan.starts
    if steps is None:
        return ""
    return str(steps) if starts == 1 else write_length(steps, starts)


def cards_html(comparison: Comparison, planned: Plan) -> Html:
    """A card for each backend, the best first, then the baseline."""
    looks = run_looks(result.label for result in comparison.results)
    backends = [result for result in comparison.results if result.role == "backend"]
    by_speed = sorted(
        backends, key=lambda result: -result.speedup.median if result.speedup else 0.0
    )
    best = planned.best and planned.best.label
    shown = sorted(
        by_speed,
        key=lambda result: (result.label != best, planned.totals.get(result.label, math.inf)),
    )
    shown += [result for result in comparison.results if result.role == "baseline"]
    cards = [_card(comparison, result, planned, looks[result.label]) for result in shown]
    others = [
        _run_link(comparison.experiment_id, result, looks[result.label])
        for result in comparison.results
        if result not in shown
    ]
    also = f'<small role="listitem">Also: {", ".join(others)}</small>' if others else ""
    return f'<div class="backend-cards" role="list">{"".join(cards)}{also}</div>'


def _run_link(experiment_id: str, result: Result, look: Look) -> Html:
    """The run's label, which links to everything that the run recorded."""
    address = {"experiment": experiment_id, "tab": "Runs", "run": result.run_id}
    run: Html = inert(urlencode(address))
    mark = run_mark(result.label, look)
    return f'<a class="quiet" target="_self" href="experiment?{run}">{mark}</a>'


def _card(comparison: Comparison, result: Result, planned: Plan, look: Look) -> Html:
    label = _run_link(comparison.experiment_id, result, look)
    is_best = planned.best is not None and planned.best.label == result.label
    has_verdict = result.role == "backend" and result.speed_verdict is not None
    verdict = leaderboard.cell("speed_verdict")(result) if has_verdict else ""
    speed = inert(ratio_text(result.speedup)) if result.speedup and verdict else ""
    names = ["break_even_steps", "peak_memory_bytes", "compile_seconds"]
    values = {name: leaderboard.cell(name)(result) for name in names}
    if planned.totals:
        values = {"planned_seconds": words.duration(planned.totals.get(result.label)), **values}
    if result.is_wrong:  # A dash each.
        values.pop("planned_seconds", None)
        del values["break_even_steps"]
    parity = ""
    if result.role != "backend":
        del values["break_even_steps"], values["compile_seconds"]
    elif not RunState(result.state).is_failed:  # A failed run has this verdict already.
        shown = f"{_title('parity')} {leaderboard.cell('parity')(result)}"
        parity = f'<span class="parity">{shown}</span>'
    is_known = any(value != DASH for value in values.values())
    facts = [_fact(name, value) for name, value in values.items() if is_known]
    best = " best" if is_best else ""
    return (
        f'<div class="backend-card{best}" role="listitem"><div>'
        f"<b>{label}</b>{verdict}<strong>{speed}</strong>{parity}</div>"
        f"{_settings(comparison, result)}<dl>{''.join(facts)}</dl></div>"
    )


def _settings(comparison: Comparison, result: Result) -> Html:
    """A backend with settings, or any candidate of a search, in plain words; and why it ended."""
    spec = comparison.spec
    if result.role != "backend":
        return ""
    arm, backend = arm_of(spec, result.label)
    words = words_of_arm(spec, arm)
    changes = f"<p><code>{inert(words)}</code></p>" if words else ""
    if not (spec.is_of_search or (backend and ":" in backend)):
        return changes
    ended = (
        warning.reasons[result.label]
        for warning in comparison.warnings
        if isinstance(warning, CandidatesEnded) and result.label in warning.reasons
    )
    parts = [
        setting_words(arm),
        *(f"ended: {reason.rstrip('.')}" for reason in ended),
    ]
    return changes + "".join(f"<p>{inert(capital(part))}.</p>" for part in parts if part)


def _fact(name: str, value: Html) -> Html:
    return f"<div><dt>{_title(name)}</dt><dd>{value}</dd></div>"


def _title(name: str) -> Html:
    """The title of a number, which links to its definition."""
    title = METRICS[name].title if name in METRICS else NUMBERS[name].title
    return anchor_html(name, title)
