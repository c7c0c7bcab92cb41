"""What people who reach the dashboard may do, decided here for every page and action, and which
files they may use.

On this machine alone everybody may do everything. If the dashboard serves others without a sign-in,
they may look, and may launch if the operator allows that by name; a file must then be an upload or
in a folder that the operator named. With a sign-in, operators may act and viewers may look; each
action checks the role again. Scripts can be uploaded only on this machine, where their owner could
also start them by hand.
"""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import streamlit as st

from breakeven.runner.checks import user_code
from breakeven.runner.errors import InvalidSpec, RunnerError
from breakeven.runner.folders import audit
from breakeven.runner.logs import log
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.settings import OTHERS_VARIABLE
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.runner.specs.workload import BUILTIN, SCRIPT_DATA
from breakeven.views.access import doors
from breakeven.views.access.doors import Role
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.resources import data_dir

SIGN_OUT = "/sign-out"
"""The proxy's address for signing out."""
WITHOUT_SIGN_IN = (
    "This dashboard is served to others, and it does not ask who they are: there is no sign-in."
)
ANOTHER_ACCOUNT = (
    "You opened this page as another account of this machine than the one that runs the dashboard."
)
MAY_ONLY_LOOK: Markdown = (
    "**Viewing only.** {why} So nothing can be started, stopped or uploaded here. The "
    f"administrator can let people sign in (docs/operating.md), or allow everybody that with "
    f"`{OTHERS_VARIABLE}=launch`: launching is running programs on that machine."
)
AS_VIEWER: Markdown = (
    "**Viewing only.** You are signed in as a viewer. The administrator of this dashboard can make "
    "you an operator, who may start, stop and upload."
)


class NotAllowed(RunnerError):
    """A request for an action that the sender may not take."""


def may_act() -> bool:
    """Whether this session may start and stop experiments."""
    return may_act_by(st.context.headers)


def may_act_by(headers: Any) -> bool:
    """Whether the sender of these headers may start and stop experiments."""
    if doors.has_sign_in():
        person = doors.person_of(headers)
        return person is not None and person.role is Role.OPERATOR
    return not doors.serves_others(headers) or doors.settings().serving.others == "launch"


def viewing_only() -> Markdown:
    """Why this session may only look."""
    if doors.has_sign_in():
        return AS_VIEWER
    is_other_account = doors.comes_from_other_account(st.context.headers)
    return MAY_ONLY_LOOK.format(why=ANOTHER_ACCOUNT if is_other_account else WITHOUT_SIGN_IN)


def require_acting() -> None:
    """Raises `NotAllowed` if this session may only look. Each function that changes something calls
    it, whether or not its button was shown. Logs the person, under the name of the calling
    function."""
    allowed, who = may_act(), _who()
    fields = {"who": who.name, "from": who.source_address}
    verb = "acts" if allowed else "was refused"
    log.info("somebody %s", verb, stacklevel=2, extra={"fields": fields})
    if not allowed:
        others = "This dashboard is served to others and lets them only look. Its administrator can"
        viewer = "You are signed in as a viewer, who looks; operators act"
        raise NotAllowed(
            viewer if doors.has_sign_in() else f"{others} allow more with {OTHERS_VARIABLE}=launch"
        )
    audit.acts(who)


def redacted(about: object) -> str:
    """The text of an error or a path for this session: viewers do not see paths of this machine."""
    text = str(about)
    if not may_act():
        text = text.replace(str(data_dir().path), "the data folder")
        text = text.replace(str(PROJECT_ROOT), "the program's folder")
    return text


def _who() -> audit.Actor:
    """The reader of the page that is being drawn: by name with a sign-in, else by address, unless a
    proxy hides it."""
    headers, source_address = st.context.headers, str(st.context.ip_address or "this machine")
    who = {"name": "somebody" if doors.serves_others(headers) else "local"}
    if (person := doors.person_of(headers)) is not None:
        who = {"name": person.name, "subject": person.subject}
    return audit.Actor(**who, source_address=source_address, via="page")


def show_person() -> None:
    """With a sign-in, shows the reader and a sign-out link above every page."""
    person = doors.person_of(st.context.headers)
    if person is None:
        return
    with (
        st.container(horizontal=True, horizontal_alignment="right", key="signed-in"),
        st.popover(inert(person.name), icon=":material/person:", type="tertiary", width="content"),
    ):
        st.markdown(f"Signed in as {inert(person.name)}, **{inert(person.role)}**.")
        st.link_button("Sign out", SIGN_OUT, icon=":material/logout:")


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
    """Raises `InvalidSpec` for a path that this session may not use, before anything reads it;
    `runner.checks.user_code` decides about code by path."""
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
            field, source,
            "must lie in a folder that is open to others. Upload the file, or let the "
            "administrator of this dashboard add its folder to `files` of breakeven.toml",
        )  # fmt: skip


def scripts_may_run() -> bool:
    """Whether this session may upload scripts: it may act, it uses only this machine, and the
    operator lets uploaded scripts run."""
    folder = scripts().resolve()
    named = [Path(one).expanduser().resolve() for one in user_code.allowed_folders()]
    return any(map(folder.is_relative_to, named)) and may_act() and not files_are_limited()


def let_scripts_run() -> None:
    """Lets uploaded scripts run like code in folders that the operator named, on condition that
    only the account that serves this dashboard can upload, that others are not served, and that the
    system lists the owner of each connection."""
    if sys.platform == "linux" and not doors.serves_others():
        listed = [*user_code.allowed_folders(), str(scripts())]
        os.environ[user_code.CODE_VARIABLE] = os.pathsep.join(dict.fromkeys(listed))
