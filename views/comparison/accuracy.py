"""Correctness, on Compare: the status of every check and the tensors behind it."""

import math
from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenarios import ACTIVATION
from breakeven.runner.specs.variants import RESERVED_LABELS
from breakeven.storage import queries
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
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import NUMBERS
from breakeven.views.charts import profile as tensor_charts
from breakeven.views.parts.downloads import Card, show_card, show_table
from breakeven.views.shared.inert import Markdown, code, inert
from breakeven.views.shared.links import linked

HELP = (
    "Each backend computed the same batch with the same weights as the baseline and as a reference "
    f"in double precision. {linked('accuracy_rule', 'The rule')} is that of PyTorch's Dynamo "
    "harness; gradients are compared in units of their own size."
)

PASS_TITLES: dict[Pass, str] = {"forward": "Outputs", "backward": "Gradients",
                                "weights": "Weights"}  # fmt: skip
READING = (
    "A point is a tensor: how far it is off, as a multiple of what the rule allows. Above the red "
    "line it fails; at the very bottom it is exactly right, or nearly so."
)

LAYERS = (
    f"{linked('activations', 'Outputs of single layers')} come from separate computations "
    "with other compiled code: they show where errors begin, and no verdict depends on them."
)


def show(store: Store, experiment_id: str, spec: ExperimentSpec) -> None:
    """Shows the answer in a sentence, a table of checks, and every tensor that failed."""
    found = checks(store, experiment_id, spec)
    st.markdown(f"### {headline(found)}")
    show_table("Checks", table(found), "checks", "No check was made yet.")
    tensors = queries.accuracy_tensors(store, experiment_id)
    show_errors(tensors)
    failed = judged(tensors)
    failed = failed[~failed["passed"]].drop(columns=["run_id", "role", "passed"])
    failed = failed.rename(columns={"label": "run"}).sort_values("error_ratio", ascending=False)
    show_table("Tensors that failed, the worst first", failed, "tensors",
               "Every tensor that was compared passed.")  # fmt: skip
    notes = {note: None for check in found for note in check.notes}
    st.caption("  \n".join([HELP, *(inert(note) for note in notes)]))


def show_errors(tensors: pd.DataFrame) -> None:
    """Shows a chart for each part, and a sentence on where the errors of each backend begin."""
    for card in cards(tensors):
        show_card(card)
        data = card.table()
        sentences = [where(one) for one in growths(data)]
        reading = f"{READING} {LAYERS}" if (data["quantity"] == ACTIVATION).any() else READING
        st.caption("  \n".join([reading, *sentences]))


def cards(tensors: pd.DataFrame) -> list[Card]:
    """A card for each part of the check: its errors by layer."""
    data = placed(tensors)
    found = []
    for part in dict.fromkeys(data["part"]):
        mine = data[data["part"] == part]
        # Without layers, the chart of outputs has only two points, so it comes last.
        has_layers = (mine["quantity"] == ACTIVATION).any()
        passes = sorted(PASS_TITLES, key=lambda one: one == "forward" and not has_layers)
        draw = {
            PASS_TITLES[which]: partial(tensor_charts.errors, data, part, which)
            for which in passes if (mine["pass"] == which).any()
        }  # fmt: skip
        title = f"Errors by layer, {inert(part)}"
        found.append(Card(title, draw, mine, f"errors-{part}", ["error_ratio"], READING))
    return found


def where(one: Growth) -> Markdown:
    """A sentence on where the errors of a backend begin."""
    limit = NUMBERS["error_ratio"].format(one.ratio) if math.isfinite(one.ratio) else None
    much = "cannot be compared" if limit is None else (
        linked("error_ratio", f"{inert(limit)} x what is allowed"))  # fmt: skip
    what = f"**{inert(one.label)}**: {inert(one.quantity)} of {code(one.tensor)}"
    if one.is_beyond:
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


def headline(found: Sequence[Check]) -> Markdown:
    """The results of the checks of all backends, in sentences."""
    mine = [check for check in found if not RESERVED_LABELS.fullmatch(check.label)]
    if not mine:
        return "There is only the baseline: add a backend to check."
    parts = {check.part: None for check in mine}
    if all(check.outcome == "passes" for check in mine):
        gradients = ", gradients included" if "training" in parts else ""
        where = inert(" and ".join(parts))
        return f"Every backend computes correct results in {where}{gradients}."
    sentences = []
    for outcome, sentence in SENTENCES.items():
        names = [_named(check, len(parts) > 1) for check in mine if check.outcome == outcome]
        sentences += [sentence.format(", ".join(names))] if names else []
    return " ".join(sentences)


def _named(check: Check, with_part: bool) -> Markdown:
    status = f" ({inert(check.status)})" if check.outcome in ("failed", "undecided") else ""
    return f"**{inert(check.label)}**{f' in {inert(check.part)}' if with_part else ''}{status}"
