"""The form that queues a suite: models, backends, measurements, and the number of experiments."""

import shlex
from typing import Any, get_args

import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.training import Precision
from breakeven.runner.specs.variants import Settings
from breakeven.runner.suites import SUITES
from breakeven.runner.suites.matrix import (
    PARTS,
    SUITE_SCENARIOS,
    Matrix,
    new_suite_run,
    submit_missing,
)
from breakeven.views.access import permissions
from breakeven.views.parts.actions import check, errors_shown, work_off_the_queue
from breakeven.views.shared import words
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.resources import capabilities, data_dir

SETTINGS: tuple[Settings, ...] = get_args(Settings)[::-1]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
CPU_SHRINK = 16
"""Default without a GPU: the suites' own sizes take hours on a CPU."""
MANY = 200
"""Number of experiments from which the form advises caution."""


def show() -> None:
    """The form, once the hardware is known."""
    machine = capabilities()
    if machine is None:
        st.caption("Detecting the hardware of this machine: the form opens within 10 seconds.")
        if st.button("Try again", key="suite-look"):
            st.rerun()
        return
    with errors_shown():
        cells, command = _ask(machine)
        _offer(cells, command, machine)


def _ask(machine: Capabilities) -> tuple[list[ExperimentSpec], str]:
    """All requested experiments, and the command that queues the same ones; raises
    `InvalidSpec`."""
    left, right = st.columns(2)
    with left:
        about = [f"**{inert(suite.name)}**: {inert(suite.text)}"
                 + (f" Needs: {inert(suite.install)}" if suite.install else "")
                 for suite in SUITES.values()]  # fmt: skip
        chosen = st.selectbox("Suite", list(SUITES), key="suite-name", help="\n\n".join(about))
        suite = SUITES[chosen]
        names = [model.name for model in suite.models]
        everything = f"all models of the harness ({len(suite.choose(()))})"
        models = st.multiselect(
            "Models", names, default=suite.begin_with, key=f"suite-models-{suite.name}",
            placeholder=everything, help=f"Two are preselected; an empty field means {everything}.",
        )  # fmt: skip
        known = machine.backends
        usual = ["inductor"] if "inductor" in known else list(known[:1])
        backends = st.multiselect(
            "Backends", known, default=usual, key="suite-backends",
            accept_new_options=True,
            help="By name or with settings, such as `inductor:mode=max-autotune`.",
        )  # fmt: skip
        ids = [device.id for device in machine.devices]
        device = st.selectbox("Device", ids[::-1], key="suite-device",
                              format_func=lambda id: _device_text(machine, id))  # fmt: skip
    with right:
        scenarios = st.pills("Measurements", SUITE_SCENARIOS, selection_mode="multi",
                             default=suite.scenarios,
                             key=f"suite-scenarios-{suite.name}")  # fmt: skip
        parts = st.pills("Parts", PARTS, selection_mode="multi", default=PARTS, key="suite-parts")
        precisions = st.pills("Precision", PRECISIONS, selection_mode="multi",
                              default=["float32"], key="suite-precisions")  # fmt: skip
        settings = st.pills("Settings of torch", SETTINGS, selection_mode="multi",
                            default=["harness"], key="suite-settings",
                            help="Those of PyTorch's Dynamo harness, or torch's "
                            "defaults, or both. How to reproduce the harness's numbers: "
                            "`docs/suites.md`.")  # fmt: skip
        shrinks = suite.name == "huggingface"
        shrink = int(st.number_input(
            "Divide model sizes by", 1, 9999, CPU_SHRINK if device == "cpu" and shrinks else 1,
            key=f"suite-shrink-{device}-{suite.name}", disabled=not shrinks,
            help="The numbers of layers, attention heads and words are divided by this, for trials "
            "on small machines. 1 is the original size.",
        ))  # fmt: skip
    matrix = Matrix(
        suite=suite, models=suite.choose(models),
        precisions=tuple(one for one in PRECISIONS if one in precisions),
        parts=tuple(parts), scenarios=tuple(scenarios),
        settings=tuple(one for one in SETTINGS if one in settings), shrink=shrink,
    )  # fmt: skip
    base: dict[str, Any] = {"backends": tuple(backends), "devices": (device,)}
    return list(matrix.cells(base, new_suite_run(suite.name))), _command(matrix, backends, device)


def _offer(cells: list[ExperimentSpec], command: str, machine: Capabilities) -> None:
    """Shows the number of experiments, the equivalent command and the button."""
    count = words.plural(len(cells), "experiment")
    warned = " On the page Machine you can stop some of them." if len(cells) > MANY else ""
    st.caption(f"{count}, each with every backend, a baseline and a control.{warned}")
    with st.container(horizontal=True, vertical_alignment="center"):
        clicked = st.button(f"Queue {count}", type="primary", icon=":material/rocket_launch:",
                            disabled=not cells, key="suite-queue")  # fmt: skip
        with st.popover("Command", icon=":material/terminal:", type="tertiary"):
            st.code(command, language="bash", wrap_lines=True)
    if clicked:
        _queue(cells, machine)


def _queue(cells: list[ExperimentSpec], machine: Capabilities) -> None:
    """Queues all experiments; if one is refused, queues none and shows the reason."""
    permissions.require_acting()
    try:
        for cell in cells:
            check(cell, machine)
        submit_missing(data_dir(), cells, checked=cells)
        work_off_the_queue()
    except RunnerError as error:
        st.error(inert(error), icon=":material/error:")
        return
    query = {"view": "Suites", "suite_run": str(cells[0].suite_run)}
    st.switch_page("views/experiments.py", query_params=query)


def _device_text(machine: Capabilities, id: str) -> Markdown:
    name = next(device.name for device in machine.devices if device.id == id)
    return inert(f"{id} ({name})")


def _command(matrix: Matrix, backends: list[str], device: str) -> str:
    options = {
        "models": [model.name for model in matrix.models],
        "backends": backends,
        "precision": matrix.precisions,
        "parts": matrix.parts,
        "scenarios": matrix.scenarios,
        "settings": matrix.settings,
    }
    parts = [f"--{name}={','.join(values)}" for name, values in options.items()]
    if matrix.models == matrix.suite.choose(()):
        parts = parts[1:]
    parts += [f"--shrink={matrix.shrink}"] if matrix.shrink > 1 else []
    return shlex.join(["breakeven", "suite", matrix.suite.name, *parts,
                       f"--device={device}"])  # fmt: skip
