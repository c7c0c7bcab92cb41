"""The fields of the form that choose the backends."""

from collections.abc import Sequence

import streamlit as st

from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.ladder import RUNGS, ladder_on
from breakeven.views.form.field_widgets import Fields, Offer
from breakeven.views.shared.inert import Markdown

SETTINGS_HELP = (
    "The same backend can run several times with different settings, which you can type: "
    "`inductor:mode=max-autotune` or `inductor:scope=forward+dynamic=true`; Enter takes what "
    "was typed. `scope` is what is "
    "compiled (`iteration`, `forward`, `forward_backward`, `blocks`); `mode`, `fullgraph` and "
    "`dynamic` are those of `torch.compile`; any other name is an Inductor configuration, such as "
    "`triton.cudagraphs`, and overrides the mode. A backend that torch does not list is named by "
    "its path, `package.module:attribute`."
)


DEBUG_HELP: Markdown = (
    "torch marks these as debugging tools: `eager` captures the graph and runs it as it is, "
    "`aot_eager` also traces the backward pass. They show which stage loses time or parity."
)


def ask_backends(fields: Fields, start: ExperimentSpec, machine: Capabilities) -> None:
    """Asks for the backends; those for debugging, and one for each compiler stage, are folded away
    until one is chosen."""
    given = {text: parse_backend(text) for text in start.backends}
    help: Markdown = f"Each backend compiles the same training in a run of its own. {SETTINGS_HELP}"
    first = [
        text
        for text, arm in given.items()
        if arm.backend in machine.backends or arm.path_of_backend
    ]
    chosen = _ask(fields, "backends", "Backends", first, machine.backends, help)
    first = [text for text, arm in given.items() if arm.backend in machine.debug_backends]
    is_debugging = bool(first or fields.typed("debug_backends", ()))
    with st.expander("Compiler debugging", icon=":material/bug_report:", expanded=is_debugging):
        title: Markdown = "Backends for testing and debugging"
        chosen += _ask(fields, "debug_backends", title, first, machine.debug_backends, DEBUG_HELP)
        _offer_ladder(fields, start, machine)
    order = [*start.backends, *chosen]
    fields.put("backends", tuple(sorted(chosen, key=order.index)), "Backends")


def _ask(
    fields: Fields,
    name: str,
    label: Markdown,
    value: list[str],
    known: Sequence[str],
    help: Markdown,
) -> list[str]:
    # Names alone are offered: Enter would take the first entry that begins as what was typed.
    offer = Offer(list(known), typed=True)
    return list(fields.ask("backends", help, label=label, value=value, name=name, offer=offer))


def _offer_ladder(fields: Fields, start: ExperimentSpec, machine: Capabilities) -> None:
    """A button that fills the backends with one for each compiler stage."""

    def select_ladder() -> None:
        rungs = ladder_on(fields.typed("device", start.device))
        for name, known in (
            ("backends", machine.backends),
            ("debug_backends", machine.debug_backends),
        ):
            fields.fill(name, [text for text in rungs if parse_backend(text).backend in known])

    stages = ", ".join(
        rung.stage
        for rung in RUNGS
        if start.device.startswith("cuda") or not rung.captures_cuda_graphs
    )
    left_out = (
        "" if start.device.startswith("cuda") else " CUDA graphs are left out on this device."
    )
    st.button(
        "Every stage of the compiler",
        icon=":material/stairs:",
        type="tertiary",
        key="ladder",
        on_click=select_ladder,
        help=f"Selects a backend for each compiler stage: {stages}. Each backend adds one stage to "
        f"the previous one, so the experiment shows which stage fails, "
        f"computes wrong numbers or loses time.{left_out}",
    )
