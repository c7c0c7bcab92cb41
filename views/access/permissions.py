"""What people may do who reach the dashboard: one place decides, for every page and action.

On this machine alone everybody may do everything. Where the dashboard serves others without a
sign-in, they may look, and may launch if the operator allows that by name. Where people sign in
(`team.py`), operators may act and viewers may look; each action checks the role again.
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
"""Where the proxy has people sign out."""
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
    """A request for an action that remote users may not take."""


def may_act() -> bool:
    """Whether this session may start and stop experiments."""
    return may_act_by(st.context.headers)


def may_act_by(headers: Any) -> bool:
    """The same by the headers of a request."""
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
    """Raises `NotAllowed` where this session may only look. Whatever changes something asks here,
    whether or not its button was shown; who did so is logged, under the name of the function."""
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
    """The text of an error or a path as this session may read it: viewers do not see paths of this
    machine."""
    text = str(about)
    if not may_act():
        text = text.replace(str(data_dir().path), "the data folder")
        text = text.replace(str(PROJECT_ROOT), "the program's folder")
    return text


def _who() -> audit.Actor:
    """Who looks at the page that is being drawn, as far as that is known: by name where people sign
    in, or else the address, as far as a proxy lets that be known."""
    headers, source_address = st.context.headers, str(st.context.ip_address or "this machine")
    who = {"name": "somebody" if doors.serves_others(headers) else "local"}
    if (person := doors.person_of(headers)) is not None:
        who = {"name": person.name, "subject": person.subject}
    return audit.Actor(**who, source_address=source_address, via="page")


def show_person(*, on_wall: bool) -> None:
    """Above every page, where people sign in: who looks, and the way out; nothing on a wall."""
    person = doors.person_of(st.context.headers)
    if person is None or on_wall:
        return
    with (
        st.container(horizontal=True, horizontal_alignment="right", key="signed-in"),
        st.popover(inert(person.name), icon=":material/person:", type="tertiary", width="content"),
    ):
        st.markdown(f"Signed in as {inert(person.name)}, **{inert(person.role)}**.")
        st.link_button("Sign out", SIGN_OUT, icon=":material/logout:")
