"""Widgets whose values are in the address, so that a view is a link; and the experiment of a page.

Streamlit's own binding writes an option's displayed text, which here contains its number of rows. A
page without an experiment in its address (from the navigation bar) shows the last choice, else the
page's own default, which does not count as a choice.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import pandas as pd
import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from breakeven.views.shared import words
from breakeven.views.shared.inert import Markdown, code, inert, plain

ECHO_SECONDS = 3.0
"""Seconds after a choice during which an address without it is outdated: a part of the page that
runs by itself may send the address from before the choice."""
DRAWN_SECONDS = 30.0
"""Seconds in which the page of a new choice begins to be drawn, also on a busy machine."""
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
    given, widget = _given(name), _last_widget(name)
    # If other code changed the address, a new widget begins with its value: a value set on the old
    # widget would be lost if a popover hides the widget. A removed widget leaves its key to the
    # next, because a session remembers the widget of each key until it ends. Also a widget that
    # shows the default begins anew when this changes, such as the steps of a resumed training.
    is_outdated = widget is not None and not given and widget.default != default
    if widget is None or is_outdated or widget.seen != given or widget.key not in st.session_state:
        start = _possible(value(name, default), default, options)
        number = 0 if widget is None else widget.number + (widget.key in st.session_state)
        start = start if most is None else start[:most]
        key = f"{PREFIX}{name}.{number}" if number else PREFIX + name
        widget = _Widget(key, start, given, number, default)
        st.session_state[f"{PREFIX}{name} known"] = widget
    key = widget.key

    def changed() -> None:
        now = st.session_state[key]
        # An emptied text is a choice; no option of a list is none.
        is_nothing = not now and not isinstance(now, str)
        chosen = [] if now == default or is_nothing else now if isinstance(now, list) else [now]
        st.query_params[name] = chosen
        changed_widget = widget._replace(seen=list(chosen), chosen_at=time.monotonic())
        st.session_state[f"{PREFIX}{name} known"] = changed_widget

    return {"key": key, "on_change": changed, **_first(widget.start, options)}


def show_tabs(name: str, parts: Mapping[Markdown, Callable[..., None]], *given: object) -> None:
    """Tabs, of which the address names the open one; only that one is computed, from what is given.

    Streamlit's own binding adds entries to the browser's history when the reader leaves the page,
    which breaks the Back button.
    """
    labels = list(parts)
    about = bound(name, labels[0], labels)
    first = labels[about.pop("index")]
    for tab, show in zip(st.tabs(labels, default=first, **about), parts.values(), strict=True):
        if tab.open:
            with tab:
                show(*given)


def choice(label: Markdown, name: str, options: Sequence[Markdown], **look: Any) -> str:
    """Shows options side by side; returns the chosen one."""
    given = bound(name, options[0], options)
    chosen: str | None = st.segmented_control(
        label,
        options,
        default=options[given.pop("index")],
        required=True,
        label_visibility="collapsed",
        **given,
        **look,
    )
    return chosen or options[0]


class _Widget(NamedTuple):
    """The current widget of a name."""

    key: str
    start: Any
    seen: list[str]
    """The last value of the address."""
    number: int
    """Number of earlier widgets with this name."""
    default: Any
    chosen_at: float = -math.inf
    """Time of the reader's last choice, on the monotonic clock."""


def _last_widget(name: str) -> _Widget | None:
    return st.session_state.get(f"{PREFIX}{name} known")


def _given(name: str) -> list[str]:
    """The value in the address, or a choice of a moment ago, which it writes to the address
    again."""
    given, widget = st.query_params.get_all(name), _last_widget(name)
    if widget is None or widget.seen == given or _goes_back():
        return given
    if time.monotonic() - widget.chosen_at >= ECHO_SECONDS or widget.key not in st.session_state:
        return given
    st.query_params[name] = widget.seen
    return list(widget.seen)


def _goes_back() -> bool:
    """Whether the reader went back or forward in the browser: then the address is what counts."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def _first(start: Any, options: Sequence[str] | None) -> dict[str, Any]:
    """The first value of a widget, without options that no longer exist."""
    if isinstance(start, list):
        return {"default": [option for option in start if options is None or option in options]}
    if options is None:
        return {"value": start}
    return {"index": list(options).index(start) if start in options else 0}


def _possible(given: Any, default: Any, options: Sequence[str] | None) -> Any:
    if options is None:
        return given
    if isinstance(given, list):
        return [option for option in dict.fromkeys(given) if option in options] or default
    return given if given in options else default


T = TypeVar("T")
SILENT = "silent_address"
"""Key in the session state: the page was opened without an experiment or run in the address."""
DEPENDENT = {"experiment": "run", "suite_run": "against"}
"""By parameter of the address: the parameter that a new choice of the first invalidates."""
NO_RUN = "no other run"
"""Value for no suite run to compare with."""


def choose_experiment(experiments: pd.DataFrame, *, otherwise: Sequence[str] = ()) -> pd.Series:
    """Shows the selector; returns the chosen experiment, a row of `queries.list_experiments`.

    `experiments` has at least one row. `otherwise`: ids that follow after the last choice.
    """
    # An archived experiment is shown only if the address names it.
    requested = experiments["experiment_id"] == st.query_params.get("experiment")
    shown = ~experiments["archived"] | requested
    rows = experiments[shown if shown.any() else slice(None)].set_index("experiment_id", drop=False)
    named = titles(rows)
    return rows.loc[_choose("experiment", list(named), named.__getitem__, otherwise)]


FIRST_EXAMPLE = "20261125-140742-602271-10f4"
"""The recorded example with the quietest and longest training."""


def default_experiments(ended: pd.DataFrame) -> list[str]:
    """The default without a choice: the latest finished experiment of this machine, if there is
    one, else `FIRST_EXAMPLE`, else the latest experiment."""
    own = ended[ended["origin"] == "local"]
    first = ended[ended["experiment_id"] == FIRST_EXAMPLE]
    rows = next(rows for rows in (own, first, ended) if len(rows) or rows is ended)
    return [str(experiment_id) for experiment_id in rows["experiment_id"][:1]]


def choose_suite_run(runs: pd.DataFrame) -> pd.Series:
    """Shows the selector; returns the chosen suite run, a row of `queries.list_suite_runs`."""
    rows = runs.set_index("suite_run", drop=False)
    return rows.loc[_choose("suite_run", list(rows.index), str)]


def choose_earlier(runs: pd.DataFrame, suite_run: str) -> str:
    """Shows the selector; returns the id of the suite run to compare with, empty for none."""
    others = runs.loc[runs["suite_run"] != suite_run, "suite_run"]
    chosen = _choose("against", [NO_RUN, *others], "against {}".format, (NO_RUN,))
    return "" if chosen == NO_RUN else chosen


def remembered(widget: str, default: T, experiment_id: str = "") -> tuple[T, Callable[[], None]]:
    """The default of a widget whose choice is in the address, and its `on_change`.

    On the way back Streamlit passes an address without parameters and resets such widgets to their
    defaults; then the default is the session's last choice. `experiment_id`: that to which
    the choice belongs.
    """
    key = f"remembered {widget} {experiment_id}"

    def remember() -> None:
        st.session_state[key] = st.session_state[widget]

    if st.session_state.get(SILENT) and key in st.session_state:
        return st.session_state[key], remember
    return default, remember


def titles(experiments: pd.DataFrame) -> dict[str, str]:
    """Name and time of each experiment, all different: a selector mixes up equal entries."""
    named = zip(
        experiments.index,
        experiments["name"],
        experiments["origin"],
        experiments["submitted"],
        strict=True,
    )
    return distinct(
        {
            key: f"{plain(name)} · "
            + ("recorded example" if origin == "example" else words.moment(when))
            for key, name, origin, when in named
        }
    )


def distinct(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts by id; equal texts also get the end of their id."""
    taken = Counter(texts.values())
    return {
        key: text if taken[text] == 1 else f"{text} · {key[-4:]}" for key, text in texts.items()
    }


def _choose(
    what: str, options: list[str], text: Callable[[str], str], otherwise: Sequence[str] = ()
) -> str:
    key, picked = f"chosen_{what}", f"chosen_{what}_picked"
    requested = _requested(what)
    st.session_state[SILENT] = requested is None
    if requested is not None and requested not in options:
        st.warning(
            f"There is no {inert(what)} {code(requested)} here.", icon=":material/search_off:"
        )
    if requested is not None and requested != st.session_state.get(picked):
        st.session_state[what] = requested
    last = st.session_state.get(what)
    candidates = [requested, last, *otherwise, options[0]]
    chosen = next(option for option in candidates if option in options)
    st.session_state[key] = chosen
    label = what.replace("_", " ").capitalize()
    st.selectbox(
        inert(label),
        options,
        key=key,
        format_func=text,
        on_change=_write_to_address,
        args=(what, key, picked),
        label_visibility="collapsed",
        width="stretch",
    )
    if requested != chosen:
        st.query_params[what] = chosen
        st.session_state[picked] = chosen
    return chosen


def _requested(what: str) -> str | None:
    """The id in the address, or a choice of a moment ago that the address does not have yet."""
    requested, now = st.query_params.get(what), time.monotonic()
    place = f"chosen_{what}_replaced"
    if _goes_back():
        st.session_state.pop(place, None)
    replaced, until = st.session_state.get(place, (None, -math.inf))
    if now < until:
        if requested == replaced:
            requested = st.session_state[what]
            _replace(what, requested)
        st.session_state[place] = (replaced, min(until, now + ECHO_SECONDS))
    return requested


def _write_to_address(what: str, key: str, picked: str) -> None:
    # A part of the page that runs by itself may bring the choice before the page is drawn with it.
    replaced = (st.query_params.get(what), time.monotonic() + DRAWN_SECONDS)
    st.session_state[f"chosen_{what}_replaced"] = replaced
    st.session_state[what] = st.session_state[key]
    _replace(what, st.session_state[key])
    st.session_state.pop(picked, None)


def _replace(what: str, chosen: str) -> None:
    """Writes a choice to the address, without what belongs to the previous one."""
    if what in DEPENDENT:
        st.query_params.pop(DEPENDENT[what], None)
    st.query_params[what] = chosen
