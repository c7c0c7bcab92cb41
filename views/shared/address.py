"""Widgets whose values stand in the address as they are, so that a view is a link.

Streamlit's own binding writes what an option looks like, which here says how many rows it has.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

PREFIX = "address."
"""Of the widgets' keys: names as short as `model` may be used elsewhere."""


def value(name: str, default: Any) -> Any:
    """What the address says: a list where the default is one, else a text."""
    given = st.query_params.get_all(name)
    if isinstance(default, list):
        return given or default
    return given[-1] if given else default


def bound(
    name: str, default: Any, options: Sequence[str] | None = None, most: int | None = None
) -> Mapping[str, Any]:
    """The key and callback of a widget that shows what the address says, and changes it.

    `options`: what there is to choose; what an address says beyond that is left out, and so is of a
    list what comes after the first `most`.
    """
    key, seen = PREFIX + name, f"{PREFIX}{name} seen"
    given = st.query_params.get_all(name)
    if key not in st.session_state or st.session_state.get(seen) != given:
        possible = _possible(value(name, default), default, options)
        st.session_state[key] = possible if most is None else possible[:most]
        st.session_state[seen] = given

    def changed() -> None:
        now = st.session_state[key]
        if now == default or not now:
            st.query_params.pop(name, None)
        else:
            st.query_params[name] = now
        st.session_state[seen] = st.query_params.get_all(name)

    on_change: Callable[[], None] = changed
    return {"key": key, "on_change": on_change}


def _possible(given: Any, default: Any, options: Sequence[str] | None) -> Any:
    if options is None:
        return given
    if isinstance(given, list):
        return [one for one in dict.fromkeys(given) if one in options] or default
    return given if given in options else default
