"""Settings of the drawer: their places, their choices, and values of others that make them useless.

`runner/specs/` declares their labels, texts and ranges.
"""

import sys
from collections.abc import Mapping
from typing import Any, get_args

import streamlit as st

from breakeven.runner.checks.user_code import allowed_folders
from breakeven.runner.machine import environments
from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.specs.scenarios import SCENARIOS, ScenarioName
from breakeven.runner.specs.training import WITHOUT_WARM_UP, Metric, SplitName
from breakeven.runner.specs.workload import UNNAMED, Task, usual_name
from breakeven.views.form.fields import Fields, Offer
from breakeven.views.shared.inert import Markdown, code
from breakeven.views.shared.resources import data_dir

Columns = tuple[tuple[str, ...], ...]
"""Paths of fields, column by column."""

LENGTH: Columns = (("training.batch_size",), ("training.epochs",), ("training.max_steps",))
PARTS: dict[Markdown, Columns] = {
    "Steps and precision": (
        ("training.gradient_accumulation", "training.last_batch", "training.seed"),
        ("training.precision", "training.scaler_options"),
    ),
    "Optimizer": (
        ("training.optimizer", "training.learning_rate", "training.optimizer_options"),
        ("training.scheduler", "training.warmup_steps", "training.scheduler_options"),
        ("training.parameter_groups",),
    ),
    "Losses": (
        ("training.losses",),
        ("training.clip_norm", "training.clip_value"),
        ("training.gradient_statistics_every", "training.record_gradient_norm"),
    ),
    "Evaluation": (
        ("evaluation.when", "evaluation.every"),
        ("evaluation.splits", "evaluation.metric"),
        ("evaluation.predictions", "evaluation.compiled"),
    ),
    "Stopping early": (
        ("stopping.patience", "stopping.min_delta"),
        ("stopping.threshold",),
        ("stopping.nonfinite",),
    ),
    "Checkpoints": (
        ("checkpoints.every", "checkpoints.unit"),
        ("checkpoints.keep_last",),
        ("checkpoints.keep_best",),
    ),
}
"""Parts of the drawer by their titles."""
OF_SCENARIO: dict[ScenarioName, Columns] = {
    "speed": (
        ("speed.part", "speed.batches", "speed.warm_up_blocks"),
        ("speed.target_width", "speed.min_rounds", "speed.repeats"),
        ("speed.max_rounds", "speed.max_seconds"),
    ),
    "accuracy": (
        ("accuracy.parts",), ("accuracy.layers",), ("accuracy.tolerance",), ("accuracy.iterations",)
    ),
    "cache": (("cache.part",), ("cache.repeats",), ("cache.steps",)),
}  # fmt: skip
"""Fields of the scenarios that have their own."""
HINTS: dict[ScenarioName, Markdown] = {
    "speed": "The runs take turns on the same few batches. Measuring ends once every speedup is "
    "precise enough. The values below are fine for a first try."
}
"""Texts above the fields of a scenario."""
COSTS: dict[str, Markdown] = {
    "evaluation.compiled": "Each backend then compiles its model a second time, at its first "
    "evaluation. Step times do not include this time.",
    "stopping.nonfinite": "Every step of every run then waits until the device has computed the "
    "loss, which slows down short steps on a GPU.",
}
"""The time that a field costs if it is set."""
WITHOUT_TEST: tuple[SplitName, ...] = ("train", "validation")
NO_TEST = " `test` is offered once there are test samples."
OFFERS = {
    "training.losses": Offer(
        ("model", "CrossEntropyLoss", "0.5*CrossEntropyLoss:label_smoothing=0.1"), typed=True
    ),
    "training.parameter_groups": Offer(
        ("*.bias:weight_decay=0", "classifier.*:lr=0.001", "classifier.*:optimizer=SGD+lr=0.01"),
        typed=True,
    ),
    # Values of an earlier experiment stay, and the check reports errors.
    "callbacks": Offer(typed=True),
}


def offers(machine: Capabilities, task: Task, num_test_samples: int) -> dict[str, Offer]:
    """Choices of fields that depend on the machine, the task and the samples."""
    splits = Offer(get_args(SplitName) if num_test_samples else WITHOUT_TEST)
    return {
        **OFFERS,
        "training.optimizer": Offer(machine.optimizers),
        "evaluation.splits": splits,
        "evaluation.predictions": splits,
        "evaluation.metric": Offer(("loss", *task.metrics) if task.metrics else get_args(Metric)),
    }


def ask(
    fields: Fields, columns: Columns, offers: Mapping[str, Offer] = OFFERS,
    task: Task | None = None, values: Mapping[str, Any] = {},
) -> None:  # fmt: skip
    """Shows fields in columns, each with the reason why it cannot change now, if there is one;
    `values`: first values by path, instead of the preset's."""
    for column, paths in zip(st.columns(len(columns)), columns, strict=True):
        with column:
            for path in paths:
                offer, unless = offers.get(path, Offer()), pointless(path, fields, task)
                note = NO_TEST if offer.choices == WITHOUT_TEST else ""
                given = fields.ask(path, note=note, offer=offer, value=values.get(path),
                                   unless=unless)  # fmt: skip
                if path in COSTS and given and not unless:
                    st.caption(f":material/hourglass_top: {COSTS[path]}")


def pointless(path: str, fields: Fields, task: Task | None) -> Markdown:
    """Why a field would have no effect, given the fields before it; empty if it has one."""
    given = fields.given
    match path:
        case "training.scaler_options" if given("training.precision") != "fp16":
            return "Only `fp16` needs a loss scaler"
        case "training.warmup_steps" if given("training.scheduler") in WITHOUT_WARM_UP:
            return f"{code(given('training.scheduler'))} has no warm-up"
        case "evaluation.predictions":
            no_answer = "This task predicts every token"
            return no_answer if task and task.labels == "token" else ""
        case (
            "evaluation.every" | "evaluation.splits" | "evaluation.metric" | "evaluation.compiled"
            | "stopping.patience" | "stopping.threshold"
        ) if given("evaluation.when") == "never":  # fmt: skip
            return "There is no evaluation"
        case "evaluation.every" if given("evaluation.when") not in ("epochs", "steps"):
            return "The only evaluation is at the end"
        case "stopping.min_delta" if not given("stopping.patience"):
            return "Early stopping is off"
        case "checkpoints.unit" | "checkpoints.keep_last" | "checkpoints.keep_best" if not given(
            "checkpoints.every"
        ):
            return "No checkpoint is made"
        case "callbacks" if not (allowed_folders() or fields.start_of("callbacks")):
            return "No folder of code is allowed"
    return ""


def ask_scenario(fields: Fields) -> None:
    """Asks for the scenario, then for its own fields."""
    # Searches and investigations have buttons of their own.
    known = [one for one in SCENARIOS.values() if not (one.searches or one.compares_causes)]
    scenario = fields.ask(
        "scenario",
        " ".join(f"`{one.name}`: {one.text}" for one in known),
        offer=Offer(choices=[one.name for one in known]),
    )
    if scenario in HINTS:
        st.caption(HINTS[scenario])
    if scenario in OF_SCENARIO:
        ask(fields, OF_SCENARIO[scenario])


def ask_experiment(fields: Fields, machine: Capabilities) -> None:
    """Asks for the environments, the experiment's name, its devices, and how its runs take
    turns."""
    fields.ask("environments", offer=Offer(choices=_environments(), typed=True))
    what, where, turns = st.columns(3)
    with where:  # first, because the name contains the device
        fields.ask_listed("devices", _offered(machine))
        fields.ask_all("parallel", "nodes", "cpus", "exclusive", "priority", "cpu_threads",
                       "time_limit_seconds")  # fmt: skip
    with what:
        model, data, precision, batch_size, backends, devices = (
            fields.given(one)
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


def _environments() -> tuple[str, ...]:
    """Breakeven's own Python, and the environments that commands have made."""
    made = environments.uv_environments(data_dir())
    return (f"{environments.OWN}={sys.executable}", *(f"{one.name}={one.python}" for one in made))


def _offered(machine: Capabilities) -> list[str]:
    """Each device; with several GPUs also any one of them, and all together."""
    ids = [device.id for device in machine.devices]
    gpus = [id for id in ids if id.startswith("cuda")]
    return [*ids, "cuda", ",".join(gpus)] if len(gpus) > 1 else ids
