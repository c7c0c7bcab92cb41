"""The form behind Launch: every field of a specification, each with a sentence of help."""

from dataclasses import replace
from typing import Any, get_args, get_type_hints

import streamlit as st

from runner.capabilities import Capabilities
from runner.spec import DataSpec, ExperimentSpec, ModelSpec, Schedule, TrainingSpec
from runner.variants import parse_backend
from runner.workload_spec import BUILTIN_DATA, BUILTIN_MODELS
from views import training_form
from views.fields import Fields

VARIANTS = (
    "inductor:mode=reduce-overhead",
    "inductor:mode=max-autotune",
    "inductor:scope=forward",
    "inductor:scope=forward_backward",
    "inductor:scope=blocks",
)
"""Variants that the form offers by name; any other can be typed."""
SETTINGS_HELP = (
    "The same backend can run several times with different settings, which you can type: "
    "`inductor:mode=max-autotune` or `inductor:scope=forward+dynamic=true`. `scope` says what is "
    "compiled (`iteration`, `forward`, `forward_backward`, `blocks`); `mode`, `fullgraph` and "
    "`dynamic` are those of `torch.compile`; any other name is an Inductor configuration."
)


def spec_form(preset: str, start: ExperimentSpec, machine: Capabilities) -> ExperimentSpec:
    """Shows the form, filled from `start`; raises `InvalidSpec` for what cannot run."""
    fields = Fields(preset)
    backends = _backends(fields, start, machine)
    own_data = None
    if start.data.is_file:  # what this preset is about, so in plain view
        with st.container(horizontal=True):
            own_data = _data_source(fields, start.data)
    with st.expander("All settings", icon=":material/tune:"):
        general, learning, data = st.columns(3)
        with general:
            st.markdown("**Experiment**")
            experiment = _experiment(fields, start, machine)
        with learning:
            st.markdown("**Model and training**")
            model_values = _model(fields, start.model)
            training_values = training_form.usual(fields, start.training, machine)
        with data:
            st.markdown("**Data**")
            data_values = (own_data or _data_source(fields, start.data)) | _data(fields, start.data)
        with st.expander("Schedule, clipping, evaluation", icon=":material/school:"):
            precision = training_values["precision"]
            training_values |= training_form.unusual(fields, start.training, precision)
    fields.raise_errors()
    return replace(
        start,
        backends=backends,
        model=ModelSpec(**model_values),
        data=DataSpec(**data_values),
        training=TrainingSpec(**training_values),
        **experiment,
    )


def _backends(fields: Fields, start: ExperimentSpec, machine: Capabilities) -> tuple[str, ...]:
    usual, debug = st.columns(2)
    variants = [text for text in VARIANTS if parse_backend(text).backend in machine.backends]
    chosen: list[str] = []
    for column, label, name, known, offered, help in (
        (usual, "Backends", "backends", machine.backends, [*machine.backends, *variants],
         f"Each is one run of the same training, compiled by this backend. {SETTINGS_HELP}"),
        (debug, "Backends for testing and debugging", "debug_backends", machine.debug_backends,
         list(machine.debug_backends),
         "torch tags these for debugging: `eager` captures the graph and runs it as it is, "
         "`aot_eager` also traces the backward pass. They show where time or parity is lost."),
    ):  # fmt: skip
        value = [text for text in start.backends if parse_backend(text).backend in known]
        with column:
            chosen += fields.choices(label, name, value, offered, help)
    return tuple(chosen)


def _experiment(fields: Fields, start: ExperimentSpec, machine: Capabilities) -> dict[str, Any]:
    devices = [device.id for device in machine.devices]
    schedules = list(get_args(Schedule))
    name = fields.text("Name", "name", start.name, "What the experiment is called everywhere.")
    device = fields.choice("Device", "device", start.device, devices, "Where every run computes.")
    control = fields.switch(
        "Control", "control", start.control,
        "A second baseline with minutely changed weights. It measures noise and rounding; "
        "without it there is no parity verdict.",
    )  # fmt: skip
    schedule = fields.choice(
        "Schedule", "schedule", start.schedule, schedules,
        "`turns`: all runs live at once and alternate, so drift hits all alike. `sequential`: one "
        "after another, for a device that cannot hold them all.",
    )  # fmt: skip
    return {
        "name": name,
        "devices": (device,),
        "control": control,
        "schedule": schedule,
        "block_steps": fields.number("Steps per turn", "block_steps", start.block_steps,
                                     "Steps that a run makes before the next one's turn."),
        "cpu_threads": fields.number("CPU threads", "cpu_threads", start.cpu_threads,
                                     "Threads of each run; empty means half the cores.",
                                     empty="half the cores"),
        "time_limit_seconds": float(fields.number(
            "Time limit (s)", "time_limit", int(start.time_limit_seconds),
            "Longest that one run may work, waiting for its turn not counted.")),
    }  # fmt: skip


def _model(fields: Fields, start: ModelSpec) -> dict[str, Any]:
    dropouts = list(get_args(get_type_hints(ModelSpec)["dropout"]))
    return {
        "source": fields.choice(
            "Model", "model", start.source, list(BUILTIN_MODELS),
            "Built in with random weights, or type a hub name or a local folder.", typed=True),
        "dropout": fields.choice(
            "Dropout", "dropout", start.dropout, dropouts,
            "`auto` switches it off if a backend draws random numbers of its own, as cudagraphs "
            "does: its losses could not be compared otherwise."),
    }  # fmt: skip


def _data_source(fields: Fields, start: DataSpec) -> dict[str, Any]:
    return {
        "source": fields.choice(
            "Data", "data", start.source, list(BUILTIN_DATA),
            "Built in, or type the path of a CSV, JSONL or Parquet file or a hub name.",
            typed=True),
        "text_column": fields.text("Text column", "text_column", start.text_column,
                                   "The column that holds the text."),
        "label_column": fields.text("Label column", "label_column", start.label_column,
                                    "The column that holds the label, text or number."),
    }  # fmt: skip


def _data(fields: Fields, start: DataSpec) -> dict[str, Any]:
    return {
        "train_split": fields.text("Train split", "train_split", start.train_split,
                                   "Split of a hub data set to train on; files have none."),
        "eval_split": fields.text("Evaluation split", "eval_split", start.eval_split,
                                  "Split of a hub data set to evaluate on; files have none."),
        "num_train_samples": fields.number("Train samples", "train_samples",
                                           start.num_train_samples, "Samples trained on."),
        "num_eval_samples": fields.number("Evaluation samples", "eval_samples",
                                          start.num_eval_samples, "Samples held out."),
        "sequence_length": fields.number("Sequence length", "sequence_length",
                                         start.sequence_length, "Tokens per text: longer ones "
                                         "are cut, shorter ones padded.", lowest=4),
    }  # fmt: skip
