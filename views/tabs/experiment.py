"""The tabs of an experiment's page, for each kind of comparison."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import pandas as pd
import streamlit as st

from breakeven.runner.folders.states import ExperimentState
from breakeven.runner.specs.scenarios import Compared
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.environments import Across
from breakeven.storage.comparison.plan import own_plan
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.compiling.ladder import find_ladder
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.terminal.caution_words import caution_words
from breakeven.storage.terminal.environment_words import (
    compile_words,
    environment_sentences,
    memory_words,
    speed_words,
    version_words,
)
from breakeven.storage.terminal.parity_words import parity_text, parity_words
from breakeven.views.comparison import (
    accuracy,
    answers,
    cache,
    cards,
    cause,
    device_panel,
    first_screen,
    ladder,
    leaderboard,
    predictions,
    related,
    running,
    verdicts,
    why,
)
from breakeven.views.parts import exchange
from breakeven.views.parts.actions import show_command
from breakeven.views.parts.downloads import table_downloads
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.links import linked, sentence
from breakeven.views.shared.resources import among_readers, keeping_up
from breakeven.views.tabs import run

Show: TypeAlias = Callable[[Store, pd.Series, Comparison], None]
NO_STEP = "No step was recorded, so there is nothing to chart."
NO_RUN = "Pick at least one run above to see its charts."
NO_LOSS = "Forward passes train nothing, so there is no loss to chart."
SO_FAR_SECONDS, SO_FAR_AT_MOST = 10.0, 30.0
"""Seconds between two verdicts while runs are active: usually, and with many readers."""


def show_verdict(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """The race while it runs; then the answer, the plan, break-even and a card per backend."""
    if ExperimentState(experiment["state"]).is_active:
        running.show(store, experiment)
        again = among_readers(SO_FAR_SECONDS, SO_FAR_AT_MOST)
        st.fragment(show_verdict_so_far, run_every=again)(store, comparison.experiment_id)
        return
    planned = first_screen.read_plan(comparison)
    st.markdown(f"### {answers.headline(comparison, planned)}")
    show_environments(comparison)
    running.show_failures(store, comparison.experiment_id)
    cause.offer(store, comparison)
    related.show_search(store, comparison)
    first_screen.show(store, experiment, comparison, planned)
    show_doubts(comparison)
    related.show(store, comparison)
    running.show_stops(store, comparison.experiment_id)


def show_environments(comparison: Comparison) -> None:
    """A sentence for each further environment, a table of the runs, and the versions."""
    found = comparison.across
    if not found:
        return
    sentences = environment_sentences(found, is_inference=comparison.spec.is_inference)
    st.markdown("\n\n".join(f"**{inert(one)}**" for one in sentences))
    titles = {"speedup": f"Speed over {found[0].first_environment}",
              "compile_seconds": "Compile latency", "peak_memory_bytes": "Memory needed",
              "parity": "Parity"}  # fmt: skip
    heads: list[Markdown] = ["Run", *(linked(name, inert(text)) for name, text in titles.items())]
    rows = [heads, ["---"] * len(heads), *map(_environment_row, found)]
    st.markdown("\n".join(f"| {' | '.join(row)} |" for row in rows))
    versions = {one.environment: version_words(one) for one in found}
    st.caption("  \n".join(f"{inert(name)}: {inert(text)}." for name, text in versions.items()))


def _environment_row(one: Across) -> list[Markdown]:
    """Its cells; parity with the reason, unless parity holds."""
    parity = "" if one.parity is None else parity_text(one.parity)
    if one.parity is not None and one.parity.verdict != "holds":
        parity = f"{parity}: {parity_words(one.parity)}"
    cells = [one.label, speed_words(one), compile_words(one), memory_words(one), parity]
    return [inert(cell or DASH) for cell in cells]


def show_verdict_so_far(store: Store, experiment_id: str) -> None:
    """Shows the verdict on request only, because it takes time that the runs need."""
    if not st.toggle("Verdict so far", key="so-far"):
        return
    with keeping_up(store):
        comparison = compare(store, experiment_id)
    planned = own_plan(comparison)
    st.markdown(f"**{answers.headline(comparison, planned)}**")
    st.html(first_screen.cards_html(comparison, planned))
    show_doubts(comparison)


def show_doubts(comparison: Comparison) -> None:
    """Noise, and everything that a reader must know before believing the verdicts."""
    notes = " ".join(sentence(caution_words(note)) for note in comparison.notes)
    st.caption("  \n".join(filter(None, [verdicts.noise_text(comparison), notes])))
    warnings = [sentence(caution_words(warning)) for warning in comparison.warnings]
    doubts = [*warnings, *verdicts.doubts(comparison.results)]
    if doubts:
        listed = doubts if len(doubts) == 1 else [f"- {doubt}" for doubt in doubts]
        st.warning("\n".join(listed), icon=":material/info:")


def show_why(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """Shows the parts of a step's time, the cost of each compiler stage, and an issue about it."""
    why.show(store, comparison.experiment_id)
    cause.show_slow_issue(store, comparison)


def show_learning(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """Charts of losses and evaluations, and predictions: whether the runs learn the same thing."""
    results = cards.pick(comparison)
    cards.show(cards.learning_cards(store, comparison, results), _why_none(comparison, results))
    if comparison.spec.kind.trains_fully and results:
        predictions.show(store, comparison, results)


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
        with st.container(horizontal=True, vertical_alignment="center"):
            related.menu(comparison)
            table_downloads(comparison.table(), "comparison")
        verdicts.show_statistics(comparison)
    results = cards.pick(comparison)
    why_none = NO_STEP if results else NO_RUN
    cards.show(cards.speed_cards(store, comparison, results), why_none, side_by_side=True)
    if comparison.spec.num_ranks > 1:
        with st.expander("Several devices", icon=":material/lan:"):
            device_panel.show_ranks(store, comparison)
    meanwhile = [*running.time_axis(store, comparison.experiment_id),
                 *cards.device_cards(store, comparison, results)]  # fmt: skip
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
    if comparison.spec.kind.compares == "runs":
        exchange.buttons(store, comparison.experiment_id)
        exchange.show_imported(store, comparison.experiment_id)
    baseline = queries.list_runs(store, comparison.experiment_id).iloc[0]
    run.show_environment(store, baseline, queries.run_record(store, baseline["run_id"]))
    with st.expander("Specification of the experiment", icon=":material/data_object:"):
        st.code(comparison.spec.to_json(), language="json", wrap_lines=True)


def show_tensors(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    if ExperimentState(experiment["state"]).is_active:
        running.show(store, experiment)
    accuracy.show(store, comparison.experiment_id, comparison.spec)
    cause.offer(store, comparison)
    running.show_failures(store, comparison.experiment_id)


def show_cause(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    cause.show(store, experiment, comparison)
    if ExperimentState(experiment["state"]).is_final:
        running.show_failures(store, comparison.experiment_id)


def show_stages(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    ladder.show(find_ladder(store, comparison.experiment_id))


def show_caches(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    if ExperimentState(experiment["state"]).is_active:
        running.show(store, experiment)
    cache.show(store, comparison)
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
