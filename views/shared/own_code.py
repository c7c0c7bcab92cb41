"""The command that runs an experiment again, and Python files of one's own: whether runs may
execute them, and how that is allowed."""

import streamlit as st

from breakeven.runner.checks.user_code import CODE_VARIABLE, allowed_folders
from breakeven.runner.commands.options import command_line
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.views.shared.inert import code


def show_permission() -> bool:
    """Says which folders runs may execute code from; whether there is one."""
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
    """The command that runs an experiment without the browser, and what it takes to be allowed."""
    st.code(command_line(spec), language="bash", wrap_lines=True)
    if spec.user_code:
        st.caption("It runs code of your own: add `--allow-code` with the folder of its files.")
