"""The experiment and run of a page. The address names them, so a link or a reload shows them again.

A page without an experiment in its address (from the navigation bar) shows the last choice, else
the page's own default, which does not count as a choice.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pandas as pd
import streamlit as st

from breakeven.views.shared import words
from breakeven.views.shared.inert import code, inert, plain

T = TypeVar("T")
SILENT = "silent_address"
"""Key in the session state: the page was opened without an experiment or run in the address."""
OF_IT = {"experiment": "run", "suite_run": "against"}
"""Parameters of the address that a new choice invalidates."""
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


def default_experiments(ended: pd.DataFrame) -> list[str]:
    """The default without a choice: the latest finished experiment of this machine, if there is
    one, else of the examples."""
    mine = ended[ended["origin"] == "local"]
    first = (mine if len(mine) else ended)[:1]
    return [str(one) for one in first["experiment_id"]]


def choose_suite_run(runs: pd.DataFrame) -> pd.Series:
    """Shows the selector; returns the chosen suite run, a row of `queries.list_suite_runs`."""
    rows = runs.set_index("suite_run", drop=False)
    return rows.loc[_choose("suite_run", list(rows.index), str)]


def choose_earlier(runs: pd.DataFrame, suite_run: str) -> str:
    """Shows the selector; returns the id of the suite run to compare with, empty for none."""
    others = runs.loc[runs["suite_run"] != suite_run, "suite_run"]
    chosen = _choose("against", [NO_RUN, *others], "against {}".format, (NO_RUN,))
    return "" if chosen == NO_RUN else chosen


def remembered(widget: str, default: T, of: str = "") -> tuple[T, Callable[[], None]]:
    """The default of a widget whose choice is in the address, and its `on_change`.

    On the way back Streamlit passes an address without parameters and resets such widgets to their
    defaults; then the default is the session's last choice. `of`: the experiment to which the
    choice belongs.
    """
    place = f"remembered {widget} {of}"

    def remember() -> None:
        st.session_state[place] = st.session_state[widget]

    if st.session_state.get(SILENT) and place in st.session_state:
        return st.session_state[place], remember
    return default, remember


def titles(experiments: pd.DataFrame) -> dict[str, str]:
    """Name and time of each experiment, all different: a selector mixes up equal entries."""
    named = zip(experiments.index, experiments["name"], experiments["origin"],
                experiments["submitted"], strict=True)  # fmt: skip
    return distinct({
        key: f"{plain(name)} · {'recorded example' if origin == 'example' else words.moment(when)}"
        for key, name, origin, when in named
    })  # fmt: skip


def distinct(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts by id; equal texts also get the end of their id."""
    taken = Counter(texts.values())
    return {key: text if taken[text] == 1 else f"{text} · {key[-4:]}"
            for key, text in texts.items()}  # fmt: skip


def _choose(
    what: str, options: list[str], text: Callable[[str], str], otherwise: Sequence[str] = ()
) -> str:
    key, picked = f"chosen_{what}", f"chosen_{what}_picked"
    requested = st.query_params.get(what)
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
        inert(label), options, key=key, format_func=text, on_change=_write_to_address,
        args=(what, key, picked), label_visibility="collapsed", width=480,
    )  # fmt: skip
    if requested != chosen:
        st.query_params[what] = chosen
        st.session_state[picked] = chosen
    return chosen


def _write_to_address(what: str, key: str, picked: str) -> None:
    if what in OF_IT:
        st.query_params.pop(OF_IT[what], None)  # belongs to the previous choice
    st.session_state[what] = st.query_params[what] = st.session_state[key]
    st.session_state.pop(picked, None)
