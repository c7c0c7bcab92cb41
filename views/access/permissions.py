"""Permissions of people who reach the dashboard, decided here for every page and action.

On this machine alone everybody may do everything. If the dashboard serves others without a sign-in,
they may look, and may launch if the operator allows that by name. With a sign-in (`team.py`),
operators may act and viewers may look; each action checks the role again.
"""

from typing import Any

import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders import audit
from breakeven.runner.logs import log
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.settings import OTHERS_VARIABLE
from breakeven.views.access import doors
from breakeven.views.access.team import Role
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
        raise NotAllowed(
            "You are signed in as a viewer, who looks; operators act"
            if doors.has_sign_in() else
            "This dashboard is served to others and lets them only look. Its administrator can "
            f"allow more with {OTHERS_VARIABLE}=launch"
        )  # fmt: skip
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


def show_person(*, on_wall: bool) -> None:
    """With a sign-in, shows the reader and a sign-out link above every page; nothing on a wall."""
    person = doors.person_of(st.context.headers)
    if person is None or on_wall:
        return
    with (
        st.container(horizontal=True, horizontal_alignment="right", key="signed-in"),
        st.popover(inert(person.name), icon=":material/person:", type="tertiary", width="content"),
    ):
        st.markdown(f"Signed in as {inert(person.name)}, **{inert(person.role)}**.")
        st.link_button("Sign out", SIGN_OUT, icon=":material/logout:")
