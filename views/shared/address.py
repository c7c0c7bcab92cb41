"""Widgets whose values are in the address, so that a view is a link.

Streamlit's own binding writes an option's displayed text, which here contains its number of rows.
"""

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import streamlit as st
from streamlit.elements.lib.mutable_tab_container import TabContainer

from breakeven.views.shared.inert import Markdown

ECHO_SECONDS = 3.0
"""Seconds after a choice during which an address without it is outdated: a part of the page that
runs by itself may send the address from before the choice."""
PREFIX = "address."
"""Prefix of the widgets' keys, because names as short as `model` may be used elsewhere."""


def value(name: str, default: Any) -> Any:
    """The value in the address: a list if the default is a list, else a text."""
    given = _given(name)
    if isinstance(default, list):
        return given or default
    return given[-1] if given else default


def write_address(**query: str | list[str]) -> None:
    """A callback that changes what the page shows, which a link to the page itself cannot do."""
    st.query_params.update(query)


def bound(
    name: str, default: Any, options: Sequence[str] | None = None, most: int | None = None
) -> dict[str, Any]:
    """The key, callback and first value of a widget that shows and changes a value of the address.

    The first value is `default` for a list, `index` for one of several `options`, `value` for a
    text. `options`: the choices; other values in the address are ignored. `most`: the most entries
    of a list; the rest is ignored.
    """
    given, known = _given(name), _known(name)
    # If other code changed the address, a new widget begins with its value: a value set on the old
    # widget would be lost if a popover hides the widget. A removed widget leaves its key to the
    # next, because a session remembers the widget of each key until it ends.
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
    """Tabs; the address names the open one, and only that one needs content.

    Streamlit's own binding adds entries to the browser's history when the reader leaves the page,
    which breaks the Back button.
    """
    about = bound(name, labels[0], labels)
    first = labels[about.pop("index")]
    return st.tabs(labels, default=first, **about)


def choice(label: Markdown, name: str, options: Sequence[Markdown], **look: Any) -> str:
    """Shows options side by side; returns the chosen one."""
    given = bound(name, options[0], options)
    chosen: str | None = st.segmented_control(
        label, options, default=options[given.pop("index")], required=True,
        label_visibility="collapsed", **given, **look,
    )  # fmt: skip
    return chosen or options[0]


class _Known(NamedTuple):
    """The current widget of a name."""

    key: str
    start: Any
    seen: list[str]
    """The last value of the address."""
    number: int
    """Number of earlier widgets with this name."""
    chosen_at: float = -math.inf
    """Time of the reader's last choice, on the monotonic clock."""


def _known(name: str) -> _Known | None:
    return st.session_state.get(f"{PREFIX}{name} known")


def _given(name: str) -> list[str]:
    """The value in the address, or a choice of a moment ago, which it writes to the address
    again."""
    given, known = st.query_params.get_all(name), _known(name)
    is_echo = known is not None and time.monotonic() - known.chosen_at < ECHO_SECONDS
    if known is None or not is_echo or known.seen == given or known.key not in st.session_state:
        return given
    st.query_params[name] = known.seen
    return list(known.seen)


def _first(start: Any, options: Sequence[str] | None) -> dict[str, Any]:
    """The first value of a widget, without options that no longer exist."""
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
