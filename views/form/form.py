"""The form of Launch: planned length, workload and backends; all other settings in one drawer.

`runner/specs/` declares labels, texts and ranges of the settings.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, get_args

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from breakeven.runner.checks.allowed_code import allowed_folders
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.machine import uv_environments
from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenarios.base import ScenarioName
from breakeven.runner.specs.scenarios.by_name import SCENARIOS
from breakeven.runner.specs.training import WITHOUT_WARM_UP, Metric, SplitName
from breakeven.runner.specs.workload import SCRIPT_PREFIX, UNNAMED, Task, usual_name
from breakeven.views.form import workload as workload_form
from breakeven.views.form.arms import ask_arms
from breakeven.views.form.backends import ask_backends
from breakeven.views.form.field_widgets import Fields, Offer
from breakeven.views.shared.inert import Markdown, code
from breakeven.views.shared.resources import data_dir

PLACE = "Device and turns"
EPOCHS, STEPS = "epochs", "steps"


class OwnWorkload(NamedTuple):
    """The chosen task and data."""

    task: workload_form.ChosenTask
    data: workload_form.ChosenData


def spec_form(
    preset: str,
    start: ExperimentSpec,
    machine: Capabilities,
    check: Callable[[ExperimentSpec, Capabilities], None],
    blamed: InvalidSpec | None,
    name_place: DeltaGenerator,
) -> ExperimentSpec | None:
    """Shows the form, filled from `start`, and the field of the name in its own place.  Returns the
    specification, or None if it cannot run (yet); the form then shows why. `check` raises
    `InvalidSpec` for a setting that this machine cannot run, and returns warnings. `blamed` is the
    field that made an earlier run with this start fail. The form shows the error at the top and at
    the field while the field is unchanged.
    """
    fields = Fields(preset, start)
    above = st.container()
    own = None
    st.markdown("##### How long do you mean to train?")
    _ask_plan(fields, start)
    st.markdown("##### What")
    if start.workload.is_own_program:
        workload_form.ask_script(fields)
    else:
        own = _ask_workload(fields, start, machine)
        if start.data.is_file:
            workload_form.show_data(own.data)
    usage_place = st.empty()
    st.markdown("##### Which arms" if own is None else "##### Which backends")
    ask_backends(fields, start, machine)
    if own is None:
        script = str(fields.given("model.source")).removeprefix(SCRIPT_PREFIX)
        ask_arms(fields, Path(script) if script else None)
        _ask_rest_of_script(fields, machine)
    else:
        _ask_rest(fields, start, machine, own)
    with name_place:
        ask_name(fields)
    if not fields.given(start.workload.source_field):
        return None
    try:
        spec = fields.spec()
        if blamed is not None and fields.value_in(spec, blamed.field) == blamed.value:
            reason = f"**This setting caused the failure.** {fields.show(blamed)}"
            above.warning(reason, icon=":material/error:")
            fields.unfold(blamed.field)
        check(spec, machine)
    except InvalidSpec as error:
        st.error(f"This cannot run yet. {fields.show(error)}", icon=":material/error:")
        return None
    if own and own.data.head is not None:
        usage_place.markdown(workload_form.usage_text(spec, own.data.head))
    if changes := fields.changes(spec):
        st.caption(f"**Changed:** {' · '.join(changes)}")
    return spec


def _ask_plan(fields: Fields, start: ExperimentSpec) -> None:
    """Asks for the steps of the intended training, from which follows how much is measured."""
    scenario = SCENARIOS.get(fields.typed("scenario", start.scenario), start.kind)
    unless = "" if scenario.trains_fully else f"{code(scenario.name)} has no planned steps"
    steps, _ = st.columns([1, 2])
    with steps:
        fields.ask("plan.steps", label="Steps of your training", unless=unless)


def ask_measured_length(fields: Fields) -> None:
    """Asks how long the runs train: in epochs or in steps."""
    starts = fields.start_of("training.max_steps") or fields.typed("max_steps", "")
    unit = fields.choose(
        "measured", "Each run trains", [EPOCHS, STEPS], STEPS if starts else EPOCHS
    )
    path = "training.max_steps" if unit == STEPS else "training.epochs"
    fields.ask(path)
    if unit == EPOCHS:
        fields.put("training.max_steps", None, "Steps in all")


def _ask_rest(
    fields: Fields, start: ExperimentSpec, machine: Capabilities, own: OwnWorkload
) -> None:
    """Asks for all settings whose defaults usually suffice."""
    first, *last = "Model and samples", "Other scenarios", "Own code", PLACE
    with fields.drawer((first, *PARTS, *last)):
        with fields.subject(first):
            left, right = st.columns(2)
            with left:
                fields.ask("model.dropout")
                if own.task.fits.samples in ("texts", "random"):
                    fields.ask("data.sequence_length")
            with right:
                num_test = workload_form.ask_samples(fields, start.data, own.data)
        offers = offers_for(machine, own.task.fits, num_test)
        for title, columns in PARTS.items():
            with fields.subject(title):
                if title == LENGTH:
                    ask_measured_length(fields)
                ask_columns(fields, columns, offers, own.task.fits)
        with fields.subject("Other scenarios"):
            ask_scenario(fields)
        with fields.subject("Own code"):
            workload_form.show_permission()
            ask_columns(fields, (("callbacks",),))
        with fields.subject(PLACE):
            ask_experiment(fields, machine)


def _ask_rest_of_script(fields: Fields, machine: Capabilities) -> None:
    """Asks for the few settings that a script does not decide itself."""
    first = "How the script is run"
    with fields.drawer((first, PLACE)):
        with fields.subject(first):
            ask_columns(fields, workload_form.SCRIPT_HOW)
        with fields.subject(PLACE):
            ask_experiment(fields, machine)


def _ask_workload(fields: Fields, start: ExperimentSpec, machine: Capabilities) -> OwnWorkload:
    left, middle, right, last = st.columns([3, 3, 3, 1])
    with left:
        task = workload_form.ask_task(fields, start, machine)
    with middle:
        workload_form.ask_model(fields, task)
    with right:
        data = workload_form.ask_data(fields, task)
    with last:
        batch_size = workload_form.fitting_batch(start, data.head)
        fields.ask("training.batch_size", value=batch_size)
    return OwnWorkload(task, data)


Columns = tuple[tuple[str, ...], ...]
"""Paths of fields, column by column."""

LENGTH = "Length and precision"
PARTS: dict[Markdown, Columns] = {
    LENGTH: (
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


def offers_for(machine: Capabilities, task: Task, num_test_samples: int) -> dict[str, Offer]:
    """Choices of fields that depend on the machine, the task and the samples."""
    splits = Offer(get_args(SplitName) if num_test_samples else WITHOUT_TEST)
    return {
        **OFFERS,
        "training.optimizer": Offer(machine.optimizers),
        "evaluation.splits": splits,
        "evaluation.predictions": splits,
        "evaluation.metric": Offer(("loss", *task.metrics) if task.metrics else get_args(Metric)),
    }


def ask_columns(
    fields: Fields,
    columns: Columns,
    offers: Mapping[str, Offer] = OFFERS,
    task: Task | None = None,
) -> None:
    """Shows fields in columns, each with the reason why it cannot change now, if there is one."""
    for column, paths in zip(st.columns(len(columns)), columns, strict=True):
        with column:
            for path in paths:
                offer, unless = offers.get(path, Offer()), why_without_effect(path, fields, task)
                note = NO_TEST if offer.choices == WITHOUT_TEST else ""
                given = fields.ask(
                    path,
                    note=note,
                    offer=offer,
                    unless=unless,
                )
                if path in COSTS and given and not unless:
                    st.caption(f":material/hourglass_top: {COSTS[path]}")


def why_without_effect(path: str, fields: Fields, task: Task | None) -> Markdown:
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
            "evaluation.every"
            | "evaluation.splits"
            | "evaluation.metric"
            | "evaluation.compiled"
            | "stopping.patience"
            | "stopping.threshold"
        ) if given("evaluation.when") == "never":
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
    known = [scenario for scenario in SCENARIOS.values() if scenario.is_in_form]
    name: ScenarioName = fields.ask(
        "scenario",
        " ".join(f"`{scenario.name}`: {scenario.text}" for scenario in known),
        offer=Offer(choices=[scenario.name for scenario in known]),
    )
    chosen = SCENARIOS[name]
    if chosen.form_hint:
        st.caption(chosen.form_hint)
    if chosen.form_fields:
        ask_columns(fields, chosen.form_fields)


def ask_experiment(fields: Fields, machine: Capabilities) -> None:
    """Asks for the environments, the devices, controls and limits, and how runs take turns."""
    fields.ask("environments", offer=Offer(choices=_environments(), typed=True))
    what, where, turns = st.columns(3)
    with where:
        fields.ask_listed("devices", _offered(machine))
        fields.ask_all(
            "parallel",
            "nodes",
            "cpus",
            "exclusive",
            "priority",
            "cpu_threads",
            "time_limit_seconds",
        )
    with what:
        fields.ask_all("controls", "more_controls", "same", "margin", "settings", "family")
        fields.ask_all("plan.starts", "plan.max_seconds", "plan.target_width", "plan.parity")
    with turns:
        fields.ask_all(
            "schedule", "compile", "keep_code", "keep_trace", "block_steps", "profile_steps"
        )


def ask_name(fields: Fields) -> None:
    """Asks for the name, which follows from the other fields until it is typed."""
    model, data, precision, batch_size, backends, named_arms, devices = (
        fields.given(path)
        for path in (
            "model.source",
            "data.source",
            "training.precision",
            "training.batch_size",
            "backends",
            "named_arms",
            "devices",
        )
    )
    named = usual_name(
        model,
        data,
        precision=precision,
        batch_size=batch_size,
        backends=(*backends, *(text.partition("=")[0] for text in named_arms)),
        device=", ".join(devices),
    )
    is_own = bool(model and fields.start_of("name") in UNNAMED)
    fields.ask("name", value=named if is_own else None, derived=is_own)


def _environments() -> tuple[str, ...]:
    """Breakeven's own Python, and the environments that commands have made."""
    made = uv_environments.uv_environments(data_dir())
    return (
        f"{uv_environments.OWN}={sys.executable}",
        *(f"{environment.name}={environment.python}" for environment in made),
    )


def _offered(machine: Capabilities) -> list[str]:
    """Each device; with several GPUs also any one of them, and all together."""
    ids = [device.id for device in machine.devices]
    gpus = [id for id in ids if id.startswith("cuda")]
    return [*ids, "cuda", ",".join(gpus)] if len(gpus) > 1 else ids
