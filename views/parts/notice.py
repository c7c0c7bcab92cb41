"""A silent browser notification that an experiment is over, for readers who want one."""

from pathlib import Path

import streamlit as st

_notice = st.components.v2.component(
    "notice",
    html='<button class="notice" type="button" hidden></button>',
    js=Path(__file__).with_suffix(".js").read_text(),
    isolate_styles=False,
)


def offer_notice(experiment_id: str, name: str, outcome: str, *, over: bool) -> None:
    """A button while the experiment runs; afterwards a notification if the reader pressed it.

    `outcome`: the result in the notification. Browsers allow notifications only from this machine
    and over https; elsewhere there is no button.
    """
    data = {"experiment": experiment_id, "over": over, "title": name, "body": outcome}
    _notice(key=f"notice-{experiment_id}", data=data)
