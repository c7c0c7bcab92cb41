"""The form behind Launch: what is raced in plain view, everything else folded away by subject."""

from collections.abc import Callable
from typing import NamedTuple

import streamlit as st

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.ladder import RUNGS, ladder_on
from breakeven.runner.specs.variants import parse_backend
from breakeven.runner.specs.workload import UNNAMED, usual_name
from breakeven.views.form import data_preview
from breakeven.views.form import evaluation as evaluation_form
from breakeven.views.form import scenario as scenario_form
from breakeven.views.form import script as script_form
from breakeven.views.form import training as training_form
from breakeven.views.form import workload as workload_form
from breakeven.views.form.fields import Fields, Offer
from breakeven.views.shared.own_code import show_permission

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
    "`dynamic` are those of `torch.compile`; any other name is an Inductor configuration, such as "
    "`triton.cudagraphs`, and counts more than what the mode says."
)


class OwnWorkload(NamedTuple):
    """Task and data of a preset for one's own data."""

    task: workload_form.ChosenTask
    data: data_preview.ChosenData


def spec_form(
    preset: str,
    start: ExperimentSpec,
    machine: Capabilities,
    check: Callable[[ExperimentSpec, Capabilities], None],
    blamed: InvalidSpec | None = None,
) -> ExperimentSpec | None:
    """Shows the form, filled from `start`.

    Gives what was asked for, or None if that cannot run (yet), which then is said. `check` raises
    `InvalidSpec` for what is known not to work on this machine, and what else it will. `blamed`: a
    field that an earlier run with this start failed by, told above and beside it as long as it is
    as it was.
    """
    fields = Fields(preset, start)
    above = st.container()
    if start.is_script:
        script_form.ask_script(fields)
    _ask_backends(fields, start, machine)
    own = None
    if start.data.is_file:  # what this preset is about, so in plain view
        with st.container(horizontal=True):
            own = _ask_workload(fields, start, machine)
        data_preview.show(own.data)
        told = st.empty()
    with st.container(gap="xsmall"):
        if start.is_script:
            _ask_folded_of_script(fields, machine)
        else:
            _ask_folded(fields, start, machine, own)
    if not fields.given("model.source" if start.is_script else "data.source"):
        return None
    try:
        spec = fields.spec()
        if blamed is not None and fields.value_in(spec, blamed.field) == blamed.value:
            above.warning(f"**It failed by this.** {fields.show(blamed)}", icon=":material/error:")
            fields.unfold(blamed.field)
        check(spec, machine)
    except InvalidSpec as error:
        st.error(f"This cannot run yet. {fields.show(error)}", icon=":material/error:")
        return None
    if own and own.data.head is not None:
        told.markdown(data_preview.taken(spec, own.data.head))
    if changes := fields.changes(spec):
        st.caption(f"**Changed:** {' · '.join(changes)}")
    return spec


def _ask_folded(
    fields: Fields, start: ExperimentSpec, machine: Capabilities, own: OwnWorkload | None
) -> None:
    """Everything that has a default which will do. `own`: what was asked above already."""
    with fields.subject("Task, model and data", "dataset"):
        left, middle, right = st.columns(3)
        with left:
            task = own.task if own else workload_form.ask_task(fields, start, machine)
            if not own:
                workload_form.ask_model(fields, task)
            workload_form.ask_dropout(fields)
        with middle:
            data = own.data if own else workload_form.ask_data(fields, task)
            workload_form.ask_length(fields, task.fits)
        with right:
            num_test = workload_form.ask_samples(fields, start.data, data)
        if not own:
            data_preview.show(data)
    with fields.subject("Batches, steps and precision", "view_module"):
        training_form.ask_batches(fields, data_preview.fitting_batch(start, data.head))
    with fields.subject("Optimizer and schedule", "trending_down"):
        training_form.ask_optimizer(fields, machine)
    with fields.subject("Losses and gradients", "functions"):
        training_form.ask_losses(fields)
    with fields.subject("Evaluation and predictions", "fact_check"):
        evaluated = evaluation_form.ask_evaluation(fields, task.fits, num_test)
    with fields.subject("Stopping early", "front_hand"):
        evaluation_form.ask_stopping(fields, evaluated)
    with fields.subject("Checkpoints", "save"):
        evaluation_form.ask_checkpoints(fields)
    with fields.subject("Another scenario than training", "rule"):
        scenario_form.ask_scenario(fields)
    with fields.subject("Own code", "code"):
        _ask_callbacks(fields)
    with fields.subject("Name, device and turns", "memory"):
        _ask_experiment(fields, machine)


def _ask_folded_of_script(fields: Fields, machine: Capabilities) -> None:
    """A script settles the rest by itself."""
    with fields.subject("How the script is run", "terminal"):
        script_form.ask_how(fields)
    with fields.subject("Name, device and turns", "memory"):
        _ask_experiment(fields, machine)


def _ask_workload(fields: Fields, start: ExperimentSpec, machine: Capabilities) -> OwnWorkload:
    task = workload_form.ask_task(fields, start, machine)
    workload_form.ask_model(fields, task)
    return OwnWorkload(task, workload_form.ask_data(fields, task))


def _ask_backends(fields: Fields, start: ExperimentSpec, machine: Capabilities) -> None:
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
            chosen += fields.ask("backends", label, help, value=value, name=name,
                                 offer=Offer(offered, typed=True))  # fmt: skip
    _offer_ladder(fields, start, machine)
    order = [*start.backends, *chosen]
    fields.put("backends", tuple(sorted(chosen, key=order.index)), "Backends")


def _offer_ladder(fields: Fields, start: ExperimentSpec, machine: Capabilities) -> None:
    """One click that fills the backends with every rung of the ladder."""

    def climb() -> None:
        rungs = ladder_on(fields.typed("device", start.device))
        for name, known in (("backends", machine.backends),
                            ("debug_backends", machine.debug_backends)):  # fmt: skip
            fields.fill(name, [text for text in rungs if parse_backend(text).backend in known])

    stages = ", ".join(rung.stage for rung in RUNGS if start.device.startswith("cuda")
                       or not rung.captures_cuda_graphs)  # fmt: skip
    left_out = (
        "" if start.device.startswith("cuda") else " CUDA graphs are left out on this device."
    )
    st.button(
        "The whole ladder", icon=":material/stairs:", type="tertiary", key="ladder", on_click=climb,
        help=f"Puts a backend for each stage of the compiler above: {stages}. Each does what the "
        f"one before it does and one thing more, so that Compare can name the stage that fails, "
        f"computes wrongly or loses time.{left_out}",
    )  # fmt: skip


def _ask_callbacks(fields: Fields) -> None:
    allowed = show_permission()
    fields.ask(
        "callbacks", "Callbacks",
        "`path.py:Class`, as in `/home/me/hooks.py:Sampler`: its methods are called at the "
        "beginnings and ends of training, epochs, steps and evaluations, and may record numbers, "
        "which are charted. See `runner/worker/callbacks.py`.",
        # What an earlier experiment had is not dropped without a word: the check says it.
        offer=Offer(typed=True),
        unless="" if allowed or fields.start_of("callbacks") else "No folder is allowed",
    )  # fmt: skip


def _ask_experiment(fields: Fields, machine: Capabilities) -> None:
    """What the experiment is called, where it runs, and how its runs take turns."""
    what, where, turns = st.columns(3)
    with what:
        named = usual_name(*(fields.given_or_start(f"{one}.source") for one in ("model", "data")))
        is_own = fields.start_of("name") in UNNAMED
        fields.ask("name", "Name", value=named if is_own else None, derived=is_own)
        fields.ask(
            "controls", "Controls",
            "Further baselines with minutely changed weights. They measure noise and rounding; "
            "without one there is no parity verdict. Take more where a verdict asks for them.",
        )  # fmt: skip
        fields.ask(
            "more_controls", "Controls more at most",
            "Where losses end too far apart to tell a fault from rounding, a training takes so "
            "many more by itself, one after the other, once all runs have ended.",
        )  # fmt: skip
        fields.ask(
            "settings", "Settings of torch",
            "`plain`: torch's defaults, as exact as they come. `harness`: as PyTorch's Dynamo "
            "harness measures, with TF32 and CUDA graphs.",
        )  # fmt: skip
    with where:
        fields.ask_listed(
            "devices", "Devices",
            "Where every run computes; `cuda` is any GPU that is free. Several share each batch: "
            "type `cuda:0,cuda:1`, or `cpu,cpu` for two processes on the CPUs.", _offered(machine),
        )  # fmt: skip
        fields.ask(
            "parallel", "Several devices",
            "How they work together. `ddp`: each has the whole model. `fsdp`: each keeps a part "
            "of all weights. `dp`: one process copies the model in every step.",
        )  # fmt: skip
        fields.ask(
            "nodes", "Machines",
            "That every run spans, each with these devices. On all but the first, "
            "`breakeven join` takes part, with the same data folder.",
        )  # fmt: skip
        fields.ask("cpus", "CPUs of its own",
                   "Such as `0-3`. Experiments that share no device and no CPU run at the same "
                   "time; empty means those near the device, and on the CPU all.",
                   empty="near the device")  # fmt: skip
        fields.ask(
            "exclusive",
            "Alone on the machine",
            "Nothing else of the queue runs meanwhile, on other devices either.",
        )
        fields.ask("priority", "Priority", "Higher ones come first in the queue.")
        fields.ask("cpu_threads", "CPU threads",
                   "Threads of each run; empty means half the CPUs that it may use.",
                   empty="half the CPUs")  # fmt: skip
        fields.ask("time_limit_seconds", "Time limit (s)")
    with turns:
        fields.ask(
            "schedule", "Schedule",
            "`turns`: all runs live at once and alternate, so drift hits all alike. `sequential`: "
            "one after another, for a device that cannot hold them all.",
        )  # fmt: skip
        fields.ask(
            "compile", "Compiling",
            "`alone`: one run at a time, so that its latency is its own. `together`: side by side "
            "before the timed rounds, so that the answer comes sooner.",
        )  # fmt: skip
        fields.ask("keep_code", "Keep code",
                   "Graphs and code that compilers make, to be read on a run's page. Compiling "
                   "takes longer.")  # fmt: skip
        fields.ask("keep_trace", "Keep torch's trace",
                   "The structured trace of compiling (`TORCH_TRACE`), for `tlparse`. Compiling "
                   "takes longer.")  # fmt: skip
        fields.ask("block_steps", "Steps per turn",
                   "Steps that a run makes before the next one's turn.")  # fmt: skip
        fields.ask("profile_steps", "Profiled steps",
                   "Steps of each run that are profiled after the timed ones, to say where the "
                   "time goes; 0 for none.")  # fmt: skip


def _offered(machine: Capabilities) -> list[str]:
    """Each device, and of several GPUs any one and all together."""
    ids = [device.id for device in machine.devices]
    gpus = [id for id in ids if id.startswith("cuda")]
    return [*ids, "cuda", ",".join(gpus)] if len(gpus) > 1 else ids
