"""The parts of the form: length, steps, optimizer, losses, evaluation, stopping, scenario, place.

Labels, texts and ranges are those that `runner/specs/` declares.
"""

from typing import get_args

import streamlit as st

from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.specs.scenarios import SCENARIOS, ScenarioName
from breakeven.runner.specs.training import WITHOUT_WARM_UP, Metric, SplitName
from breakeven.runner.specs.workload import UNNAMED, Task, usual_name
from breakeven.views.form.fields import Fields, Offer
from breakeven.views.shared.inert import Markdown, code
from breakeven.views.shared.own_code import show_permission

LOSSES = ("model", "CrossEntropyLoss", "0.5*CrossEntropyLoss:label_smoothing=0.1")
GROUPS = ("*.bias:weight_decay=0", "classifier.*:lr=0.001", "classifier.*:optimizer=SGD+lr=0.01")
NEVER = "Nothing is evaluated"


def ask_length(fields: Fields, batch_size: int) -> None:
    """How much work a step is and how many there are. `batch_size`: at first."""
    size, epochs, steps = st.columns(3)
    with size:
        fields.ask("training.batch_size", value=batch_size)
    with epochs:
        fields.ask("training.epochs")
    with steps:
        fields.ask("training.max_steps")


def ask_steps(fields: Fields) -> None:
    """What else a step is, and in which precision."""
    size, numbers = st.columns(2)
    with size:
        fields.ask_all("training.gradient_accumulation", "training.last_batch", "training.seed")
    with numbers:
        precision = fields.ask("training.precision")
        fields.ask(
            "training.scaler_options",
            unless="" if precision == "fp16" else "Only `fp16` needs a loss scaler",
        )


def ask_optimizer(fields: Fields, machine: Capabilities) -> None:
    """How gradients become new weights, and how fast."""
    step, rate, groups = st.columns(3)
    with step:
        fields.ask("training.optimizer", offer=Offer(machine.optimizers))
        fields.ask_all("training.learning_rate", "training.optimizer_options")
    with rate:
        scheduler = fields.ask("training.scheduler")
        rises = scheduler not in WITHOUT_WARM_UP
        unless = "" if rises else f"{code(scheduler)} has no warm-up"
        fields.ask("training.warmup_steps", unless=unless)
        fields.ask("training.scheduler_options")
    with groups:
        fields.ask("training.parameter_groups", offer=Offer(GROUPS, typed=True))


def ask_losses(fields: Fields) -> None:
    """What is minimized, how gradients are kept in bounds, what is recorded of them."""
    losses, bounds, records = st.columns(3)
    with losses:
        fields.ask("training.losses", offer=Offer(LOSSES, typed=True))
    with bounds:
        fields.ask_all("training.clip_norm", "training.clip_value")
    with records:
        fields.ask_all("training.gradient_statistics_every", "training.record_gradient_norm")


def ask_evaluation(fields: Fields, task: Task, num_test_samples: int) -> bool:
    """When and on which samples; whether at all."""
    splits = get_args(SplitName) if num_test_samples else ("train", "validation")
    no_test = "" if num_test_samples else " `test` is offered once there are test samples."
    points, samples, ways = st.columns(3)
    with points:
        when = fields.ask("evaluation.when")
        never = NEVER if when == "never" else ""
        once = "" if when in ("epochs", "steps") else never or "It is evaluated once, at the end"
        fields.ask("evaluation.every", unless=once)
    with samples:
        fields.ask("evaluation.splits", note=no_test, offer=Offer(splits), unless=never)
        metrics = ("loss", *task.metrics) if task.metrics else get_args(Metric)
        fields.ask("evaluation.metric", offer=Offer(metrics), unless=never)
    with ways:
        fields.ask(
            "evaluation.predictions", note=no_test, offer=Offer(splits),
            unless="This task has an answer for every token" if task.labels == "token" else "",
        )  # fmt: skip
        compiled = fields.ask("evaluation.compiled", unless=never)
        if compiled and not never:
            _warn_of_time(
                "Each backend compiles its model once more for this, at its first evaluation. That "
                "time counts for no step."
            )
    return not never


def ask_stopping(fields: Fields, evaluated: bool) -> None:
    """When training ends before its last step."""
    blind = "" if evaluated else NEVER
    patience, threshold, nonfinite = st.columns(3)
    with patience:
        given = fields.ask("stopping.patience", unless=blind)
        fields.ask("stopping.min_delta", unless="" if given else "There is no patience to lose")
    with threshold:
        fields.ask("stopping.threshold", unless=blind)
    with nonfinite:
        if fields.ask("stopping.nonfinite"):
            _warn_of_time(
                "Every step of every run then waits until the device has computed its loss, which "
                "slows down short steps on a GPU."
            )


def ask_checkpoints(fields: Fields) -> None:
    """When everything is saved that training needs to go on."""
    often, last, best = st.columns(3)
    with often:
        every = fields.ask("checkpoints.every")
        none = "" if every else "No checkpoint is made"
        fields.ask("checkpoints.unit", unless=none)
    with last:
        fields.ask("checkpoints.keep_last", unless=none)
    with best:
        fields.ask("checkpoints.keep_best", unless=none)


def ask_scenario(fields: Fields) -> None:
    """The scenario, and then the fields that belong to it alone."""
    scenario = fields.ask(
        "scenario", " ".join(f"`{one.name}`: {one.text}" for one in SCENARIOS.values())
    )
    if scenario in HINTS:
        st.caption(HINTS[scenario])
    columns = OF_SCENARIO.get(scenario, ())
    for column, paths in zip(st.columns(len(columns)) if columns else (), columns, strict=True):
        with column:
            fields.ask_all(*(f"{scenario}.{path}" for path in paths))


OF_SCENARIO: dict[ScenarioName, tuple[tuple[str, ...], ...]] = {
    "speed": (
        ("part", "batches", "warm_up_blocks"),
        ("target_width", "min_rounds", "repeats"),
        ("max_rounds", "max_seconds"),
    ),
    "accuracy": (("parts",), ("layers",), ("tolerance",), ("iterations",)),
    "cache": (("part",), ("repeats",), ("steps",)),
}
"""The fields of scenarios that have some of their own, column by column."""
HINTS: dict[ScenarioName, Markdown] = {
    "speed": "The runs take turns on the same few batches. Once every speedup is known exactly "
    "enough, measuring ends by itself. The values below will do for a first look."
}
"""What is to be known before the fields of a scenario."""


def ask_callbacks(fields: Fields) -> None:
    """Classes of one's own that are called while training."""
    allowed = show_permission()
    fields.ask(
        "callbacks",
        # What an earlier experiment had is not dropped without a word: the check says it.
        offer=Offer(typed=True),
        unless="" if allowed or fields.start_of("callbacks") else "No folder is allowed",
    )  # fmt: skip


def ask_experiment(fields: Fields, machine: Capabilities) -> None:
    """What the experiment is called, where it runs, and how its runs take turns."""
    what, where, turns = st.columns(3)
    with where:  # first, because the name says which device
        fields.ask_listed("devices", _offered(machine))
        fields.ask_all("parallel", "nodes", "cpus", "exclusive", "priority", "cpu_threads",
                       "time_limit_seconds")  # fmt: skip
    with what:
        model, data, precision, batch_size, backends, devices = (
            fields.given_or_start(one)
            for one in ("model.source", "data.source", "training.precision",
                        "training.batch_size", "backends", "devices")
        )  # fmt: skip
        named = usual_name(model, data, precision=precision, batch_size=batch_size,
                           backends=backends, device=", ".join(devices))  # fmt: skip
        is_own = bool(model and fields.start_of("name") in UNNAMED)
        fields.ask("name", value=named if is_own else None, derived=is_own)
        fields.ask_all("controls", "more_controls", "settings")
    with turns:
        fields.ask_all("schedule", "compile", "keep_code", "keep_trace", "block_steps",
                       "profile_steps")  # fmt: skip


def _offered(machine: Capabilities) -> list[str]:
    """Each device, and of several GPUs any one and all together."""
    ids = [device.id for device in machine.devices]
    gpus = [id for id in ids if id.startswith("cuda")]
    return [*ids, "cuda", ",".join(gpus)] if len(gpus) > 1 else ids


def _warn_of_time(text: Markdown) -> None:
    st.caption(f":material/hourglass_top: {text}")
