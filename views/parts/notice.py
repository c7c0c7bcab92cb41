"""A silent browser notice that an experiment is over, for readers who want one."""

from pathlib import Path

import streamlit as st

_notice = st.components.v2.component(
    "notice",
    html='<button class="notice" type="button" hidden></button>',
    js=Path(__file__).with_suffix(".js").read_text(),
    isolate_styles=False,
)


def offer_notice(experiment_id: str, name: str, outcome: str, *, over: bool) -> None:
    """A button while the experiment runs; when it is over, a notice for the readers who pressed it.

    `outcome`: the result as the notice shows it. Browsers allow notices only on this machine and
    over https; elsewhere there is no button.
    """
    data = {"experiment": experiment_id, "over": over, "title": name, "body": outcome}
    _notice(key=f"notice-{experiment_id}", data=data)
