"""The part of the form that says how the model is trained: the usual, and what few change."""

from typing import Any, get_args

import streamlit as st

from runner.capabilities import Capabilities
from runner.spec import TrainingSpec
from runner.training_spec import EvaluationPoint, Precision, Scheduler
from views.fields import Fields


def usual(fields: Fields, start: TrainingSpec, machine: Capabilities) -> dict[str, Any]:
    """What almost every training sets."""
    return {
        "optimizer": fields.choice("Optimizer", "optimizer", start.optimizer,
                                   list(machine.optimizers), "A class of `torch.optim`."),
        "learning_rate": fields.real("Learning rate", "learning_rate", start.learning_rate,
                                     "Step size of the optimizer, the highest of a schedule.",
                                     step=1e-5),
        "batch_size": fields.number("Batch size", "batch_size", start.batch_size,
                                    "Samples that the device works on at once."),
        "epochs": fields.number("Epochs", "epochs", start.epochs, "Passes over the train samples."),
        "precision": fields.choice(
            "Precision", "precision", start.precision, list(get_args(Precision)),
            "`tf32` lets float32 products use TF32; `bf16` and `fp16` are autocast. `tf32` and "
            "`fp16` need a GPU."),
        "seed": fields.number("Seed", "seed", start.seed, "Decides weights, samples, their order, "
                              "dropout and the order of turns.", lowest=0),
    }  # fmt: skip


def unusual(fields: Fields, start: TrainingSpec, precision: str) -> dict[str, Any]:
    """What a first comparison can leave alone, in three columns."""
    schedule, gradients, evaluation = st.columns(3)
    with schedule:
        st.markdown("**Learning rate and optimizer**")
        values = _schedule(fields, start)
    with gradients:
        st.markdown("**Steps and gradients**")
        values |= _gradients(fields, start)
    with evaluation:
        st.markdown("**Evaluation**")
        values |= _evaluation(fields, start)
        if precision == "fp16":
            values["scaler_options"] = fields.options(
                "Loss scaler options", "scaler_options", start.scaler_options,
                "Arguments of `torch.amp.GradScaler`, which keeps small fp16 gradients from "
                "vanishing, such as `init_scale=1024`.")  # fmt: skip
        else:
            values["scaler_options"] = {}
    return values


def _schedule(fields: Fields, start: TrainingSpec) -> dict[str, Any]:
    return {
        "scheduler": fields.choice(
            "Learning rate schedule", "scheduler", start.scheduler, list(get_args(Scheduler)),
            "How the learning rate changes with the steps. `constant` leaves it as it is; `linear` "
            "and `cosine` let it fall to 0; `plateau` lowers it when the held-out loss stops "
            "falling."),
        "warmup_steps": fields.number(
            "Warm-up steps", "warmup_steps", start.warmup_steps,
            "Steps over which the learning rate first rises from 0. Not with `step`, `multistep` "
            "and `plateau`.", lowest=0),
        "scheduler_options": fields.options(
            "Schedule options", "scheduler_options", start.scheduler_options,
            "Arguments of the schedule: `num_cycles=2` for `cosine_with_restarts`, "
            "`step_size=30, gamma=0.5` for `step`, `milestones=(30, 60)` for `multistep`."),
        "optimizer_options": fields.options(
            "Optimizer options", "optimizer_options", start.optimizer_options,
            "Arguments of the optimizer beside the learning rate, such as `weight_decay=0.01, "
            "betas=(0.9, 0.95)`."),
    }  # fmt: skip


def _gradients(fields: Fields, start: TrainingSpec) -> dict[str, Any]:
    return {
        "gradient_accumulation": fields.number(
            "Gradient accumulation", "gradient_accumulation", start.gradient_accumulation,
            "Batches whose gradients are added up for one optimizer step: a larger batch than the "
            "memory holds."),
        "max_steps": fields.number(
            "Steps in all", "max_steps", start.max_steps,
            "Ends the training after so many optimizer steps, however many epochs that takes. "
            "Empty: the number of epochs decides.", empty="as the epochs say"),
        "clip_norm": fields.real(
            "Clip gradients to norm", "clip_norm", start.clip_norm,
            "Scales all gradients of a step down together if their norm is larger. Empty: no "
            "clipping.", step=0.1, empty="no clipping"),
        "clip_value": fields.real(
            "Clip gradients to value", "clip_value", start.clip_value,
            "Cuts each element of a gradient to at most this size. Empty: no clipping.",
            step=0.1, empty="no clipping"),
        "record_gradient_norm": fields.switch(
            "Record the gradient norm", "record_gradient_norm", start.record_gradient_norm,
            "Charts the norm of the gradients, before clipping, over the steps. Costs a little "
            "time in every step of every run."),
    }  # fmt: skip


def _evaluation(fields: Fields, start: TrainingSpec) -> dict[str, Any]:
    return {
        "evaluation": fields.choice(
            "Evaluate", "evaluation", start.evaluation, list(get_args(EvaluationPoint)),
            "When loss and accuracy on the held-out samples are measured: after `epochs` or "
            "`steps`, only at the `end`, or `never`. The time it takes counts for no run."),
        "evaluate_every": fields.number(
            "Evaluate every", "evaluate_every", start.evaluate_every,
            "How many epochs or steps lie between two evaluations; the end is evaluated in any "
            "case."),
    }  # fmt: skip
