"""Pages of the scenarios `train`, `speed` and `tune`, which compare runs with a baseline."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from breakeven.runner.protocol.states import ExperimentState
from breakeven.runner.specs.candidates import untried
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.measuring_warnings import CandidatesEnded
from breakeven.storage.comparison.plan import Plan, own_plan
from breakeven.storage.comparison.results import Across, Comparison, Result
from breakeven.storage.comparison.run_warnings import EndedEarly
from breakeven.storage.comparison.warnings import ComparisonWarning
from breakeven.storage.compiling.ladder import find_ladder
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.profile.explanation import explain
from breakeven.storage.profile.recorded_profiles import by_run
from breakeven.storage.words.compiler_advice import warning_words
from breakeven.storage.words.compiling import findings
from breakeven.storage.words.environments import (
    compile_words,
    environment_lines,
    environment_sentences,
    memory_words,
    speed_words,
    version_words,
)
from breakeven.storage.words.parity import learning_words, parity_text, parity_words
from breakeven.views.comparison import (
    cards,
    finishing,
    headline,
    leaderboard,
    related_experiments,
    running,
    why,
)
from breakeven.views.comparison.cards import all_cards
from breakeven.views.comparison.compiler_stages import ladder_cards
from breakeven.views.comparison.first_screen import (
    cards_html,
    read_plan,
    show_answer,
    show_first_screen,
)
from breakeven.views.comparison.statistics_table import (
    show_statistics,
    statistics,
    statistics_table,
)
from breakeven.views.parts.actions import errors_shown
from breakeven.views.parts.downloads import show_table, table_downloads
from breakeven.views.scenarios.base import Page, Scenario, Show, Table
from breakeven.views.scenarios.shared_tabs import show_settings
from breakeven.views.shared.definition_links import linked, sentence
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.resources import among_readers, keeping_up
from breakeven.views.tabs import run, steps

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
        if finishing.what_still_runs(store, experiment_id):
            st.fragment(show_answer_so_far, run_every=again)(store, experiment)
            running.show_runs_again(store, experiment_id)
        else:
            running.show(store, experiment)
            st.fragment(show_verdict_so_far, run_every=again)(store, experiment_id)
        return
    planned = read_plan(comparison)
    show_answer(store, experiment, comparison, planned)
    show_environments(comparison)
    running.show_failures(store, experiment_id)
    related_experiments.offer(store, comparison)
    related_experiments.show_search(store, comparison)
    show_first_screen(store, comparison, planned)
    show_warnings(comparison, planned)
    if not comparison.spec.kind.has_candidates:  # Cards say why candidates ended.
        running.show_stops(store, experiment_id)


def show_answer_so_far(store: Store, experiment: pd.Series) -> None:
    """The answer as the finished trainings have it, without what waits for the experiment's end."""
    with keeping_up(store):
        comparison = compare(store, str(experiment["experiment_id"]))
    planned = read_plan(comparison)
    show_answer(store, experiment, comparison, planned)
    show_environments(comparison)
    show_first_screen(store, comparison, planned)
    show_warnings(comparison, planned)


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
    st.markdown(f"**{headline.headline(comparison, planned)}**")
    if behind := headline.evidence(comparison, planned):
        st.markdown(behind)
    st.html(cards_html(comparison, planned))
    show_warnings(comparison, planned)


def show_warnings(comparison: Comparison, planned: Plan) -> None:
    """Noise, and everything that a reader must know before believing the verdicts."""
    minor = " ".join(
        sentence(warning_words(warning))
        for warning in comparison.minor_warnings
        if not isinstance(warning, CandidatesEnded)
    )
    if comparison.spec.kind.has_candidates:
        minor = f"{minor} {inert(untried(comparison.spec))}"
    st.caption("  \n".join(filter(None, [headline.noise_text(comparison), minor])))
    serious = [
        sentence(warning_words(warning))
        for warning in comparison.serious_warnings
        if not _is_failure(warning)
    ]
    texts = [*serious, *headline.parity_reasons(comparison.results, planned)]
    if texts:
        listed = texts if len(texts) == 1 else [f"- {text}" for text in texts]
        st.warning("\n".join(listed), icon=":material/info:")


def _is_failure(warning: ComparisonWarning) -> bool:
    """Whether it tells of failed runs, whose errors stand above."""
    return isinstance(warning, EndedEarly) and warning.state.is_failed


def show_why(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """Shows the parts of a step's time, the cost of each compiler stage, and an issue about it."""
    why.show(store, comparison.experiment_id)
    related_experiments.show_slow_issue(store, comparison)


def show_learning(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """Whether the runs learn the same thing: a sentence for each, charts of losses and evaluations,
    and predictions."""
    for result in comparison.results:
        if result.parity is not None:
            st.markdown(f"**{inert(result.label)}** {sentence(learning_words(result))}")
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
        show_statistics(comparison)
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


def report(store: Store, comparison: Comparison) -> Page:
    """The answer and its evidence, the leaderboard, warnings, and all charts."""
    minor = [sentence(warning_words(warning)) for warning in comparison.minor_warnings]
    serious = [sentence(warning_words(warning)) for warning in comparison.serious_warnings]
    behind = statistics_table(comparison)
    numbers = statistics(comparison).reset_index()
    climbed = find_ladder(store, comparison.experiment_id)
    down = (
        []
        if climbed is None
        else [f"By compiler stage: {sentence(finding)}" for finding in findings(climbed)]
    )
    sure = Table(
        title="Statistics of speed and parity",
        name="behind-verdicts",
        shown=behind,
        numbers=numbers,
    )
    explained, planned = explain(store, comparison.experiment_id), own_plan(comparison)
    reasons = [why.card(explained)] if explained.is_known else []
    beside = environment_sentences(comparison)
    return Page(
        headline=headline.headline(comparison, planned),
        is_bad=headline.is_bad(planned),
        evidence=" ".join([headline.evidence(comparison, planned), *map(inert, beside)]).strip(),
        why=[*why.sentences(explained), *why.missing(explained), *why.finding_texts(explained)],
        leaderboard=leaderboard.html(comparison.results, comparison.spec.kind),
        captions=[
            *map(inert, environment_lines(comparison.across)),
            headline.noise_text(comparison),
            *minor,
            *down,
        ],
        warnings=[*serious, *headline.parity_reasons(comparison.results, planned)],
        tables=[] if behind.empty else [sure],
        cards=[*ladder_cards(climbed), *reasons, *all_cards(store, comparison)],
    )


TABS: dict[str, Show] = {
    "Verdict": show_verdict,
    "Why": show_why,
    "Learning": show_learning,
    "Runs": show_runs,
    "Settings": show_settings,
}
TIMED = Scenario(tabs=TABS, report=report)
