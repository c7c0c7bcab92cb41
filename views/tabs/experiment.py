"""The tabs of an experiment's page, for each kind of comparison.

The first screen of a verdict has the plan, the break-even chart, a card for each backend, and a
button for further rounds where speeds are inconclusive.
"""

import math
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from breakeven.runner.arguments.lengths import LENGTHS, read_length
from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.added_rounds import add_rounds, refuse_rounds
from breakeven.runner.folders.queue import Experiment, find_experiment
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import ExperimentState, RunState
from breakeven.runner.settings import read_settings
from breakeven.runner.specs.candidates import untried
from breakeven.runner.specs.scenario_fields import MAX_REPEATS, AddedRounds
from breakeven.runner.specs.scenarios.scenario import Compared
from breakeven.runner.texts import capital
from breakeven.storage import queries
from breakeven.storage.comparison.caution import Caution
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.plan import (
    Plan,
    UnknownLength,
    own_plan,
    own_steps,
    plan,
    steps_of,
)
from breakeven.storage.comparison.results import Across, Comparison, Result
from breakeven.storage.compiling.ladder import find_ladder
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.numbers.metrics import METRICS, NUMBERS
from breakeven.storage.profile.findings import variant_of
from breakeven.storage.profile.profiles import by_run
from breakeven.storage.queries.timeline import elapsed
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.words.caches import starts_words
from breakeven.storage.words.environments import (
    compile_words,
    environment_sentences,
    memory_words,
    speed_words,
    version_words,
)
from breakeven.storage.words.parity import parity_text, parity_words
from breakeven.storage.words.plan import plan_details
from breakeven.storage.words.recipe import FURTHER, how_to_use
from breakeven.storage.words.settings import setting_words
from breakeven.storage.words.warnings import caution_words
from breakeven.views.access import permissions
from breakeven.views.charts.palette import Look, run_looks, run_mark
from breakeven.views.comparison import (
    answers,
    cards,
    cause,
    finishing,
    leaderboard,
    running,
    scenarios,
    why,
)
from breakeven.views.comparison.cards import verdict_cards
from breakeven.views.parts import exchange
from breakeven.views.parts.actions import EXPERIMENT, errors_shown, show_command, work_off_the_queue
from breakeven.views.parts.downloads import show_card, show_table, table_downloads
from breakeven.views.shared import words
from breakeven.views.shared.address import bound, value
from breakeven.views.shared.inert import Html, Markdown, inert
from breakeven.views.shared.links import anchor_html, linked, sentence
from breakeven.views.shared.resources import among_readers, data_dir, keeping_up
from breakeven.views.tabs import run, steps

MOST_MINUTES = 60
ROUNDS_OFFERED = 40
"""Rounds of each process for which the offered minutes suffice."""


def add_rounds_button(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """Offers further rounds of the backends whose speed they may decide, or says why none can be
    added, if the reader may act."""
    labels = comparison.unsure
    if ExperimentState(experiment["state"]).is_active:
        return
    if (
        not (labels or comparison.lacks_turns)
        or experiment["origin"] != "local"
        or not permissions.may_act()
    ):
        return
    runs = queries.run_states(store, comparison.experiment_id)
    folders = tuple(RunDir(Path(folder)) for folder in runs["folder"])
    try:
        refuse_rounds(
            Experiment(experiment_id=comparison.experiment_id, spec=comparison.spec, runs=folders)
        )
    except RunnerError as error:
        st.caption(inert(f"Add rounds: {error}."))
        return
    a_round = seconds_of_a_round(store, comparison, labels)
    defaults = AddedRounds()
    with st.popover("Add rounds", icon=":material/more_time:"):
        st.markdown(outlook(store, comparison, labels, a_round))
        processes = st.number_input(
            "Processes of each run", 1, MAX_REPEATS, defaults.processes, key="added-processes"
        )
        width = st.number_input(
            "A process ends when intervals are narrower than (%)",
            0.1,
            100.0,
            100 * defaults.target_width,
            format="%.2g",
        )
        seconds = ROUNDS_OFFERED * defaults.processes * a_round
        offered = min(MOST_MINUTES, max(1, math.ceil(seconds / 60)))
        minutes = st.number_input(
            "Minutes of steps at most", 1, MOST_MINUTES, offered, key="added-minutes"
        )
        if st.button("Add rounds", type="primary", key=f"add-rounds-{comparison.experiment_id}"):
            permissions.require_acting()
            with errors_shown():
                rounds = AddedRounds(
                    processes=processes, target_width=width / 100, max_seconds=60.0 * minutes
                )
                add_rounds(find_experiment(data_dir(), comparison.experiment_id), labels, rounds)
                work_off_the_queue()
                st.switch_page(EXPERIMENT, query_params={"experiment": comparison.experiment_id})


def seconds_of_a_round(store: Store, comparison: Comparison, labels: list[str]) -> float:
    """Seconds of steps in a round of the runs that are timed further."""
    timed = [
        result.label
        for result in comparison.results
        if result.role != "backend" or result.label in labels
    ]
    members = {run for label in timed for run in comparison.spec.repeats_by_label[label]}
    blocks = queries.blocks(store, comparison.experiment_id)
    blocks = blocks[blocks["label"].isin(members) & blocks["steady"]]
    return float(blocks.groupby("label", observed=True)["seconds"].median().sum())


def outlook(store: Store, comparison: Comparison, labels: list[str], a_round: float) -> Markdown:
    """The runs that are timed again, the reason, and the time to start them."""
    phases, _ = elapsed(store, comparison.experiment_id)
    again = words.duration(phases.get("loading", 0.0) + phases.get("compiling", 0.0))
    backends = [label for label in labels if comparison.result_of(label).role == "backend"]
    baselines = (
        "the baseline of each environment" if comparison.spec.environments else "the baseline"
    )
    started = f"{inert(', '.join(backends))} and {baselines}" if backends else baselines
    return (
        f"Starts {started} again, one process after the other, "
        "because two processes of the same program differ in speed. Losses do not change. "
        f"A round takes {linked('round', words.duration(a_round))}; loading and compiling take "
        f"about {linked('elapsed_seconds', again)} for each process."
    )


CHART_SHARE, CARDS_SHARE = 3, 2
"""The chart takes 60 % of the width."""


def show_first_screen(
    store: Store, experiment: pd.Series, comparison: Comparison, planned: Plan
) -> None:
    """Plan above, chart on the left, cards on the right; on a phone the cards come first. Only
    cards if nothing was compiled or nothing worked."""
    if answers.is_bad(planned):  # There is nothing to plan with.
        st.html(cards_html(comparison, planned))
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="planned"):
        ask_steps(comparison)
        prices = read_settings(store.data_dir.path).prices
        _show_use(store, comparison, planned)
        st.markdown(inert(plan_details(planned, prices)), width="stretch")
    drawn = verdict_cards(store, comparison, comparison.results, planned.num_steps or 0)
    if not drawn:
        st.html(cards_html(comparison, planned))
        add_rounds_button(store, experiment, comparison)
        return
    with st.container(key="first-screen"):
        chart, cards = st.columns([CHART_SHARE, CARDS_SHARE])
    with chart:
        for card in drawn:
            show_card(card, has_legend=False)
    with cards:
        st.html(cards_html(comparison, planned))
        add_rounds_button(store, experiment, comparison)


def _show_use(store: Store, comparison: Comparison, planned: Plan) -> None:
    """Shows how to train as the plan recommends."""
    use = how_to_use(store, comparison, planned)
    if use is None:
        return
    # Colours of syntax are hard to read in the dark theme.
    with st.popover("Use it", icon=":material/content_paste:"):
        st.caption(inert(f"{use.intro[:1].upper()}{use.intro[1:]}"))
        if use.diff:
            st.code(use.command, language=None)
            st.caption("The change that this command makes:")
            st.code(use.diff, language=None)
        if use.diff and use.lines:
            st.caption(inert(FURTHER.capitalize()))
        if use.lines:
            st.code(use.lines, language=None)


def read_plan(comparison: Comparison) -> Plan:
    """The plan for the length in the address; for any length if this is empty; without one in the
    address for the experiment's own, if it has one."""
    text = value("plan", None)
    try:
        if text is not None:
            return plan(comparison, steps_of(read_length(text), comparison) if text else None)
    except (ArgumentTypeError, UnknownLength) as error:
        st.warning(inert(f"{error}. The plan takes the experiment's own length."))
    return own_plan(comparison)


def ask_steps(comparison: Comparison) -> None:
    """Asks for the length of the intended training; the experiment's own number by default."""
    st.markdown("I plan to train", width="content")
    text = st.text_input(
        "Length of the training",
        label_visibility="collapsed",
        width=120,
        placeholder="any number of",
        help=f"For example: {LENGTHS}.",
        **bound("plan", str(own_steps(comparison) or "")),
    )
    if not text or text.replace(",", "").strip().isdecimal():
        st.markdown(f"{linked('num_steps', 'steps')}.", width="content")


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
    verdict = leaderboard.cell("speed_verdict")(result) if result.role == "backend" else ""
    speed = inert(ratio_text(result.speedup)) if result.speedup and verdict else ""
    names = ["break_even_steps", "peak_memory_bytes", "compile_seconds"]
    values = {name: leaderboard.cell(name)(result) for name in names}
    if planned.totals:
        values = {"planned_seconds": words.duration(planned.totals.get(result.label)), **values}
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
    variant, backend = variant_of(spec, result.label)
    if not (spec.kind.has_candidates or spec.confirms or (backend and ":" in backend)):
        return ""
    ended = (
        note.runs[result.label]
        for note in comparison.notes
        if note.kind == "candidates ended" and result.label in note.runs
    )
    parts = [
        setting_words(variant),
        *(f"ended: {str(note['reason']).rstrip('.')}" for note in ended),
    ]
    return "".join(f"<p>{inert(capital(part))}.</p>" for part in parts if part)


def _fact(name: str, value: Html) -> Html:
    return f"<div><dt>{_title(name)}</dt><dd>{value}</dd></div>"


def _title(name: str) -> Html:
    """The title of a number, which links to its definition."""
    title = METRICS[name].title if name in METRICS else NUMBERS[name].title
    return anchor_html(name, title)


Show: TypeAlias = Callable[[Store, pd.Series, Comparison], None]
NO_STEP = "No step was recorded, so there is nothing to chart."
NO_RUN = "Pick at least one run above to see its charts."
NO_LOSS = "Forward passes train nothing, so there is no loss to chart."
SO_FAR_SECONDS, SO_FAR_AT_MOST = 10.0, 30.0
"""Seconds between two verdicts while runs are active: usually, and with many readers."""


def show_verdict(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """The race while it runs; then the answer, the plan, break-even and a card per backend, also
    while something other than the planned trainings goes on."""
    experiment_id = comparison.experiment_id
    if ExperimentState(experiment["state"]).is_active:
        again = among_readers(SO_FAR_SECONDS, SO_FAR_AT_MOST)
        if finishing.rest(store, experiment_id):
            st.fragment(show_answer_so_far, run_every=again)(store, experiment)
            running.show_runs_again(store, experiment_id)
        else:
            running.show(store, experiment)
            st.fragment(show_verdict_so_far, run_every=again)(store, experiment_id)
        return
    planned = read_plan(comparison)
    show_answer(comparison, planned)
    show_environments(comparison)
    running.show_failures(store, experiment_id)
    cause.offer(store, comparison)
    cause.show_search(store, comparison)
    show_first_screen(store, experiment, comparison, planned)
    show_doubts(comparison)
    if not comparison.spec.kind.has_candidates:  # Cards say why candidates ended.
        running.show_stops(store, experiment_id)


def show_answer_so_far(store: Store, experiment: pd.Series) -> None:
    """The answer as the finished trainings have it, without what waits for the experiment's end."""
    with keeping_up(store):
        comparison = compare(store, str(experiment["experiment_id"]))
    planned = read_plan(comparison)
    st.markdown(f"### {answers.headline(comparison, planned)}")
    show_environments(comparison)
    show_first_screen(store, experiment, comparison, planned)
    show_doubts(comparison)


def show_answer(comparison: Comparison, planned: Plan, *, heading: bool = True) -> None:
    """The answer, in red if there is nothing to recommend from, and the evidence for it."""
    said = answers.headline(comparison, planned)
    with st.container(key="bad-answer" if answers.is_bad(planned) else "answer"):
        st.markdown(f"### {said}" if heading else f"**{said}**")
    if behind := answers.evidence(comparison, planned):
        st.markdown(behind)


def show_environments(comparison: Comparison) -> None:
    """A sentence for each further environment, a table of the runs, and the versions."""
    comparisons = comparison.across
    if not comparisons:
        return
    sentences = environment_sentences(comparison)
    st.markdown("\n\n".join(f"**{inert(text)}**" for text in sentences))
    titles = {
        "speedup": f"Speed over {comparisons[0].first_environment}",
        "compile_seconds": "Compile latency",
        "peak_memory_bytes": "Memory needed",
        "parity": "Parity",
    }
    heads: list[Markdown] = ["Run", *(linked(name, inert(text)) for name, text in titles.items())]
    rows = [heads, ["---"] * len(heads), *map(_environment_row, comparisons)]
    st.markdown("\n".join(f"| {' | '.join(row)} |" for row in rows))
    versions = {across.environment: version_words(across) for across in comparisons}
    st.caption("  \n".join(f"{inert(name)}: {inert(text)}." for name, text in versions.items()))


def _environment_row(across: Across) -> list[Markdown]:
    """Its cells; parity with the reason, unless parity holds."""
    parity = "" if across.parity is None else parity_text(across.parity)
    if across.parity is not None and across.parity.verdict != "holds":
        parity = f"{parity}: {parity_words(across.parity)}"
    cells = [across.label, speed_words(across), compile_words(across), memory_words(across), parity]
    return [inert(cell or DASH) for cell in cells]


def show_verdict_so_far(store: Store, experiment_id: str) -> None:
    """Shows the verdict on request only, because it takes time that the runs need."""
    if not st.toggle("Verdict so far", key="so-far"):
        return
    with keeping_up(store):
        comparison = compare(store, experiment_id)
    planned = own_plan(comparison)
    show_answer(comparison, planned, heading=False)
    st.html(cards_html(comparison, planned))
    show_doubts(comparison)


def show_doubts(comparison: Comparison) -> None:
    """Noise, and everything that a reader must know before believing the verdicts."""
    notes = " ".join(
        sentence(caution_words(note))
        for note in comparison.notes
        if note.kind != "candidates ended"
    )
    if comparison.spec.kind.has_candidates:
        notes = f"{notes} {inert(untried(comparison.spec))}"
    st.caption("  \n".join(filter(None, [answers.noise_text(comparison), notes])))
    warnings = [
        sentence(caution_words(warning))
        for warning in comparison.warnings
        if not _is_failure(warning)
    ]
    doubts = [*warnings, *answers.doubts(comparison.results)]
    if doubts:
        listed = doubts if len(doubts) == 1 else [f"- {doubt}" for doubt in doubts]
        st.warning("\n".join(listed), icon=":material/info:")


def _is_failure(warning: Caution) -> bool:
    """Whether it tells of failed runs, whose errors stand above."""
    return warning.kind == "ended early" and all(
        RunState(facts["state"]).is_failed for facts in warning.runs.values()
    )


def show_why(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """Shows the parts of a step's time, the cost of each compiler stage, and an issue about it."""
    why.show(store, comparison.experiment_id)
    cause.show_slow_issue(store, comparison)


def show_learning(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """Charts of losses and evaluations, and predictions: whether the runs learn the same thing."""
    results = cards.pick(comparison)
    cards.show(cards.learning_cards(store, comparison, results), _why_none(comparison, results))
    if comparison.spec.kind.trains_fully and results:
        with errors_shown():
            steps.show_disagreements(store, comparison, results)


def _why_none(comparison: Comparison, results: Sequence[Result]) -> Markdown:
    """Why there is no chart of learning."""
    if not results:
        return NO_RUN
    return NO_LOSS if comparison.spec.is_inference else NO_STEP


def show_runs(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """All runs in numbers and charts, or one of them with everything that was recorded."""
    runs = queries.list_runs(store, comparison.experiment_id)
    chosen = run.choose(runs)
    if chosen is not None:
        run.show(store, experiment, chosen)
        return
    with st.container(border=True):
        st.html(leaderboard.html(comparison.results, comparison.spec.kind))
        with st.container(horizontal=True):
            table_downloads(comparison.table(), "comparison")
        answers.show_statistics(comparison)
    results = cards.pick(comparison)
    why_none = NO_STEP if results else NO_RUN
    cards.show(cards.speed_cards(store, comparison, results), why_none, side_by_side=True)
    if comparison.spec.num_ranks > 1:
        with st.expander("Several devices", icon=":material/lan:"):
            ranks = by_run(store, comparison.experiment_id)
            show_table("Several devices", ranks, "ranks", cards.NOT_PROFILED)
    meanwhile = [
        *running.time_axis(store, comparison.experiment_id),
        *cards.device_cards(store, comparison, results),
    ]
    if meanwhile:
        with st.expander("What each run did when, and the device", icon=":material/timeline:"):
            cards.show(meanwhile)


def show_one_run(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """Shows one run, in scenarios whose verdict already has the table of all runs."""
    chosen = run.choose(queries.list_runs(store, comparison.experiment_id), all_runs=False)
    assert chosen is not None
    run.show(store, experiment, chosen)


def show_settings(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """How to run the experiment again, its settings, and PyTorch's own formats."""
    st.markdown("**The same experiment without the browser**")
    if comparison.spec.investigates is None:
        show_command(comparison.spec)
    else:
        st.code(f"breakeven investigate {comparison.spec.investigates}", language="bash")
    if comparison.spec.kind.has_speedups:
        exchange.buttons(store, comparison.experiment_id)
        exchange.show_imported(store, comparison.experiment_id)
    baseline = queries.list_runs(store, comparison.experiment_id).iloc[0]
    run.show_environment(store, baseline, queries.run_record(store, baseline["run_id"]))
    with st.expander("Specification of the experiment", icon=":material/data_object:"):
        st.code(comparison.spec.to_json(), language="json", wrap_lines=True)


def show_tensors(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    if ExperimentState(experiment["state"]).is_active:
        running.show(store, experiment)
    scenarios.show_tensors(store, comparison.experiment_id, comparison.spec)
    cause.offer(store, comparison)
    running.show_failures(store, comparison.experiment_id)


def show_cause(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    cause.show(store, experiment, comparison)
    if ExperimentState(experiment["state"]).is_final:
        running.show_failures(store, comparison.experiment_id)


def show_stages(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    why.show_ladder(find_ladder(store, comparison.experiment_id))


def show_caches(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    if ExperimentState(experiment["state"]).is_active:
        running.show(store, experiment)
    if pairs := scenarios.show_caches_headline(store, comparison):
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key="planned"):
            ask_steps(comparison)
            with st.container(gap=None):
                for starts in starts_words(pairs, read_plan(comparison).num_steps):
                    st.markdown(sentence(starts))
        scenarios.show_caches(store, comparison, pairs)
    running.show_failures(store, comparison.experiment_id)


TABS: dict[Compared, Mapping[str, Show]] = {
    "runs": {
        "Verdict": show_verdict,
        "Why": show_why,
        "Learning": show_learning,
        "Runs": show_runs,
        "Settings": show_settings,
    },
    "tensors": {
        "Verdict": show_tensors,
        "Why": show_stages,
        "Runs": show_one_run,
        "Settings": show_settings,
    },
    "causes": {"Cause": show_cause, "Runs": show_one_run, "Settings": show_settings},
    "caches": {"Verdict": show_caches, "Runs": show_one_run, "Settings": show_settings},
}
