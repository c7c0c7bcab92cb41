"""The filter of the page Experiments: its widgets, whose values the address keeps, and saved views,
which are named links. The data folder has their file."""

import json
import shlex
from collections import Counter
from typing import Any, get_args
from urllib.parse import parse_qsl, urlencode

import pandas as pd
import streamlit as st

from breakeven.runner.commands.filters import (
    COMPUTED,
    FACETS,
    NUMBERS,
    SORTS,
    Archived,
    Filter,
    filter_arguments,
    parse_terms,
)
from breakeven.runner.errors import RunnerError
from breakeven.runner.files import write_atomically
from breakeven.runner.folders import audit
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.library import locked
from breakeven.runner.folders.queue import writing
from breakeven.runner.texts import read_json
from breakeven.storage.library.filters import facet_counts
from breakeven.storage.numbers.formats import format_verdict
from breakeven.views.access import permissions
from breakeven.views.parts.actions import errors_shown
from breakeven.views.shared.address import bound, value
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.resources import data_dir

TITLES = {
    "state": "State", "scenario": "Scenario", "task": "Task", "model": "Model", "data": "Data",
    "device": "Device", "torch": "torch", "transformers": "transformers", "precision": "Precision",
    "batch": "Batch size", "backend": "Backend", "environment": "Environment",
    "verdict": "Speed of the best backend", "parity": "Parity", "tag": "Tag", "origin": "Origin",
}  # fmt: skip
SORT_TITLES = {
    "when": "When", "name": "Name", "state": "State", "model": "Model", "device": "Device",
    "torch": "torch", "speedup": "Speedup", "compile": "Compile latency", "steps": "Break-even",
    "duration": "Duration", "doubts": "Doubts", "mb": "Size on disk",
}  # fmt: skip
ARCHIVED_TITLES: dict[Archived, str] = {
    "no": "Not archived", "yes": "With archived", "only": "Archived only"
}  # fmt: skip

MAX_SEARCH = 500
SEARCH_HELP = (
    "In the search field: words that must all be found in name, model, data, device, versions, "
    'backends, tags and notes; `-word` for one that must not; `"two words"`; and numbers: '
    f"{', '.join(f'`{name}>1`' for name in NUMBERS)}."
)


def ask_filter(frame: pd.DataFrame) -> Filter:
    """The search field and the popover of facets; returns the filter."""
    field = st.container(key="search")
    text = field.text_input(
        "Search", **bound("q", ""), label_visibility="collapsed", icon=":material/search:",
        placeholder="Search: bert h100 -old speedup>1.2",
    )  # fmt: skip
    with field:  # Beside the field, an error would leave no room for its text.
        text = _readable(text)
    facets = {name: tuple(values) for name in FACETS if (values := value(name, []))}
    wanted = Filter(text=text, facets=facets, archived=_archived(), sort=_sort())
    chosen = sum(bool(values) for values in wanted.facets.values())
    many = f" ({chosen})" if chosen else ""
    with st.popover(f"Filters{many}", icon=":material/filter_alt:", width="content"):
        counts = facet_counts(frame, wanted)
        st.caption(SEARCH_HELP)
        columns = st.columns(3)
        for number, (name, title) in enumerate(TITLES.items()):
            with columns[number % 3]:
                _ask_facet(name, title, counts[name], wanted.facets.get(name, ()))
        with columns[len(TITLES) % 3]:
            ways = list(get_args(Archived))
            st.selectbox("Archived", ways, **bound("archived", "no", ways),
                         format_func=ARCHIVED_TITLES.__getitem__)  # fmt: skip
    return wanted


def ask_sort() -> None:
    """Asks for the order, which the address keeps; a click on a column's title sorts, too."""
    orders = [sign + name for name in SORTS for sign in ("-", "")]
    st.selectbox("Sorted by", orders, **bound("sort", "-when", orders), format_func=_sort_title)


def title(name: str) -> Markdown:
    """The title of a facet or of the host."""
    return "Host" if name == "host" else TITLES[name]


def command(wanted: Filter) -> str:
    """The command that prints the same list."""
    return shlex.join(["breakeven", "list", *filter_arguments(wanted)])


def _readable(text: str) -> str:
    """The text, or nothing if it is invalid; then shows the error."""
    try:
        if len(text) > MAX_SEARCH:  # The cost is words times experiments.
            raise ValueError(f"a search has at most {MAX_SEARCH} characters")
        parse_terms(text)
    except ValueError as error:
        st.warning(f"{inert(error)}, so the search is ignored.", icon=":material/search_off:")
        return ""
    return text


def _ask_facet(name: str, title: Markdown, counts: Counter[str], chosen: tuple[str, ...]) -> None:
    options = [one for one, _ in counts.most_common()]
    options += [one for one in chosen if one not in counts]

    def written(option: str) -> str:
        word = format_verdict(option) if name in COMPUTED else option.replace("_", " ")
        return f"{word} ({counts[option]})"

    st.multiselect(title, options, **bound(name, [], options), format_func=written,
                   placeholder="any")  # fmt: skip


def _archived() -> Any:
    given = value("archived", "no")
    return given if given in get_args(Archived) else "no"


def _sort() -> str:
    given = str(value("sort", "-when"))
    return given if given.removeprefix("-") in SORTS else "-when"


def _sort_title(sort: str) -> str:
    name = SORT_TITLES[sort.removeprefix("-")]
    return f"{name}, largest first" if sort.startswith("-") else name


MAX_VIEWS = 50
MAX_NAME = 60
MAX_QUERY = 4000


def show_saved() -> None:
    """A popover with the saved views and, for people who may act, a field to save this one."""
    with st.popover("Views", icon=":material/bookmark:", width="content"):
        known = saved(data_dir())
        if not known:
            st.caption(
                "A view stores search, filters and order under a name. The address of "
                "this page contains them, too: copy it to show others the same list."
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
