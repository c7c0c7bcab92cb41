"""The part of the form that says how a model is judged, when training ends, what is saved."""

from typing import get_args

import streamlit as st

from breakeven.runner.specs.training import Metric, SplitName
from breakeven.runner.specs.workload import Task
from breakeven.views.form.fields import Fields, Offer
from breakeven.views.shared.inert import inert

NEVER = "Nothing is evaluated"


def ask_evaluation(fields: Fields, task: Task, num_test_samples: int) -> bool:
    """When and on which samples; whether at all."""
    splits = get_args(SplitName) if num_test_samples else ("train", "validation")
    no_test = "" if num_test_samples else " `test` is offered once there are test samples."
    points, samples, ways = st.columns(3)
    with points:
        when = fields.ask(
            "evaluation.when", "Evaluate",
            "When the model is judged: after `epochs` or `steps`, only at the `end`, or `never`. "
            "The time it takes counts for no run.",
        )  # fmt: skip
        never = NEVER if when == "never" else ""
        once = "" if when in ("epochs", "steps") else never or "It is evaluated once, at the end"
        fields.ask("evaluation.every", "Evaluate every",
                   f"How many {inert(when)} lie between two evaluations; the end is evaluated in "
                   "any case.", unless=once)  # fmt: skip
    with samples:
        fields.ask(
            "evaluation.splits", "On samples of",
            "The first one ranks checkpoints, stops training early and drives the schedule "
            f"`plateau`. `train` takes long where there are many train samples.{no_test}",
            offer=Offer(splits), unless=never,
        )  # fmt: skip
        metrics = ("loss", *task.metrics) if task.metrics else get_args(Metric)
        fields.ask("evaluation.metric", "Metric", offer=Offer(metrics), unless=never)
    with ways:
        fields.ask(
            "evaluation.predictions", "Keep predictions for",
            "At the end, writes labels and logits of these samples to a file: for the confusion "
            f"matrix, and for the samples on which backends disagree.{no_test}",
            offer=Offer(splits),
            unless="This task has an answer for every token" if task.labels == "token" else "",
        )  # fmt: skip
        compiled = fields.ask(
            "evaluation.compiled", "Evaluate the compiled model, too",
            "A backend's model is judged as it was compiled, beside the same weights without a "
            "compiler: a fault that shows only when the model answers is found this way.",
            unless=never,
        )  # fmt: skip
        if compiled and not never:
            st.caption(
                ":material/hourglass_top: Each backend compiles its model once more for this, at "
                "its first evaluation. That time counts for no step."
            )
    return not never


def ask_stopping(fields: Fields, evaluated: bool) -> None:
    """When training ends before its last step."""
    blind = "" if evaluated else NEVER
    patience, threshold, nonfinite = st.columns(3)
    with patience:
        given = fields.ask("stopping.patience", "Patience",
                           "Ends training after so many evaluations in a row without a better "
                           "value of the metric. Empty: it goes on.",
                           empty="go on", unless=blind)  # fmt: skip
        fields.ask("stopping.min_delta", "Least improvement",
                   unless="" if given else "There is no patience to lose")  # fmt: skip
    with threshold:
        fields.ask("stopping.threshold", "Good enough at",
                   "Ends training once the metric has reached this value. Empty: it goes on.",
                   empty="go on", unless=blind)  # fmt: skip
    with nonfinite:
        stops = fields.ask("stopping.nonfinite", "Stop at NaN or infinity",
                           "Ends training in the step whose loss is not finite.")  # fmt: skip
        if stops:
            st.caption(
                ":material/hourglass_top: Every step of every run then waits until the device has "
                "computed its loss, which slows down short steps on a GPU."
            )


def ask_checkpoints(fields: Fields) -> None:
    """When everything is saved that training needs to go on."""
    often, last, best = st.columns(3)
    with often:
        every = fields.ask("checkpoints.every", "Checkpoint every",
                           "How many epochs or steps lie between checkpoints, from which a run "
                           "that was stopped or lost goes on exactly. Empty: none.",
                           empty="no checkpoints")  # fmt: skip
        none = "" if every else "No checkpoint is made"
        fields.ask("checkpoints.unit", "Counted in", "Epochs or steps.", unless=none)
    with last:
        fields.ask("checkpoints.keep_last", "Keep the latest",
                   "Latest checkpoints that are kept; each is about three times as large as the "
                   "model.", unless=none)  # fmt: skip
    with best:
        fields.ask("checkpoints.keep_best", "Keep the best",
                   "Checkpoints that are kept for their value of the metric, beside the latest. "
                   "Only one made where the model is evaluated, too, has a value.",
                   unless=none)  # fmt: skip
