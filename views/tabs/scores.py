"""The run page's tab about the model's answers: evaluations and predictions."""

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from breakeven.storage import queries
from breakeven.storage.comparison import predictions
from breakeven.storage.comparison.predictions import PredictionFile
from breakeven.storage.errors import PredictionsUnreadable
from breakeven.storage.index.store import Store
from breakeven.storage.queries import RunRecord
from breakeven.views.access import permissions
from breakeven.views.charts import scores as score_charts
from breakeven.views.parts.downloads import chart_card, of_run, show_table
from breakeven.views.shared import words
from breakeven.views.shared.inert import inert
from breakeven.views.shared.links import linked

WHEN_EVALUATED = {
    "epochs": "None yet: they follow the ends of epochs.",
    "steps": "None yet: they follow every so many steps.",
    "end": "None yet: one follows the last step.",
    "never": "None: the specification asks for none.",
}
COMPILED_HELP = "Dashed, with rings: the same weights under the run's own compiled model."
NO_PREDICTIONS = (
    "Not kept: choose “Keep predictions for” when you launch, or `--predictions` on the command "
    "line."
)


def show_scores(store: Store, run: pd.Series, record: RunRecord) -> None:
    scores = of_run(queries.evaluation_metrics(store, record.experiment_id), run)
    names = sorted(dict.fromkeys(scores["name"]), key=lambda name: name != "loss")
    columns = st.columns(2)
    for number, name in enumerate(names):
        with columns[number % 2]:
            show_score(scores[scores["name"] == name], name)
    when = WHEN_EVALUATED[record.spec.evaluation.when]
    own = {name: "own_values" for name in names if score_charts.score_metric(name) is None}
    found = table(scores)
    # Every evaluation has a loss, so NaN is a value here; objects keep it apart from missing ones.
    losses = {"eval_loss": object} if "eval_loss" in found else {}
    show_table("Evaluations", found, "evaluations", when, own, download=found.astype(losses))
    show_predictions(store, run, record)


def show_score(scores: pd.DataFrame, name: str) -> None:
    metric = score_charts.score_metric(name)
    draw = partial(score_charts.scores, scores, name)
    chart_card(metric.title if metric else inert(name), draw, scores, name=f"score-{name}",
               numbers=[metric.name if metric else "own_values"],
               help=COMPILED_HELP if scores["compiled"].any() else "")  # fmt: skip


def table(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per evaluation, a column for each number."""
    keys = ["epoch", "step", "split", "compiled", "num_samples"]
    # A pivot table would leave out NaN, and with it a loss that diverged.
    once = scores.drop_duplicates([*keys, "name"], keep="last").set_index([*keys, "name"])
    wide = once["value"].unstack("name", sort=False)
    wide = wide.reset_index().rename_axis(columns=None)
    return wide.rename(columns={"loss": "eval_loss"})


def show_predictions(store: Store, run: pd.Series, record: RunRecord) -> None:
    kept = of_run(queries.predictions(store, record.experiment_id), run)
    if kept.empty:
        requested = record.spec.evaluation.predictions
        st.caption("Predictions: " + ("none yet, they follow the last step." if requested
                                      else NO_PREDICTIONS))  # fmt: skip
        return
    labels = record.workload.get("labels") or None
    for column, file in zip(st.columns(max(2, len(kept))), kept.itertuples(), strict=False):
        with column:
            try:
                show_confusion(str(file.split), kept_file(file), labels)
            except PredictionsUnreadable as error:
                st.error(inert(permissions.redacted(error)), icon=":material/error:")
    if record.variant.backend is not None and record.spec.evaluation.compiled:
        for file in kept.itertuples():
            show_inference(str(file.split), kept_file(file), int(file.num_samples), labels)


def kept_file(row: Any) -> PredictionFile:
    return PredictionFile(Path(row.folder), str(row.file))


def show_confusion(split: str, file: PredictionFile, labels: list[str] | None) -> None:
    counts = predictions.confusion(file, labels)
    if counts.empty:
        st.caption(f"The labels of the {inert(split)} samples are numbers, not classes.")
        return
    draw = partial(score_charts.confusion, counts)
    help = "Samples by true label and prediction, without a compiler."
    chart_card(f"Confusion, {inert(split)}", draw, counts.reset_index(), name=f"confusion-{split}",
               numbers=["predictions"], help=help)  # fmt: skip


def show_inference(
    split: str, file: PredictionFile, num_samples: int, labels: list[str] | None
) -> None:
    """Samples for which the compiled model's answer differs from the uncompiled one."""
    try:
        differ = predictions.inference_disagreements(file)
    except PredictionsUnreadable as error:
        st.error(inert(permissions.redacted(error)), icon=":material/error:")
        return
    if differ.columns.empty:  # numbers are neither right nor wrong
        return
    many = linked("predictions", f"{len(differ):,} of {words.plural(num_samples, 'sample')}")
    names = dict(enumerate(labels or []))
    for column in ("label", "prediction", "compiled_prediction"):
        differ[column] = [names.get(number, f"class {number}") for number in differ[column]]
    show_table(
        f"Answered differently by the compiled model, {inert(split)}: {many}",
        differ.rename(columns={"label": "true label"}),
        f"inference-{split}", "None: the compiled model answers as without a compiler.",
    )  # fmt: skip
