"""Widgets whose values stand in the address as they are, so that a view is a link.

Streamlit's own binding writes what an option looks like, which here says how many rows it has.
"""

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import streamlit as st
from streamlit.elements.lib.mutable_tab_container import TabContainer

from breakeven.views.shared.inert import Markdown

ECHO_SECONDS = 3.0
"""For so long after a choice an address without it is an old one: a part of the page that runs by
itself may bring the one that the browser had before it heard of the choice."""
PREFIX = "address."
"""Of the widgets' keys: names as short as `model` may be used elsewhere."""


def value(name: str, default: Any) -> Any:
    """What the address says: a list where the default is one, else a text."""
    given = _given(name)
    if isinstance(default, list):
        return given or default
    return given[-1] if given else default


def write_address(**query: str | list[str]) -> None:
    """A callback that changes what the page shows: a link to the page itself would not."""
    st.query_params.update(query)


def bound(
    name: str, default: Any, options: Sequence[str] | None = None, most: int | None = None
) -> dict[str, Any]:
    """The key, callback and first value of a widget that shows what the address says, and changes
    it: `default` of a list, `index` of one of several `options`, `value` of a text.

    `options`: what there is to choose; what an address says beyond that is left out, and so is of a
    list what comes after the first `most`.
    """
    given, known = _given(name), _known(name)
    # An address that somebody else changed makes another widget, which begins with what it says.
    # To set the value of the one that is there would be lost where a popover hides it. One that is
    # gone leaves its key to the next: a session remembers a widget of each key as long as it lasts.
    if known is None or known.seen != given or known.key not in st.session_state:
        start = _possible(value(name, default), default, options)
        number = 0 if known is None else known.number + (known.key in st.session_state)
        start = start if most is None else start[:most]
        key = f"{PREFIX}{name}.{number}" if number else PREFIX + name
        known = _Known(key, start, given, number)
        st.session_state[f"{PREFIX}{name} known"] = known
    key = known.key

    def changed() -> None:
        now = st.session_state[key]
        chosen = [] if now == default or not now else now if isinstance(now, list) else [now]
        st.query_params[name] = chosen
        known_now = known._replace(seen=list(chosen), chosen_at=time.monotonic())
        st.session_state[f"{PREFIX}{name} known"] = known_now

    return {"key": key, "on_change": changed, **_first(known.start, options)}


def tabs(name: str, labels: Sequence[Markdown]) -> Sequence[TabContainer]:
    """Tabs of which the address names the open one; only that one needs to be filled.

    Streamlit's own binding adds entries to the browser's history when the reader leaves the page,
    so that Back does not lead back.
    """
    about = bound(name, labels[0], labels)
    first = labels[about.pop("index")]
    return st.tabs(labels, default=first, **about)


def choice(label: Markdown, name: str, options: Sequence[Markdown], **look: Any) -> str:
    """Which one of several, side by side."""
    given = bound(name, options[0], options)
    chosen: str | None = st.segmented_control(
        label, options, default=options[given.pop("index")], required=True,
        label_visibility="collapsed", **given, **look,
    )  # fmt: skip
    return chosen or options[0]


class _Known(NamedTuple):
    """The widget that there is for a name."""

    key: str
    start: Any
    seen: list[str]
    """The last value of the address."""
    number: int
    """Of widgets before it."""
    chosen_at: float = -math.inf
    """When the reader chose something else, on a clock that never goes back."""


def _known(name: str) -> _Known | None:
    return st.session_state.get(f"{PREFIX}{name} known")


def _given(name: str) -> list[str]:
    """What the address says, or what was chosen a moment ago, which it then says again."""
    given, known = st.query_params.get_all(name), _known(name)
    is_echo = known is not None and time.monotonic() - known.chosen_at < ECHO_SECONDS
    if known is None or not is_echo or known.seen == given or known.key not in st.session_state:
        return given
    st.query_params[name] = known.seen
    return list(known.seen)


def _first(start: Any, options: Sequence[str] | None) -> dict[str, Any]:
    """What was to choose when the widget began may be gone by now."""
    if isinstance(start, list):
        return {"default": [one for one in start if options is None or one in options]}
    if options is None:
        return {"value": start}
    return {"index": list(options).index(start) if start in options else 0}


def _possible(given: Any, default: Any, options: Sequence[str] | None) -> Any:
    if options is None:
        return given
    if isinstance(given, list):
        return [one for one in dict.fromkeys(given) if one in options] or default
    return given if given in options else default
