"""What people may do who reach the dashboard: one place decides, for every page and action.

On this machine alone everybody may do everything. Where others are served, who are not asked who
they are, they may look, unless whoever starts the dashboard allows them by name to launch; files by
path are then taken only from folders that he names. Where people sign in (`team.py`), operators may
act and viewers look, asked anew with every action.
"""

import os
import re
from pathlib import Path

import streamlit as st

from breakeven.runner.errors import InvalidSpec, RunnerError
from breakeven.runner.folders import audit
from breakeven.runner.logs import log
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.runner.specs.workload import BUILTIN, SCRIPT_DATA
from breakeven.views.access import doors, session, team
from breakeven.views.shared.inert import Markdown, code
from breakeven.views.shared.resources import data_dir

OTHERS_VARIABLE = "BREAKEVEN_OTHERS"
"""What others may do: `view`, as by default, or `launch`."""
FILES_VARIABLE = "BREAKEVEN_FILES"
"""Folders whose data files and models others may use by path, separated like `PATH`."""
WITHOUT_SIGN_IN = (
    "This dashboard is served to others, and it does not ask who they are: there is no sign-in."
)
ANOTHER_ACCOUNT = (
    "You opened this page as another account of this machine than the one that runs the dashboard."
)
MAY_ONLY_LOOK: Markdown = (
    "**Viewing only.** {why} So nothing can be started, stopped or uploaded here. Whoever runs it "
    f"can have people sign in (`{team.TEAM_VARIABLE}`), or allow everybody that with "
    f"`{OTHERS_VARIABLE}=launch`: launching is running programs on that machine."
)
AS_VIEWER: Markdown = (
    "**Viewing only.** You are signed in as a viewer. Whoever runs this dashboard can make you an "
    "operator, who may start, stop and upload."
)
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w-][\w.-]*)?")


class NotAllowed(RunnerError):
    """Something was asked for that people who are served from elsewhere may not do."""


def may_act() -> bool:
    """Whether this session may start and stop experiments."""
    if team.is_asked():
        person = session.here()
        return person is not None and person.role is team.Role.OPERATOR
    return may_act_by(st.context.headers)


def may_act_by(headers: object) -> bool:
    """The same by the names of a request's headers, where people do not sign in."""
    return not doors.serves_others(headers) or allowed_to_others() == "launch"  # type: ignore[arg-type]


def viewing_only() -> Markdown:
    """Why this session may only look."""
    if team.is_asked():
        return AS_VIEWER
    is_anothers = doors.are_anothers(st.context.headers)
    return MAY_ONLY_LOOK.format(why=ANOTHER_ACCOUNT if is_anothers else WITHOUT_SIGN_IN)


def require_acting() -> None:
    """Raises `NotAllowed` where this session may only look. Whatever changes something asks here,
    whether or not its button was shown; who did so is logged, under the name of the function."""
    allowed, who = may_act(), _who()
    verb = "acts" if allowed else "was refused"
    log.info(
        "somebody %s", verb, stacklevel=2, extra={"fields": {"who": who.name, "from": who.whence}}
    )
    if not allowed:
        raise NotAllowed(
            "You are signed in as a viewer, who looks; operators act"
            if team.is_asked() else
            "This dashboard is served to others and lets them only look. Whoever runs it can allow "
            f"more with {OTHERS_VARIABLE}=launch"
        )  # fmt: skip
    audit.acts(who)


def told(about: object) -> str:
    """What this session may read of an error, or of where a file lies: paths of this machine are
    for those who act on it."""
    text = str(about)
    if not may_act():
        for folder, name in (
            (data_dir().path, "the data folder"),
            (PROJECT_ROOT, "the program's folder"),
        ):
            text = text.replace(str(folder), name)
    return text


def _who() -> audit.Actor:
    """Who looks at the page that is being drawn, as far as that is known: by name where people sign
    in, or else the address, as far as a proxy lets that be known."""
    person = session.here() if team.is_asked() else None
    whence = str(st.context.ip_address or "this machine")
    if person is not None:
        return audit.Actor(name=person.name, subject=person.subject, whence=whence, via="page")
    is_local = not doors.serves_others(st.context.headers)
    return audit.Actor(name="local" if is_local else "somebody", whence=whence, via="page")


def allowed_to_others() -> str:
    """What others may do; raises `NotAllowed` for what cannot be meant: it allows nothing."""
    asked = os.environ.get(OTHERS_VARIABLE) or "view"
    if asked not in ("view", "launch"):
        raise NotAllowed(f"{OTHERS_VARIABLE} = {asked!r} must be view or launch")
    return asked


def files_are_limited() -> bool:
    """Whether this session may use only files in folders that the operator named."""
    return doors.serves_others(st.context.headers)


def uploads() -> Path:
    """Where uploaded files lie."""
    return data_dir().path / "uploads"


def scripts() -> Path:
    """Where uploaded scripts lie: apart from data, which others may bring."""
    return data_dir().path / "scripts"


def allowed_folders() -> list[Path]:
    """Folders from which others may use files, resolved; uploads first."""
    named = [entry for entry in os.environ.get(FILES_VARIABLE, "").split(os.pathsep) if entry]
    return [uploads().resolve(), *(Path(entry).expanduser().resolve() for entry in named)]


def check_files(spec: ExperimentSpec) -> None:
    """Raises `InvalidSpec` for a path that this session may not use, before anything looks at it.

    Code by path is `runner.checks.user_code`'s to allow.
    """
    check_path(spec.model, "model.source")
    check_path(spec.data, "data.source")


def check_path(asked: ModelSpec | DataSpec, field: str) -> None:
    """The same for a model or for data alone; `field` is called by name in the error."""
    if not files_are_limited():
        return
    source = asked.source
    is_code = asked.is_user_code or source == SCRIPT_DATA
    if isinstance(asked, ModelSpec):
        is_code = is_code or asked.from_suite is not None or asked.script is not None
    if source.startswith(BUILTIN) or is_code:
        return
    is_file = isinstance(asked, DataSpec) and asked.is_file
    if not is_file and HUB_NAME.fullmatch(source) and not _is_there(source):
        # A bare name may be one of the `datasets` library's own, which reads what lies around.
        rule = "must be owner/name, where it is a hub data set and others are served"
        if isinstance(asked, DataSpec) and "/" not in source:
            raise InvalidSpec(field, source, rule)
        return
    try:
        path = Path(source).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):
        path = None
    if path is None or "://" in source or not _is_allowed(path):
        raise InvalidSpec(
            field, source,
            "must lie in a folder that is open to others. Upload the file, or ask whoever runs "
            f"this dashboard to name its folder in {FILES_VARIABLE}",
        )  # fmt: skip


def _is_allowed(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in allowed_folders())


def _is_there(source: str) -> bool:
    return any((folder / source).exists() for folder in (Path.cwd(), PROJECT_ROOT))


def show_folders() -> None:
    """Says from which folders files may be used, where that is limited."""
    listed = ", ".join(code(folder) for folder in allowed_folders()[1:])
    if listed:
        st.caption(f"Files may be used from {listed}, and those that are uploaded.")
