"""The run page's tabs about training: every step, the gradients, the profile, evaluations and
predictions; and on which samples the runs of a comparison disagree.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.storage import queries
from breakeven.storage.comparison import predictions
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.predictions import PredictionFile
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.profile.kernel_classes import CLASSES
from breakeven.storage.profile.recorded_profiles import Profile, load_profiles
from breakeven.storage.queries import RunRecord
from breakeven.storage.words.profile import profile_words
from breakeven.views.charts import losses as loss_charts
from breakeven.views.charts import over_steps as step_charts
from breakeven.views.charts import scores as score_charts
from breakeven.views.charts.over_steps import EVENT_NUMBERS, mark_compiler_events, mark_resumptions
from breakeven.views.parts.actions import errors_shown
from breakeven.views.parts.downloads import Card, Draw, download, of_run, show_card, show_table
from breakeven.views.shared import words
from breakeven.views.shared.definition_links import axis, linked, sentence
from breakeven.views.shared.inert import inert

MANY_VALUES = 6
STATISTICS = {
    "Norm": "norm",
    "Mean": "mean",
    "Deviation": "deviation",
    "Largest": "largest",
    "Zeros": "zeros",
}
STATISTICS_HELP = "A row that is empty or full of zeros is a parameter that does not learn."


def show_steps(store: Store, run: pd.Series, record: RunRecord) -> None:
    steps = of_run(queries.step_times(store, record.experiment_id), run)
    losses = of_run(queries.losses(store, record.experiment_id), run)
    if steps.empty:
        st.caption("No step is recorded yet: they arrive block by block.")
        return
    resumptions = of_run(queries.resumptions(store, record.experiment_id), run)

    events = of_run(queries.compiler_events(store, record.experiment_id), run)

    def marked(draw: Draw) -> Draw:
        return lambda: mark_resumptions(draw(), resumptions, named=False)

    def with_events(draw: Draw) -> Draw:
        return marked(lambda: mark_compiler_events(draw(), events))

    marks = [] if events.empty else EVENT_NUMBERS
    times = with_events(partial(step_charts.step_series, steps))
    show_card(
        Card("Time of every step", times, steps, name="run-steps", numbers=["step_seconds", *marks])
    )
    if not losses.empty:  # forward passes have none
        loss = with_events(partial(loss_charts.losses, losses, every_step=steps))
        every_loss = steps[["run_id", "label", "role", "step", "loss"]]
        show_card(
            Card("Training loss", loss, every_loss, name="run-loss", numbers=["loss", *marks])
        )
    terms = of_run(queries.loss_terms(store, record.experiment_id), run)
    if not terms.empty:
        title = axis("loss_terms", METRICS["loss"].axis_title)
        draw = marked(partial(step_charts.named_series, terms, title))
        show_card(
            Card("Terms of the loss", draw, terms, name="run-loss-terms", numbers=["loss_terms"])
        )
    show_step_settings(of_run(queries.step_settings(store, record.experiment_id), run))
    show_own_values(of_run(queries.own_values(store, record.experiment_id), run))


def show_step_settings(steps: pd.DataFrame) -> None:
    """Charts of the learning rate, if it changes, and of the gradient norm, if it was recorded."""
    shown_names = [
        name
        for name, least in (("learning_rate", 2), ("gradient_norm", 1))
        if steps[name].nunique() >= least
    ]
    if not shown_names:
        return
    for column, name in zip(st.columns(len(shown_names)), shown_names, strict=True):
        metric = METRICS[name]
        data = steps[["run_id", "label", "role", "step", name]]
        with column:
            show_card(
                Card(
                    metric.title,
                    partial(step_charts.setting, data, name),
                    data,
                    name=f"run-{name.replace('_', '-')}",
                    numbers=[name],
                )
            )


def show_own_values(values: pd.DataFrame) -> None:
    """A small chart for each number that callbacks recorded; of many, for selected ones."""
    names = list(dict.fromkeys(values["name"]))
    if len(names) > MANY_VALUES:
        names = st.multiselect(
            "Values that callbacks recorded",
            names,
            names[:MANY_VALUES],
            key="values",
            bind="query-params",
            select_all=False,
        )
    columns = st.columns(2) if len(names) > 1 else [st.container()]
    for number, name in enumerate(names):
        data = values[values["name"] == name]
        with columns[number % len(columns)]:
            draw = partial(step_charts.named_series, data, axis("own_values", name))
            show_card(Card(inert(name), draw, data, name=f"value-{name}", numbers=["own_values"]))


def show_gradients(store: Store, run: pd.Series, record: RunRecord) -> None:
    statistics = of_run(queries.gradient_statistics(store, record.experiment_id), run)
    if statistics.empty:
        requested = record.spec.training.gradient_statistics_every is not None
        st.caption(
            "Nothing is recorded yet."
            if requested
            else "Not recorded: set “Gradient statistics every” when you launch, or "
            "`--set training.gradient_statistics_every=10` on the command line."
        )
        return
    draw = {
        title: partial(step_charts.gradient_norms, statistics, column)
        for title, column in STATISTICS.items()
    }
    show_card(
        Card(
            "Gradients by parameter",
            draw,
            statistics,
            name="gradients",
            numbers=["gradient_statistics"],
            help=STATISTICS_HELP,
        )
    )


NUMBERS = {"time": "profile_seconds", "calls": "kernel_calls", "share": "profile_share"}
MAX_TRACE_BYTES = 200_000_000
PERFETTO = "It opens in a trace viewer such as Perfetto (`ui.perfetto.dev`)."


def show_profile(store: Store, run: pd.Series, record: RunRecord) -> None:
    comparison = compare(store, record.experiment_id)
    label = comparison.result_of(str(run["label"])).label
    profile = next(
        profile for profile in load_profiles(store, comparison) if profile.label == label
    )
    st.caption(sentence(profile_words(profile)))
    if len(profile.turns):
        show_trace(profile, run, RunDir(record.folder))
    if not profile.is_known:
        return
    frame = profile.kernels.assign(
        work_class=profile.kernels["work_class"].map(CLASSES),
        share=profile.kernels["seconds"] / profile.busy_seconds,
    ).rename(columns={"work_class": "class"})
    frame = frame[["name", "class", "seconds", "share", "calls", "phase", "dtype", "op"]]
    # On the page each time has its unit; in a file all are in seconds.
    shown = frame.rename(columns={"seconds": "time"})
    show_table("Kernels and operators", shown, "profile-kernels", "None.", NUMBERS, download=frame)


def show_trace(profile: Profile, run: pd.Series, folder: RunDir) -> None:
    """A download of the whole trace of this run's last profiled turn."""
    turns = profile.turns[profile.turns["label"] == run["label"]]
    names = turns["trace"].dropna()
    if names.empty:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        name = str(names.iloc[-1])
        try:
            folder.open(name).close()
        except (RunnerError, OSError):
            st.caption("The trace itself is not in the run's folder any more.")
            return
        download(
            "Trace",
            partial(_read, folder, name),
            "trace.json.gz",
            "application/gzip",
            help=PERFETTO,
        )
        st.caption(PERFETTO)


def _read(folder: RunDir, name: str) -> bytes:
    """Reads the trace on request, because it has megabytes."""
    with folder.open(name) as file:
        return file.read(MAX_TRACE_BYTES)


WHEN_EVALUATED = {
    "epochs": "None yet: they follow the ends of epochs.",
    "steps": "None yet: they follow every so many steps.",
    "end": "None yet: one follows the last step.",
    "never": "None: the specification asks for none.",
}
COMPILED_HELP = "Dashed, with rings: the same weights under the run's own compiled model."
NO_PREDICTIONS = (
    "Not kept: choose “Keep predictions for” when you launch, or "
    "`--set evaluation.predictions=validation` on the command line."
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
    evaluations = scores_table(scores)
    # Every evaluation has a loss, so NaN is a value here; objects keep it apart from missing ones.
    losses = {"eval_loss": object} if "eval_loss" in evaluations else {}
    show_table(
        "Evaluations", evaluations, "evaluations", when, own, download=evaluations.astype(losses)
    )
    show_predictions(store, run, record)


def show_score(scores: pd.DataFrame, name: str) -> None:
    metric = score_charts.score_metric(name)
    draw = partial(score_charts.scores, scores, name)
    show_card(
        Card(
            metric.title if metric else inert(name),
            draw,
            scores,
            name=f"score-{name}",
            numbers=[metric.name if metric else "own_values"],
            help=COMPILED_HELP if scores["compiled"].any() else "",
        )
    )


def scores_table(scores: pd.DataFrame) -> pd.DataFrame:
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
        st.caption(
            "Predictions: "
            + ("none yet, they follow the last step." if requested else NO_PREDICTIONS)
        )
        return
    labels = record.workload.get("labels") or None
    for column, file in zip(st.columns(max(2, len(kept))), kept.itertuples(), strict=False):
        with column, errors_shown():
            show_confusion(str(file.split), kept_file(file), labels)
    if record.arm.backend is not None and record.spec.evaluation.compiled:
        for file in kept.itertuples():
            with errors_shown():
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
    show_card(
        Card(
            f"Confusion, {inert(split)}",
            draw,
            counts.reset_index(),
            name=f"confusion-{split}",
            numbers=["predictions"],
            help=help,
        )
    )


def show_inference(
    split: str, file: PredictionFile, num_samples: int, labels: list[str] | None
) -> None:
    """Samples for which the compiled model's answer differs from the uncompiled one."""
    differ = predictions.inference_disagreements(file)
    if differ.columns.empty:  # numbers are neither right nor wrong
        return
    many = linked("predictions", f"{len(differ):,} of {words.plural(num_samples, 'sample')}")
    names = dict(enumerate(labels or []))
    for column in ("label", "prediction", "compiled_prediction"):
        differ[column] = [names.get(number, f"class {number}") for number in differ[column]]
    show_table(
        f"Answered differently by the compiled model, {inert(split)}: {many}",
        differ.rename(columns={"label": "true label"}),
        f"inference-{split}",
        "None: the compiled model answers as without a compiler.",
    )


DISAGREEMENTS_HELP = (
    "A prediction is a run's answer for one sample, by its last weights. Rounding alone changes "
    "some answers with a small margin: the control shows how many."
)


def show_disagreements(store: Store, comparison: Comparison, results: Sequence[Result]) -> None:
    """Shows nothing unless predictions of the baseline and of another run were stored."""
    kept = queries.predictions(store, comparison.experiment_id)
    kept = kept[kept["label"].isin([result.label for result in results])]
    splits = list(dict.fromkeys(kept.loc[kept["label"] == comparison.baseline, "split"]))
    if not splits or kept["label"].nunique() < 2:
        return
    st.markdown("**Predictions**", help=DISAGREEMENTS_HELP)
    split = splits[0]
    if len(splits) > 1:
        split = (
            st.segmented_control(
                "Samples",
                splits,
                default=split,
                required=True,
                key="predictions",
                bind="query-params",
                label_visibility="collapsed",
                format_func=inert,
            )
            or split
        )
    rows = kept[kept["split"] == split]
    files = {
        str(row.label): PredictionFile(Path(str(row.folder)), str(row.file))
        for row in rows.itertuples()
    }
    differ = predictions.disagreements(files, comparison.baseline)
    counts = predictions.count_disagreements(differ, files, comparison.spec, comparison.baseline)
    if differ.columns.empty:
        st.caption("The labels are not classes, so answers cannot be compared.")
        return
    num_samples = int(rows["num_samples"].iloc[0])
    left, right = st.columns([2, 3])
    with left:
        samples = words.plural(num_samples, f"{inert(split)} sample")
        show_table(
            f"Different answers for {linked('num_samples', samples)}", counts, "disagreements", ""
        )
    with right:
        classes = queries.workloads(store, comparison.experiment_id)["labels"].dropna()
        labels = list(classes.iloc[0]) if len(classes) else []
        shown = predictions.named(differ, list(files), labels)
        margins = {column: "margin" for column in shown if column.startswith("margin of ")}
        show_table(
            "Samples on which runs disagree with the baseline",
            shown,
            "disagreeing-samples",
            "None: every run gives the same answers.",
            margins,
        )
