"""The part of the form that says how the model is trained."""

import streamlit as st

from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.specs.training import WITHOUT_WARM_UP
from breakeven.views.form.fields import Fields, Offer
from breakeven.views.shared.inert import code

LOSSES = ("model", "CrossEntropyLoss", "0.5*CrossEntropyLoss:label_smoothing=0.1")
GROUPS = ("*.bias:weight_decay=0", "classifier.*:lr=0.001", "classifier.*:optimizer=SGD+lr=0.01")


def ask_batches(fields: Fields, batch_size: int) -> None:
    """How much work a step is, how many there are, in which precision. `batch_size`: at first."""
    size, length, numbers = st.columns(3)
    with size:
        fields.ask("training.batch_size", "Batch size", "Samples that the device works on at once.",
                   value=batch_size)  # fmt: skip
        fields.ask("training.gradient_accumulation", "Gradient accumulation",
                   "Batches whose gradients are added up for one optimizer step: a larger batch "
                   "than the memory holds.")  # fmt: skip
        fields.ask(
            "training.last_batch", "Last batch of an epoch",
            "What becomes of samples that do not fill it: `drop` leaves them out, `pad` fills it "
            "up with samples that do not count, `dynamic` makes it smaller, its size a symbol to "
            "the compiler. None of them compiles anew in the middle of the training.",
        )  # fmt: skip
    with length:
        fields.ask("training.epochs", "Epochs", "Passes over the train samples.")
        fields.ask("training.max_steps", "Steps in all",
                   "Ends the training after so many optimizer steps, however many epochs that "
                   "takes. Empty: the number of epochs decides.",
                   empty="as the epochs say")  # fmt: skip
        fields.ask("training.seed", "Seed")
    with numbers:
        precision = fields.ask(
            "training.precision", "Precision",
            "`tf32` lets float32 products use TF32; `bf16` and `fp16` are autocast. `tf32` and "
            "`fp16` need a GPU.",
        )  # fmt: skip
        fields.ask(
            "training.scaler_options", "Loss scaler options",
            "Arguments of `torch.amp.GradScaler`, which keeps small fp16 gradients from "
            "vanishing, such as `init_scale=1024`.",
            unless="" if precision == "fp16" else "Only `fp16` needs a loss scaler",
        )  # fmt: skip


def ask_optimizer(fields: Fields, machine: Capabilities) -> None:
    """How gradients become new weights, and how fast."""
    step, rate, groups = st.columns(3)
    with step:
        fields.ask("training.optimizer", "Optimizer", "A class of `torch.optim`.",
                   offer=Offer(machine.optimizers))  # fmt: skip
        fields.ask("training.learning_rate", "Learning rate",
                   "Step size of the optimizer, the highest of a schedule.")  # fmt: skip
        fields.ask("training.optimizer_options", "Optimizer options",
                   "Arguments of the optimizer beside the learning rate, such as "
                   "`weight_decay=0.01, betas=(0.9, 0.95)`.")  # fmt: skip
    with rate:
        scheduler = fields.ask(
            "training.scheduler", "Learning rate schedule",
            "How the learning rate changes with the steps. `constant` leaves it as it is; `linear` "
            "and `cosine` let it fall to 0; `plateau` lowers it when the held-out loss stops "
            "falling.",
        )  # fmt: skip
        rises = scheduler not in WITHOUT_WARM_UP
        fields.ask("training.warmup_steps", "Warm-up steps",
                   unless="" if rises else f"{code(scheduler)} has no warm-up")  # fmt: skip
        fields.ask(
            "training.scheduler_options", "Schedule options",
            "Arguments of the schedule: `num_cycles=2` for `cosine_with_restarts`, "
            "`step_size=30, gamma=0.5` for `step`, `milestones=(30, 60)` for `multistep`.",
        )  # fmt: skip
    with groups:
        fields.ask(
            "training.parameter_groups", "Parameters with an optimizer of their own",
            "`pattern:setting=value`, where the pattern matches names of parameters: "
            "`classifier.*:optimizer=SGD+lr=0.01`. A parameter belongs to the first pattern that "
            "matches, all others to the optimizer on the left.",
            offer=Offer(GROUPS, typed=True),
        )  # fmt: skip


def ask_losses(fields: Fields) -> None:
    """What is minimized, how gradients are kept in bounds, what is recorded of them."""
    losses, bounds, records = st.columns(3)
    with losses:
        fields.ask(
            "training.losses", "Losses",
            "`model` is the loss that the model itself returns. Others are criteria of `torch.nn` "
            "on logits and labels, weighed and with settings as in "
            "`0.5*CrossEntropyLoss:label_smoothing=0.1`. Several are added up and each is charted.",
            offer=Offer(LOSSES, typed=True),
        )  # fmt: skip
    with bounds:
        fields.ask("training.clip_norm", "Clip gradients to norm",
                   "Scales all gradients of a step down together if their norm is larger. Empty: "
                   "no clipping.", empty="no clipping")  # fmt: skip
        fields.ask("training.clip_value", "Clip gradients to value",
                   "Cuts each element of a gradient to at most this size. Empty: no clipping.",
                   empty="no clipping")  # fmt: skip
    with records:
        fields.ask("training.gradient_statistics_every", "Gradient statistics every",
                   "Every so many steps, charts the norm of each parameter's gradient and records "
                   "its mean, deviation, largest element and share of zeros. Empty: never.",
                   empty="never")  # fmt: skip
        fields.ask("training.record_gradient_norm", "Record the gradient norm",
                   "Charts the norm of all gradients, before clipping, over the steps. Costs a "
                   "little time in every step of every run.")  # fmt: skip
