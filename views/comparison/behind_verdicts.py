"""Statistics of a comparison's verdicts: their certainty, and the result of another check."""

import pandas as pd
import streamlit as st

from breakeven.storage.comparison.results import Comparison
from breakeven.storage.numbers.metrics import DASH, METRICS
from breakeven.views.parts.downloads import show_table
from breakeven.views.shared.links import linked

NUMBERS = (
    "p_holm", "effect_size", "detectable_effect", "max_ratio_to_band", "max_ratio_to_interval",
    "first_step_outside", "inference_gap", "training_loss_excess", "training_loss_check",
)  # fmt: skip


def show(comparison: Comparison) -> None:
    """Shows a folded table with a row for each run but the baseline."""
    found = table(comparison)
    if found.empty:
        return
    with st.expander("Statistics"):
        show_table("How sure speed and parity are", found, "behind-verdicts", "",
                   download=numbers(comparison).reset_index())  # fmt: skip
        if "training_loss_check" in found:
            check = linked("training_loss_check", METRICS["training_loss_check"].title)
            st.caption(
                f"{check} is the check of PyTorch's own benchmark, here with its mistakes mended. "
                "It asks only whether the loss ends low enough, so what is broken may pass it: it "
                "is not parity."
            )


def table(comparison: Comparison) -> pd.DataFrame:
    """The numbers as text."""
    written = numbers(comparison).apply(lambda column: column.map(METRICS[str(column.name)].format))
    return written.fillna(DASH).reset_index()


def numbers(comparison: Comparison) -> pd.DataFrame:
    """A row of numbers for each run; leaves out numbers that no run has and runs without any."""
    found = comparison.table().set_index("label").rename_axis("run")
    found = found.loc[found["role"] != "baseline", list(NUMBERS)]
    return found.dropna(how="all").dropna(axis="columns", how="all")
