"""Texts next to the numbers of a comparison, and the statistics behind its verdicts.

`views/comparison/answers.py` has the headline.
"""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.numbers.metrics import DASH, METRICS
from breakeven.storage.numbers.sentences import Sentence
from breakeven.storage.terminal.parity_words import parity_words
from breakeven.views.parts.downloads import show_table
from breakeven.views.shared import words
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.links import linked, sentence

VERDICT_CLASSES = {
    "faster": "good",
    "slower": "bad",
    "same": "plain",
    "unsure": "doubtful",
    "holds": "good",
    "broken": "bad",
    "nothing learned": "doubtful",
    "unknown": "doubtful",
    "failed": "bad",
    "cancelled": "plain",
}
"""CSS class in views/shared/style.css, which has the colours of the theme."""


def doubts(results: Sequence[Result]) -> list[Markdown]:
    """Reasons behind parity verdicts other than `holds`, each once, after its runs."""
    labels: dict[Sentence, list[str]] = {}
    for result in results:
        if result.parity is not None and result.parity.verdict != "holds":
            labels.setdefault(parity_words(result.parity), []).append(result.label)
    parity = linked("parity", "parity")
    return [f"**{inert(', '.join(runs))}**, {parity}: {sentence(reason)}"
            for reason, runs in labels.items()]  # fmt: skip


def noise_text(comparison: Comparison) -> Markdown:
    """The noise floor of this machine, or why there is none."""
    if comparison.noise_floor is None:
        return (
            f"No {linked('noise_floor', 'noise floor')}: it takes a control and at least 6 rounds. "
            "Until then a small difference may be chance."
        )
    share = METRICS["noise_floor"].format(comparison.noise_floor)
    return (
        f"{linked('noise_floor', f'Noise floor {share}')}: baseline and control run the same "
        "program, and their speeds differed by up to this much."
    )


def provenance(experiment: pd.Series) -> Markdown:
    """Device and date: `recorded example, NVIDIA H100, 20 Nov 2026`, then the workload."""
    parts = ["recorded example"] if experiment["origin"] == "example" else []
    # Missing until a run records it.
    device, torch = (one if isinstance(one, str) else None
                     for one in experiment[["device_name", "torch_version"]])  # fmt: skip
    parts += [inert(device or experiment["device"])]
    parts += [words.day(experiment["submitted"])]
    what = [words.workload(experiment["model"], experiment["data"])]
    if torch:
        what.append(f"torch {inert(torch)}")
    return " · ".join([", ".join(parts), *what])


NUMBERS = (
    "p_holm", "effect_size", "detectable_effect", "max_ratio_to_band", "max_ratio_to_interval",
    "first_step_outside", "inference_gap", "training_loss_excess", "training_loss_check",
)  # fmt: skip


def show_statistics(comparison: Comparison) -> None:
    """Shows a folded table with a row for each run but the baseline."""
    found = statistics_table(comparison)
    if found.empty:
        return
    with st.expander("Statistics"):
        show_table("Statistics of speed and parity", found, "behind-verdicts", "",
                   download=statistics(comparison).reset_index())  # fmt: skip
        if "training_loss_check" in found:
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
    found = comparison.table().set_index("label").rename_axis("run")
    found = found.loc[found["role"] != "baseline", list(NUMBERS)]
    return found.dropna(how="all").dropna(axis="columns", how="all")
