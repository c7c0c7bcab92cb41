"""Above every page, where people sign in: who it is that looks, and the way out."""

import streamlit as st

from breakeven.views.access import session, team
from breakeven.views.access.signin import LOGOUT
from breakeven.views.shared.inert import inert


def show_person(*, on_wall: bool) -> None:
    """A quiet menu at the right; nothing where nobody signs in, or on a wall. Whose session ended
    while a page was open is sent to the sign-in."""
    if not team.is_asked():
        return
    person = session.here()
    if person is None or person.role is None:
        st.info(
            "Your session has ended. Load this page again to sign in.", icon=":material/logout:"
        )
        st.stop()
    if on_wall:
        return
    with (
        st.container(horizontal=True, horizontal_alignment="right", key="signed-in"),
        st.popover(inert(person.name), icon=":material/person:", type="tertiary", width="content"),
    ):
        st.markdown(f"Signed in as {inert(person.name)}, **{inert(person.role)}**.")
        st.link_button("Sign out", LOGOUT, icon=":material/logout:")
