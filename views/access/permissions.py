"""What people who reach the dashboard may do, decided here for every page and action, and which
files they may use.

The account that runs the dashboard may do everything on its machine. Others may look, and may act
with the secret link; a file must then be an upload or in a folder that the operator named. Each
action checks the right again. Scripts can be uploaded only on this machine, where their owner could
also start them by hand.
"""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import streamlit as st

from breakeven.runner.checks import allowed_code
from breakeven.runner.errors import InvalidSpec, RunnerError
from breakeven.runner.logs import log
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.runner.specs.workload import BUILTIN, SCRIPT_DATA
from breakeven.views.access import request_checks
from breakeven.views.access.secret_link_cookie import has_secret
from breakeven.views.shared.inert import Markdown
from breakeven.views.shared.resources import data_dir

OTHERS_SERVED = "This dashboard is served to others, who look."
ANOTHER_ACCOUNT = (
    "You opened this page as another account of this machine than the one that runs the dashboard."
)
MAY_ONLY_LOOK: Markdown = (
    "**Viewing only.** {why} To start, stop and upload, open its secret link once in this browser: "
    "the dashboard prints it when it starts, and `breakeven token` prints it again. Whoever has it "
    "can run programs on that machine."
)


class NotAllowed(RunnerError):
    """A request for an action that the sender may not take."""


def may_act() -> bool:
    """Whether this session may start and stop experiments."""
    return may_act_by(st.context.headers)


def may_act_by(headers: Any) -> bool:
    """Whether the sender of these headers may start and stop experiments."""
    return not request_checks.serves_others(headers) or has_secret(headers)


def viewing_only() -> Markdown:
    """Why this session may only look."""
    is_other_account = request_checks.comes_from_other_account(st.context.headers)
    return MAY_ONLY_LOOK.format(why=ANOTHER_ACCOUNT if is_other_account else OTHERS_SERVED)


def require_acting() -> None:
    """Raises `NotAllowed` if this session may only look. Each function that changes something calls
    it, whether or not its button was shown. Logs the address of the reader, under the name of the
    calling function."""
    allowed = may_act()
    fields = {"from": st.context.ip_address or "this machine"}
    verb = "acts" if allowed else "was refused"
    log.info("somebody %s", verb, stacklevel=2, extra={"fields": fields})
    if not allowed:
        raise NotAllowed(
            "You may only look. The secret link, which `breakeven token` prints, lets you act"
        )


def redacted(about: object) -> str:
    """The text of an error or a path for this session: viewers do not see paths of this machine."""
    text = str(about)
    if not may_act():
        text = text.replace(str(data_dir().path), "the data folder")
        text = text.replace(str(PROJECT_ROOT), "the program's folder")
    return text


HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w-][\w.-]*)?")


def files_are_limited() -> bool:
    """Whether this session may use only files in folders that the operator named."""
    return request_checks.serves_others(st.context.headers)


def uploads() -> Path:
    """The folder of uploaded files."""
    return data_dir().path / "uploads"


def scripts() -> Path:
    """The folder of uploaded scripts, separate from data, which others may upload."""
    return data_dir().path / "scripts"


def allowed_folders() -> list[Path]:
    """Folders from which others may use files, resolved; uploads first."""
    named = request_checks.settings().serving.files
    return [uploads().resolve(), *(Path(entry).expanduser().resolve() for entry in named)]


def check_files(spec: ExperimentSpec) -> None:
    """Raises `InvalidSpec` for a path that this session may not use, before anything reads it;
    `runner.checks.allowed_code` decides about code by path."""
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
    is_allowed = False
    with suppress(OSError, RuntimeError, ValueError):
        path = Path(source).expanduser().resolve()
        is_allowed = any(path.is_relative_to(folder) for folder in allowed_folders())
    if "://" in source or not is_allowed:
        raise InvalidSpec(
            field,
            source,
            "must lie in a folder that is open to others. Upload the file, or let the "
            "administrator of this dashboard add its folder to `files` of breakeven.toml",
        )


def scripts_may_run() -> bool:
    """Whether this session may upload scripts: it may act, it uses only this machine, and the
    operator lets uploaded scripts run."""
    folder = scripts().resolve()
    named = [Path(entry).expanduser().resolve() for entry in allowed_code.allowed_folders()]
    return any(map(folder.is_relative_to, named)) and may_act() and not files_are_limited()


def let_scripts_run() -> None:
    """Lets uploaded scripts run like code in folders that the operator named, on condition that
    only the account that serves this dashboard can upload, that others are not served, and that the
    system lists the owner of each connection."""
    if sys.platform == "linux" and not request_checks.serves_others():
        listed = [*allowed_code.allowed_folders(), str(scripts())]
        os.environ[allowed_code.CODE_VARIABLE] = os.pathsep.join(dict.fromkeys(listed))
