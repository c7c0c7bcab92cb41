"""The form of Launch: workload, backends and length; all other settings in one drawer."""

from collections.abc import Callable
from typing import NamedTuple

import streamlit as st

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.ladder import RUNGS, ladder_on
from breakeven.runner.specs.variants import parse_backend
from breakeven.views.form import settings
from breakeven.views.form import workload as workload_form
from breakeven.views.form.fields import Fields, Offer

VARIANTS = (
    "inductor:mode=reduce-overhead",
    "inductor:mode=max-autotune",
    "inductor:scope=forward",
    "inductor:scope=forward_backward",
    "inductor:scope=blocks",
)
"""Variants that the form lists; others can be typed."""
PLACE = "Name, device and turns"
SETTINGS_HELP = (
    "The same backend can run several times with different settings, which you can type: "
    "`inductor:mode=max-autotune` or `inductor:scope=forward+dynamic=true`. `scope` is what is "
    "compiled (`iteration`, `forward`, `forward_backward`, `blocks`); `mode`, `fullgraph` and "
    "`dynamic` are those of `torch.compile`; any other name is an Inductor configuration, such as "
    "`triton.cudagraphs`, and overrides the mode. A backend that torch does not list is named by "
    "its path, `package.module:attribute`."
)


class OwnWorkload(NamedTuple):
    """The chosen task and data."""

    task: workload_form.ChosenTask
    data: workload_form.ChosenData


def spec_form(
    preset: str,
    start: ExperimentSpec,
    machine: Capabilities,
    check: Callable[[ExperimentSpec, Capabilities], None],
    blamed: InvalidSpec | None = None,
) -> ExperimentSpec | None:
    """Shows the form, filled from `start`.  Returns the specification, or None if it cannot run
    (yet); the form then shows why. `check` raises `InvalidSpec` for a setting that this machine
    cannot run, and returns warnings. `blamed` is the field that made an earlier run with this start
    fail. The form shows the error at the top and at the field while the field is unchanged.
    """
    fields = Fields(preset, start)
    above = st.container()
    own = None
    st.markdown("##### What")
    if start.is_script:
        workload_form.ask_script(fields)
    else:
        own = _ask_workload(fields, start, machine)
        if start.data.is_file:
            workload_form.show_data(own.data)
    taken_place = st.empty()
    st.markdown("##### Which backends")
    _ask_backends(fields, start, machine)
    st.markdown("##### How long")
    if own is None:
        settings.ask(fields, workload_form.SCRIPT_LENGTH)
        _ask_rest_of_script(fields, machine)
    else:
        batch_size = workload_form.fitting_batch(start, own.data.head)
        settings.ask(fields, settings.LENGTH, values={"training.batch_size": batch_size})
        _ask_rest(fields, start, machine, own)
    if not fields.given("model.source" if start.is_script else "data.source"):
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
        taken_place.markdown(workload_form.taken(spec, own.data.head))
    if changes := fields.changes(spec):
        st.caption(f"**Changed:** {' · '.join(changes)}")
    return spec


def _ask_rest(
    fields: Fields, start: ExperimentSpec, machine: Capabilities, own: OwnWorkload
) -> None:
    """Asks for all settings whose defaults usually suffice."""
    first, *last = "Model and samples", "Other scenarios", "Own code", PLACE
    with fields.drawer((first, *settings.PARTS, *last)):
        with fields.subject(first):
            left, right = st.columns(2)
            with left:
                fields.ask("model.dropout")
                if own.task.fits.samples in ("texts", "random"):
                    fields.ask("data.sequence_length")
            with right:
                num_test = workload_form.ask_samples(fields, start.data, own.data)
        offers = settings.offers(machine, own.task.fits, num_test)
        for title, columns in settings.PARTS.items():
            with fields.subject(title):
                settings.ask(fields, columns, offers, own.task.fits)
        with fields.subject("Other scenarios"):
            settings.ask_scenario(fields)
        with fields.subject("Own code"):
            workload_form.show_permission()
            settings.ask(fields, (("callbacks",),))
        with fields.subject(PLACE):
            settings.ask_experiment(fields, machine)


def _ask_rest_of_script(fields: Fields, machine: Capabilities) -> None:
    """Asks for the few settings that a script does not decide itself."""
    first = "How the script is run"
    with fields.drawer((first, PLACE)):
        with fields.subject(first):
            settings.ask(fields, workload_form.SCRIPT_HOW)
        with fields.subject(PLACE):
            settings.ask_experiment(fields, machine)


def _ask_workload(fields: Fields, start: ExperimentSpec, machine: Capabilities) -> OwnWorkload:
    left, middle, right = st.columns(3)
    with left:
        task = workload_form.ask_task(fields, start, machine)
    with middle:
        workload_form.ask_model(fields, task)
    with right:
        data = workload_form.ask_data(fields, task)
    return OwnWorkload(task, data)


def _ask_backends(fields: Fields, start: ExperimentSpec, machine: Capabilities) -> None:
    usual, debug = st.columns(2)
    variants = [text for text in VARIANTS if parse_backend(text).backend in machine.backends]
    given = {text: parse_backend(text) for text in start.backends}
    chosen: list[str] = []
    for column, label, name, known, offered, help in (
        (usual, "Backends", "backends", machine.backends, [*machine.backends, *variants],
         f"Each backend compiles the same training in a run of its own. {SETTINGS_HELP}"),
        (debug, "Backends for testing and debugging", "debug_backends", machine.debug_backends,
         list(machine.debug_backends),
         "torch marks these as debugging tools: `eager` captures the graph and runs it as it is, "
         "`aot_eager` also traces the backward pass. They show which stage loses time or parity."),
    ):  # fmt: skip
        value = [
            text
            for text, variant in given.items()
            if variant.backend in known or (name == "backends" and variant.path_of_backend)
        ]
        with column:
            chosen += fields.ask("backends", help, label=label, value=value, name=name,
                                 offer=Offer(offered, typed=True))  # fmt: skip
    _offer_ladder(fields, start, machine)
    order = [*start.backends, *chosen]
    fields.put("backends", tuple(sorted(chosen, key=order.index)), "Backends")


def _offer_ladder(fields: Fields, start: ExperimentSpec, machine: Capabilities) -> None:
    """A button that fills the backends with one for each compiler stage."""

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
        "Every stage of the compiler", icon=":material/stairs:", type="tertiary", key="ladder",
        on_click=climb,
        help=f"Selects a backend for each compiler stage: {stages}. Each backend adds one stage to "
        f"the previous one, so the experiment shows which stage fails, "
        f"computes wrong numbers or loses time.{left_out}",
    )  # fmt: skip
