"""Pages of the scenario `accuracy`: the status of every check, and the tensors behind it."""

import math
from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from breakeven.runner.protocol.states import ExperimentState
from breakeven.runner.specs.arm_fields import RESERVED_LABELS
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import ACTIVATION
from breakeven.storage import queries
from breakeven.storage.comparison.correctness import (
    Check,
    Growth,
    Outcome,
    Pass,
    checks,
    growths,
    judged,
    table,
    with_places_of_layers,
)
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.compiling.ladder import find_ladder
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import NUMBERS
from breakeven.views.charts import tensor_errors
from breakeven.views.comparison import related_experiments, running
from breakeven.views.comparison.compiler_stages import show_ladder
from breakeven.views.parts.downloads import Card, show_card, show_table
from breakeven.views.scenarios.base import Page, Scenario, Show, Table
from breakeven.views.scenarios.shared_tabs import show_one_run, show_settings
from breakeven.views.shared.definition_links import linked
from breakeven.views.shared.inert import Markdown, code, inert

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
    data = with_places_of_layers(tensors)
    cards = []
    for part in dict.fromkeys(data["part"]):
        errors = data[data["part"] == part]
        # Without layers, the chart of outputs has only two points, so it comes last.
        has_layers = (errors["quantity"] == ACTIVATION).any()
        passes = sorted(PASS_TITLES, key=lambda name: name == "forward" and not has_layers)
        draw = {
            PASS_TITLES[which]: partial(tensor_errors.errors, data, part, which)
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


def show_verdict(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """The runs while they go on, the checks, the tensors that failed, and why runs failed."""
    if ExperimentState(experiment["state"]).is_active:
        running.show(store, experiment)
    show_tensors(store, comparison.experiment_id, comparison.spec)
    related_experiments.offer(store, comparison)
    running.show_failures(store, comparison.experiment_id)


def show_stages(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """The lowest compiler stage that fails or computes wrong numbers."""
    show_ladder(find_ladder(store, comparison.experiment_id))


def report(store: Store, comparison: Comparison) -> Page:
    """The checks, the tensors that failed, and their errors by layer."""
    experiment_id = comparison.experiment_id
    check_results = checks(store, experiment_id, comparison.spec)
    made = table(check_results)
    compared = queries.accuracy_tensors(store, experiment_id)
    tensors = compared.drop(columns=["run_id", "role"])
    failed = tensors[~tensors["passed"]].drop(columns="passed").rename(columns={"label": "run"})
    notes = {note: None for check in check_results for note in check.notes}
    return Page(
        headline=tensors_headline(check_results),
        captions=[TENSORS_HELP, *(inert(note) for note in notes)],
        tables=[
            Table(title="Checks", name="checks", shown=made, numbers=made),
            Table(title="Tensors that failed", name="tensors", shown=failed, numbers=tensors),
        ],
        cards=tensor_cards(compared),
    )


TABS: dict[str, Show] = {
    "Verdict": show_verdict,
    "Why": show_stages,
    "Runs": show_one_run,
    "Settings": show_settings,
}
ACCURACY = Scenario(tabs=TABS, report=report)
