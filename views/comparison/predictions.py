"""The samples on which the runs of a comparison disagree, if predictions were stored."""

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from breakeven.storage import queries
from breakeven.storage.comparison import predictions
from breakeven.storage.comparison.predictions import PredictionFile
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.errors import PredictionsUnreadable
from breakeven.storage.index.store import Store
from breakeven.views.access import permissions
from breakeven.views.parts.downloads import show_table
from breakeven.views.shared import words
from breakeven.views.shared.inert import inert
from breakeven.views.shared.links import linked

HELP = (
    "A prediction is a run's answer for one sample, by its last weights. Rounding alone changes "
    "some answers with a small margin: the control shows how many."
)


def show(store: Store, comparison: Comparison, results: Sequence[Result]) -> None:
    """Shows nothing unless predictions of the baseline and of another run were stored."""
    kept = queries.predictions(store, comparison.experiment_id)
    kept = kept[kept["label"].isin([result.label for result in results])]
    splits = list(dict.fromkeys(kept.loc[kept["label"] == comparison.baseline, "split"]))
    if not splits or kept["label"].nunique() < 2:
        return
    st.markdown("**Predictions**", help=HELP)
    split = splits[0]
    if len(splits) > 1:
        split = st.segmented_control(
            "Samples", splits, default=split, required=True, key="predictions",
            bind="query-params", label_visibility="collapsed", format_func=inert,
        ) or split  # fmt: skip
    mine = kept[kept["split"] == split]
    files = {
        str(row.label): PredictionFile(Path(str(row.folder)), str(row.file))
        for row in mine.itertuples()
    }
    try:
        differ = predictions.disagreements(files, comparison.baseline)
        counts = predictions.count_disagreements(
            differ, files, comparison.spec, comparison.baseline
        )
    except PredictionsUnreadable as error:
        st.error(inert(permissions.redacted(error)), icon=":material/error:")
        return
    if differ.columns.empty:
        st.caption("The labels are not classes, so answers cannot be compared.")
        return
    num_samples = int(mine["num_samples"].iloc[0])
    left, right = st.columns([2, 3])
    with left:
        samples = words.plural(num_samples, f"{inert(split)} sample")
        show_table(
            f"Different answers for {linked('num_samples', samples)}", counts, "disagreements", "",
        )  # fmt: skip
    with right:
        classes = queries.workloads(store, comparison.experiment_id)["labels"].dropna()
        labels = list(classes.iloc[0]) if len(classes) else []
        shown = predictions.named(differ, list(files), labels)
        margins = {column: "margin" for column in shown if column.startswith("margin of ")}
        show_table("Samples on which runs disagree with the baseline", shown,
                   "disagreeing-samples", "None: every run gives the same answers.",
                   margins)  # fmt: skip
