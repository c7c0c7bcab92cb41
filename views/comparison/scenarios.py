"""Verdicts of the scenarios `accuracy` and `cache`: the status of every check and the tensors
behind it; what compile caches save, cold processes against warm ones."""

import math
from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import ACTIVATION
from breakeven.runner.specs.variants import RESERVED_LABELS
from breakeven.storage import queries
from breakeven.storage.comparison import latency
from breakeven.storage.comparison.correctness import (
    Check,
    Growth,
    Outcome,
    Pass,
    checks,
    growths,
    judged,
    placed,
    table,
)
from breakeven.storage.comparison.latency import (
    ColdWarm,
    cold_and_warm,
    why_silent,
    without_latency,
)
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.compiling.timeline import phases_by_run
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import METRICS, NUMBERS
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.words.caches import caches_break_evens, caches_table
from breakeven.views.charts import profile as tensor_charts
from breakeven.views.parts.downloads import Card, show_card, show_table
from breakeven.views.shared import words
from breakeven.views.shared.inert import Markdown, code, inert
from breakeven.views.shared.links import linked

TENSORS_HELP = (
    "Each backend computed the same batch with the same weights as the baseline and as a reference "
    f"in double precision. {linked('accuracy_rule', 'The rule')} is that of PyTorch's Dynamo "
    "harness; gradients are compared in units of their own size."
)

PASS_TITLES: dict[Pass, str] = {"forward": "Outputs", "backward": "Gradients", "weights": "Weights"}
READING = (
    "A point is a tensor: how far it is off, as a multiple of what the rule allows. Above the red "
    "line it fails; at the very bottom it is exactly right, or nearly so."
)

LAYERS = (
    f"{linked('activations', 'Outputs of single layers')} come from separate computations "
    "with other compiled code: they show where errors begin, and no verdict depends on them."
)


def show_tensors(store: Store, experiment_id: str, spec: ExperimentSpec) -> None:
    """Shows the answer in a sentence, a table of checks, and every tensor that failed."""
    all_checks = checks(store, experiment_id, spec)
    st.markdown(f"### {tensors_headline(all_checks)}")
    show_table("Checks", table(all_checks), "checks", "No check was made yet.")
    tensors = queries.accuracy_tensors(store, experiment_id)
    show_errors(tensors)
    failed = judged(tensors)
    failed = failed[~failed["passed"]].drop(columns=["run_id", "role", "passed"])
    failed = failed.rename(columns={"label": "run"}).sort_values("error_ratio", ascending=False)
    show_table(
        "Tensors that failed, the worst first",
        failed,
        "tensors",
        "Every tensor that was compared passed.",
    )
    notes = {note: None for check in all_checks for note in check.notes}
    st.caption("  \n".join([TENSORS_HELP, *(inert(note) for note in notes)]))


def show_errors(tensors: pd.DataFrame) -> None:
    """Shows a chart for each part, and a sentence on where the errors of each backend begin."""
    for card in tensor_cards(tensors):
        show_card(card)
        data = card.table()
        sentences = [where(growth) for growth in growths(data)]
        reading = f"{READING} {LAYERS}" if (data["quantity"] == ACTIVATION).any() else READING
        st.caption("  \n".join([reading, *sentences]))


def tensor_cards(tensors: pd.DataFrame) -> list[Card]:
    """A card for each part of the check: its errors by layer."""
    data = placed(tensors)
    cards = []
    for part in dict.fromkeys(data["part"]):
        errors = data[data["part"] == part]
        # Without layers, the chart of outputs has only two points, so it comes last.
        has_layers = (errors["quantity"] == ACTIVATION).any()
        passes = sorted(PASS_TITLES, key=lambda name: name == "forward" and not has_layers)
        draw = {
            PASS_TITLES[which]: partial(tensor_charts.errors, data, part, which)
            for which in passes
            if (errors["pass"] == which).any()
        }
        title = f"Errors by layer, {inert(part)}"
        cards.append(Card(title, draw, errors, f"errors-{part}", ["error_ratio"], READING))
    return cards


def where(growth: Growth) -> Markdown:
    """A sentence on where the errors of a backend begin."""
    limit = NUMBERS["error_ratio"].format(growth.ratio) if math.isfinite(growth.ratio) else None
    much = (
        "cannot be compared"
        if limit is None
        else (linked("error_ratio", f"{inert(limit)} x what is allowed"))
    )
    what = f"**{inert(growth.label)}**: {inert(growth.quantity)} of {code(growth.tensor)}"
    if growth.is_beyond:
        return f"{what} is the first that fails, in the order of computing: {much}."
    return f"{what} has the largest error: {much}."


SENTENCES: dict[Outcome, str] = {
    "differs": "Wrong results: {}.",
    "failed": "No results: {}.",
    "undecided": "Nothing to check against, because the baseline or the model failed: {}.",
    "open": "Not checked: {}.",
    "passes": "Correct results: {}.",
}
"""Sentences about checks by their outcome, in the order of the page."""


def tensors_headline(checks: Sequence[Check]) -> Markdown:
    """The results of the checks of all backends, in sentences."""
    of_backends = [check for check in checks if not RESERVED_LABELS.fullmatch(check.label)]
    if not of_backends:
        return "There is only the baseline: add a backend to check."
    parts = {check.part: None for check in of_backends}
    if all(check.outcome == "passes" for check in of_backends):
        gradients = ", gradients included" if "training" in parts else ""
        where = inert(" and ".join(parts))
        return f"Every backend computes correct results in {where}{gradients}."
    sentences = []
    for outcome, sentence in SENTENCES.items():
        names = [_named(check, len(parts) > 1) for check in of_backends if check.outcome == outcome]
        sentences += [sentence.format(", ".join(names))] if names else []
    return " ".join(sentences)


def _named(check: Check, with_part: bool) -> Markdown:
    status = f" ({inert(check.status)})" if check.outcome in ("failed", "undecided") else ""
    return f"**{inert(check.label)}**{f' in {inert(check.part)}' if with_part else ''}{status}"


_seconds = METRICS["compile_seconds"].format


def show_caches_headline(store: Store, comparison: Comparison) -> list[ColdWarm]:
    """Shows in a sentence what filled caches save, and why processes are left out; returns the
    savings."""
    experiment_id = comparison.experiment_id
    pairs, silent = cold_and_warm(store, experiment_id), without_latency(store, experiment_id)
    is_over = all(RunState(result.state).is_final for result in comparison.results)
    st.markdown(f"### {caches_headline(pairs, is_over)}")
    for sentence in why_silent(silent):
        st.info(inert(sentence), icon=":material/info:")
    ended = [result for result in comparison.results if RunState(result.state).is_failed]
    if ended:
        listed = ", ".join(f"{result.label} ({result.state})" for result in ended)
        st.warning(f"Did not finish: {inert(listed)}.", icon=":material/info:")
    return pairs


def show_caches(store: Store, comparison: Comparison, pairs: Sequence[ColdWarm]) -> None:
    """Shows a table, a bar for each process, the phases, cache counts."""
    experiment_id = comparison.experiment_id
    title = (
        f"Compile latency of {inert(comparison.spec.cache.part)} with empty and with filled caches"
    )
    show_table(title, caches_table(pairs), "cold-warm", "", download=latency.numbers(pairs))
    show_table(
        "When compiling has paid for itself",
        caches_break_evens(pairs),
        "cold-warm-break-even",
        "",
        download=latency.numbers(pairs),
    )
    st.caption(certainty(pairs))
    for card in caches_cards(store, comparison, pairs):
        show_card(card)
    counts = queries.compile_caches(store, experiment_id).drop(columns=["run_id", "role"])
    show_table(
        "Hits and misses by layer of the cache",
        counts.rename(columns={"label": "run"}),
        "compile-caches",
        "None recorded yet.",
    )


def caches_cards(store: Store, comparison: Comparison, pairs: Sequence[ColdWarm]) -> list[Card]:
    """The compile latency of every process and, where torch reports them, the phases."""
    data = latency.processes(pairs)
    draw = partial(tensor_charts.latencies, data)
    latencies = Card(
        "Compile latency of every process", draw, data, "cold-warm-processes", ["compile_seconds"]
    )
    times = latency.phases(comparison.spec, phases_by_run(store, comparison.experiment_id))
    if times.empty:
        return [latencies]
    return [
        latencies,
        Card(
            "Where compiling spends its time",
            partial(tensor_charts.phases, times),
            times,
            "compile-phases",
            ["compile_phases"],
            "Median over the repeats, as torch reports it.",
        ),
    ]


def caches_headline(pairs: Sequence[ColdWarm], is_over: bool) -> Markdown:
    """How much filled caches saved, if anything, and the number of repeats."""
    if not pairs:
        return (
            "This experiment does not show what filled caches save."
            if is_over
            else "No pair of a cold and a warm process has ended yet."
        )
    known = [pair for pair in pairs if pair.time_saved is not None]
    if not known:
        return "Nothing was compiled, so caches have nothing to save."
    best = max(known, key=lambda pair: pair.time_saved or 0.0)
    warm = linked("warm_compile_seconds", _seconds(best.warm_median))
    times = f"{warm} instead of {linked('cold_compile_seconds', _seconds(best.cold_median))}"
    backend = f"**{inert(best.backend)}**"
    repeats = linked("repeats", words.plural(len(best.cold_seconds), "repeat"))
    if (best.time_saved or 0.0) <= 0:
        none = "saved nothing" if len(known) == 1 else "saved no backend anything"
        return f"Filled caches {none}: {backend} took {times} ({repeats})."
    share = METRICS["compile_time_saved"].format(best.time_saved)
    saved = linked("compile_time_saved", f"{share} of the compile time")
    return f"Filled caches saved {saved} of {backend}: {times} ({repeats})."


def certainty(pairs: Sequence[ColdWarm]) -> Markdown:
    """The certainty of the numbers: repeats that an interval needs, and how steps were timed."""
    fewest = min(len(pair.cold_seconds) for pair in pairs)
    order = (
        "Baseline and backends ran one after another, so break-even is less certain on a machine "
        "whose speed drifts; in the scenario `train` runs take turns."
    )
    if fewest >= MIN_PAIRS:
        return order
    repeats = linked("repeats", words.plural(fewest, "repeat"))
    return (
        f"No interval is claimed from {repeats}: it takes {MIN_PAIRS} (`--repeats {MIN_PAIRS}`). "
        f"{order}"
    )
