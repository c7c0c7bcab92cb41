"""The command that runs an experiment again, and the permission to run users' own files."""

import streamlit as st

from breakeven.runner.checks.user_code import CODE_VARIABLE, allowed_folders
from breakeven.runner.commands.options import command_line
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.views.shared.inert import code


def show_permission() -> bool:
    """Shows the folders from which runs may execute code; returns whether there are any."""
    folders = allowed_folders()
    if folders:
        st.caption(f"Files may run from {', '.join(map(code, folders))}.")
    else:
        st.info(
            "Python files of your own run only if the administrator of this dashboard names their "
            f"folder: `{CODE_VARIABLE}=/folder/of/your/files make run`.",
            icon=":material/lock:",
        )
    return bool(folders)


def show_command(spec: ExperimentSpec) -> None:
    """Shows the command that runs an experiment without the browser, and how to allow its code."""
    st.code(command_line(spec), language="bash", wrap_lines=True)
    if spec.user_code or spec.paths_of_backends:
        st.caption("It runs code of your own: add `--allow-code` with the folder of its files.")
