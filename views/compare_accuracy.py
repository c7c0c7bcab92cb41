"""Correctness, on Compare: the status of every check, and the tensors behind it."""

from collections.abc import Sequence

import streamlit as st

from runner.spec import ExperimentSpec
from storage import queries
from storage.correctness import PASS, Check, checks, table
from storage.store import Store
from views.inert import Markdown, inert
from views.links import linked, quantities
from views.tables import show_table

HELP = (
    "Each backend computed the same batch with the same weights as the baseline and as a reference "
    f"in double precision. {linked('accuracy_rule', 'The rule')} is that of PyTorch's Dynamo "
    "harness; gradients are compared in units of their own size."
)


def show(store: Store, experiment_id: str, spec: ExperimentSpec) -> None:
    """The answer in a sentence, a table of checks, and every tensor that failed."""
    found = checks(store, experiment_id, spec)
    st.markdown(f"### {headline(found)}")
    show_table("Checks", table(found), "checks", "No check was made yet.")
    tensors = queries.accuracy_tensors(store, experiment_id)
    failed = tensors[~tensors["passed"]].drop(columns=["run_id", "role", "passed"])
    failed = failed.rename(columns={"label": "run"}).sort_values("error_ratio", ascending=False)
    show_table("Tensors that failed, the worst first", failed, "tensors",
               "Every tensor that was compared passed.")  # fmt: skip
    notes = {note: None for check in found for note in check.notes}
    st.caption("  \n".join([HELP, *(quantities("accuracy_rule", note) for note in notes)]))


def headline(found: Sequence[Check]) -> Markdown:
    failing = {check.label: None for check in found if check.status not in (PASS, None)}
    if failing:
        return f"Not what the model says: **{inert(', '.join(failing))}**."
    if not found or any(check.status is None for check in found):
        return "Not every check was made."
    return "Every backend computes what the model says, gradients included."
