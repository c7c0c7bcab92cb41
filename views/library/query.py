"""The filter of the page Experiments: its widgets, whose values the address keeps."""

import shlex
from collections import Counter
from typing import Any, get_args

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
from breakeven.storage.library.catalog import facet_counts
from breakeven.storage.numbers.formats import format_verdict
from breakeven.views.shared.address import bound, value
from breakeven.views.shared.inert import Markdown, inert

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
