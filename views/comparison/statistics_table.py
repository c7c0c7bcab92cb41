"""The statistics behind the verdicts of a comparison, in a folded table."""

import pandas as pd
import streamlit as st

from breakeven.storage.comparison.results import Comparison
from breakeven.storage.numbers.metrics import DASH, METRICS
from breakeven.views.parts.downloads import show_table
from breakeven.views.shared.definition_links import linked

NUMBERS = (
    "p_holm",
    "effect_size",
    "detectable_effect",
    "max_ratio_to_band",
    "max_ratio_to_interval",
    "first_step_outside",
    "inference_gap",
    "training_loss_excess",
    "training_loss_check",
)


def show_statistics(comparison: Comparison) -> None:
    """Shows a folded table with a row for each run but the baseline."""
    numbers = statistics_table(comparison)
    if numbers.empty:
        return
    with st.expander("Statistics"):
        show_table(
            "Statistics of speed and parity",
            numbers,
            "behind-verdicts",
            "",
            download=statistics(comparison).reset_index(),
        )
        if "training_loss_check" in numbers:
            check = linked("training_loss_check", METRICS["training_loss_check"].title)
            st.caption(
                f"{check} is training_loss.py of PyTorch's benchmarks, with its mistakes "
                "corrected. It only tests whether the loss ends low enough, so a broken backend "
                "may pass. Parity is stricter."
            )


def statistics_table(comparison: Comparison) -> pd.DataFrame:
    """The numbers as text."""
    written = statistics(comparison).apply(
        lambda column: column.map(METRICS[str(column.name)].format)
    )
    return written.fillna(DASH).reset_index()


def statistics(comparison: Comparison) -> pd.DataFrame:
    """A row of numbers for each run; leaves out numbers that no run has and runs without any."""
    numbers = comparison.table().set_index("label").rename_axis("run")
    numbers = numbers.loc[numbers["role"] != "baseline", list(NUMBERS)]
    return numbers.dropna(how="all").dropna(axis="columns", how="all")
