"""Saved views: named lists, as links. The data folder has their file."""

import json
from urllib.parse import parse_qsl, urlencode

import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.runner.files import write_atomically
from breakeven.runner.folders import audit
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.library import locked
from breakeven.runner.folders.queue import writing
from breakeven.runner.texts import read_json
from breakeven.views.access import permissions
from breakeven.views.parts.actions import errors_shown
from breakeven.views.shared.inert import inert
from breakeven.views.shared.resources import data_dir

MAX_VIEWS = 50
MAX_NAME = 60
MAX_QUERY = 4000


def show() -> None:
    """A popover with the saved views and, for people who may act, a field to save this one."""
    with st.popover("Views", icon=":material/bookmark:", width="content"):
        known = saved(data_dir())
        if not known:
            st.caption(
                "A view is what you searched, chose and sorted by, under a name. The address of "
                "this page says it, too: copy it to show others the same list."
            )
        for name, query in known.items():
            with st.container(horizontal=True, vertical_alignment="center"):
                st.page_link("views/experiments.py", label=inert(name), query_params=query,
                             icon=":material/bookmark:", width="stretch")  # fmt: skip
                if permissions.may_act() and st.button(
                    "Remove", key=f"remove-view-{name}", type="tertiary"
                ):
                    _change(name, None)
        if permissions.may_act():
            _ask_name()


def saved(folder: DataDir) -> dict[str, list[tuple[str, str]]]:
    """Names with the parameters of the address; leaves out invalid views."""
    try:
        content = read_json(folder.views_file.read_text())
        pairs = [(name, query) for name, query in content.items()
                 if isinstance(query, str) and len(query) <= MAX_QUERY]  # fmt: skip
        return {name[:MAX_NAME]: parse_qsl(query) for name, query in pairs[:MAX_VIEWS]}
    except (OSError, ValueError, AttributeError):
        return {}


def change_view(folder: DataDir, name: str, query: str | None) -> None:
    """Saves a view, or removes it if `query` is None; raises `RunnerError`."""
    name = name.strip()
    with locked(folder), writing(folder.path):
        known = {key: urlencode(pairs) for key, pairs in saved(folder).items()}
        if query is None:
            known.pop(name, None)
        elif not 0 < len(name) <= MAX_NAME or len(query) > MAX_QUERY:
            raise RunnerError(f"a view needs a name of 1 to {MAX_NAME} characters")
        elif len(known) >= MAX_VIEWS and name not in known:
            raise RunnerError(f"there are {MAX_VIEWS} views already; remove one first")
        else:
            known[name] = query
        write_atomically(folder.views_file, json.dumps(known, indent=2) + "\n")
        audit.record(folder, "remove view" if query is None else "save view", name)


def _ask_name() -> None:
    with st.form("save-view", border=False, clear_on_submit=True):
        name = st.text_input("Name of this view", max_chars=MAX_NAME, key="view-name")
        if st.form_submit_button("Save this view"):
            pairs = [(key, value) for key in st.query_params for value in
                     st.query_params.get_all(key)]  # fmt: skip
            _change(name, urlencode(pairs))


def _change(name: str, query: str | None) -> None:
    permissions.require_acting()
    with errors_shown():
        change_view(data_dir(), name, query)
        st.rerun()
