"""A quiet line above every page while something is wrong with the machine or the data folder."""

import streamlit as st

from breakeven.runner.doctor.findings import Finding, Health
from breakeven.runner.texts import printable
from breakeven.views.access import permissions
from breakeven.views.shared.inert import inert
from breakeven.views.shared.resources import data_dir
from breakeven.views.upkeep.watching import watching
from breakeven.views.wall import page as wall


def show_wrong() -> None:
    """One line that opens; nothing while all is well, or on a wall."""
    found = [] if wall.is_asked() else watching.wrong(data_dir())
    if not found:
        return
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    with st.expander(
        f"{inert(found[0].subject)}: something is wrong{more}", icon=":material/healing:"
    ):
        show_findings(found)


def show_findings(findings: list[Finding]) -> None:
    """Evidence and remedy of what is not well, then in short what is; to whoever may only look,
    what it is about."""
    for one in findings:
        if one.health is Health.OK:
            continue
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{inert(one.subject)}**", width=170)
            st.markdown(f":gray[{inert(one.health)}]", width=90)
            if permissions.may_act():
                told = f"{one.evidence}\n{one.remedy}".strip()
                lines = [printable(line, 1000) for line in told.splitlines()]
                st.code("\n".join(lines), language=None, wrap_lines=True)
            else:
                st.markdown("Whoever runs this dashboard sees more here.")
    well = [f"{one.subject}: {printable(one.evidence, 1000)}" for one in findings
            if one.health is Health.OK and permissions.may_act()]  # fmt: skip
    if well:
        st.code("\n".join(well), language=None, wrap_lines=True)
