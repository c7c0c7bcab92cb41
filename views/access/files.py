"""Which files and scripts people may use.

If the dashboard serves others, a file must be an upload or in a folder that the operator named.
Scripts can be uploaded only on this machine, where their owner could also start them by hand.
"""

import os
import re
import sys
from pathlib import Path

import streamlit as st

from breakeven.runner.checks import user_code
from breakeven.runner.checks.user_code import CODE_VARIABLE
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.runner.specs.workload import BUILTIN, SCRIPT_DATA
from breakeven.views.access import doors, permissions
from breakeven.views.shared.resources import data_dir

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w-][\w.-]*)?")


def files_are_limited() -> bool:
    """Whether this session may use only files in folders that the operator named."""
    return doors.serves_others(st.context.headers)


def uploads() -> Path:
    """The folder of uploaded files."""
    return data_dir().path / "uploads"


def scripts() -> Path:
    """The folder of uploaded scripts, separate from data, which others may upload."""
    return data_dir().path / "scripts"


def allowed_folders() -> list[Path]:
    """Folders from which others may use files, resolved; uploads first."""
    named = doors.settings().serving.files
    return [uploads().resolve(), *(Path(entry).expanduser().resolve() for entry in named)]


def check_files(spec: ExperimentSpec) -> None:
    """Raises `InvalidSpec` for a path that this session may not use, before anything reads it.

    `runner.checks.user_code` decides about code by path.
    """
    check_path(spec.model, "model.source")
    check_path(spec.data, "data.source")


def check_path(spec: ModelSpec | DataSpec, field: str) -> None:
    """Checks a model or data as `check_files` does; the error names `field`."""
    if not files_are_limited():
        return
    source = spec.source
    is_code = spec.is_user_code or source == SCRIPT_DATA
    if isinstance(spec, ModelSpec):
        is_code = is_code or spec.from_suite is not None or spec.script is not None
    if source.startswith(BUILTIN) or is_code:
        return
    is_file = isinstance(spec, DataSpec) and spec.is_file
    if (
        not is_file
        and HUB_NAME.fullmatch(source)
        and not any((folder / source).exists() for folder in (Path.cwd(), PROJECT_ROOT))
    ):
        # A name without owner may be a loader of `datasets` itself, which reads local files.
        rule = "must be owner/name for a hub data set where others are served"
        if isinstance(spec, DataSpec) and "/" not in source:
            raise InvalidSpec(field, source, rule)
        return
    try:
        path = Path(source).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):
        path = None
    is_allowed = path and any(path.is_relative_to(folder) for folder in allowed_folders())
    if "://" in source or not is_allowed:
        raise InvalidSpec(
            field, source,
            "must lie in a folder that is open to others. Upload the file, or let the "
            "administrator of this dashboard add its folder to `files` of breakeven.toml",
        )  # fmt: skip


def scripts_may_run() -> bool:
    """Whether this session may upload scripts: it may act, it uses only this machine, and the
    operator lets uploaded scripts run."""
    folder = scripts().resolve()
    runs = any(
        folder.is_relative_to(Path(one).expanduser().resolve())
        for one in user_code.allowed_folders()
    )
    return runs and permissions.may_act() and not files_are_limited()


def let_scripts_run() -> None:
    """Lets uploaded scripts run like code in folders that the operator named, on condition that
    only the account that serves this dashboard can upload, that others are not served, and that the
    system lists the owner of each connection."""
    if sys.platform == "linux" and not doors.serves_others():
        listed = [*user_code.allowed_folders(), str(scripts())]
        os.environ[CODE_VARIABLE] = os.pathsep.join(dict.fromkeys(listed))
