"""Actions of the dashboard on the queue: submit, stop and resume experiments."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from breakeven.runner.arguments.options import command_line
from breakeven.runner.checks import refused_experiments as checks
from breakeven.runner.checks.environments import check_environments
from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments.queue import (
    can_resume,
    cancel,
    ensure_supervisor,
    find_experiment,
    resume,
    submit,
)
from breakeven.runner.machine.capabilities import Capabilities, likely_capabilities
from breakeven.runner.machine.quick_race import adjusted
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import ExperimentState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.errors import StoreError
from breakeven.views.access import permissions
from breakeven.views.access.errors import error_words
from breakeven.views.form.presets import PRESETS
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.resources import capabilities, data_dir

EXPERIMENT = "views/experiment.py"


def quick_race_button() -> bool:
    """A button that starts a real comparison; returns whether it was clicked."""
    return st.button(
        "Quick race",
        type="primary",
        icon=":material/play_arrow:",
        key="quick_race",
        help=PRESETS["quick"].text,
    )


def quick_race() -> None:
    """Starts the quickest preset on the best available device."""
    with errors_shown():
        machine = capabilities()
        launch(adjusted(PRESETS["quick"].spec, machine or likely_capabilities()), machine)


def check(spec: ExperimentSpec, machine: Capabilities | None) -> None:
    """Raises `RunnerError` for settings that cannot work here, before anything starts. Without a
    `machine`, which torch describes, makes only the checks that need no torch."""
    permissions.check_files(spec)
    if machine is None:
        checks.check_at_once(spec, machine)
    else:
        with st.spinner("Checking with torch and the data …"):
            checks.check(spec, machine)
    checks.check_user_code(spec)


def launch(spec: ExperimentSpec, machine: Capabilities | None) -> None:
    """Queues an experiment and opens its page; raises `RunnerError` if it cannot be queued. Without
    a `machine`, torch checks the experiment while its runs load."""
    permissions.require_acting()
    check(spec, machine)
    folder = data_dir()
    check_environments(spec, folder)
    is_checked = machine is not None and not spec.paths_of_backends
    experiment_id = submit(folder, spec, is_checked=is_checked)
    ensure_supervisor(folder)
    st.switch_page(EXPERIMENT, query_params={"experiment": experiment_id})


def work_off_the_queue() -> None:
    """Starts a supervisor unless one is running; raises `NotWritable`."""
    ensure_supervisor(data_dir())


@contextmanager
def errors_shown() -> Iterator[None]:
    """Shows errors that a person can mend, such as a data folder without write permission, or a
    missing file; viewers see no paths."""
    try:
        yield
    except (RunnerError, StoreError, OSError) as error:
        st.error(error_words(error), icon=":material/error:")


def stop_button(experiment_id: str) -> None:
    """A button that asks for confirmation and stops an experiment; for people who may act."""
    if not permissions.may_act():
        return
    with st.popover("Stop", icon=":material/stop_circle:"):
        st.markdown("Stop all runs of this experiment? What they have recorded stays.")
        if st.button("Stop it", type="primary", key=f"stop-{experiment_id}"):
            permissions.require_acting()
            with errors_shown():
                cancel(find_experiment(data_dir(), experiment_id))
                st.rerun()


def resume_button(experiment: pd.Series, runs: pd.DataFrame) -> None:
    """A button that resumes runs which ended early, if one of them left a checkpoint.

    `experiment` and `runs`: as `storage.queries` lists them. Shows nothing if no run can resume,
    for example in an experiment that was copied here.
    """
    if not permissions.may_act():
        return
    state = ExperimentState(experiment["state"])
    if experiment["origin"] != "local" or state.is_active or state is ExperimentState.FINISHED:
        return
    labels = [run.label for run in runs.itertuples() if can_resume(RunDir(Path(run.folder)))]
    if not labels:
        return
    experiment_id = str(experiment["experiment_id"])
    since = "latest checkpoint" if pd.isna(experiment["investigates"]) else "last trial"
    if st.button(
        "Resume",
        icon=":material/resume:",
        key=f"resume-{experiment_id}",
        help=f"Goes on from the {since}: {inert(', '.join(labels))}.",
    ):
        permissions.require_acting()
        folder = data_dir()
        with errors_shown():
            resume(find_experiment(folder, experiment_id))
            ensure_supervisor(folder)
            st.switch_page(EXPERIMENT, query_params={"experiment": experiment_id})


def again_link(
    experiment_id: str,
    label: Markdown = "Run again with changes",
    changes: Mapping[str, Any] | None = None,
) -> None:
    """A link to Launch with all settings of an experiment; an error of the experiment appears at
    the field that caused it. Only people who may launch see the link. `changes`: other values of
    fields, by path."""
    if not permissions.may_act():
        return
    parameters = {"again": experiment_id}
    help = "Opens Launch with all its settings."
    if changes:
        parameters["changes"] = json.dumps(changes)
        help = "Opens Launch with all its settings, and this change."
    st.page_link(
        "views/launch.py", label=label, icon=":material/edit:", query_params=parameters, help=help
    )


def show_command(spec: ExperimentSpec) -> None:
    """Shows the command that runs an experiment without the browser, and how to allow its code; a
    script needs no permission of a command that names it."""
    st.code(command_line(spec), language="bash", wrap_lines=True)
    has_own_code = spec.user_code and not spec.workload.is_own_program
    if has_own_code or spec.paths_of_backends:
        st.caption("It runs code of your own: add `--allow-code` with the folder of its files.")
