"""Which experiment and run a page shows. The address says it, so a link or a reload shows it again.

A page that is opened without saying (from the navigation bar) shows what was chosen last on any
page, and else what the page itself thinks best. What a page picks by itself is no choice: Live
shows what runs, and Compare afterwards what it showed before.
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
"""In the session's state: the page was opened without saying what to show."""
OF_IT = {"experiment": "run", "suite_run": "against"}
"""What of the address another choice makes meaningless."""
NO_RUN = "no other run"
"""What stands for no suite run to compare with."""


def choose_experiment(
    page: str,
    experiments: pd.DataFrame,
    *,
    before: Sequence[str] = (),
    otherwise: Sequence[str] = (),
) -> pd.Series | None:
    """The experiment to show, as a row of `storage.queries.list_experiments`, and its selector.

    `before`: ids that come before the one chosen last, unless that is among them; `otherwise`:
    those that come after it. None if there is no experiment.
    """
    if experiments.empty:
        return None
    # What was put away is shown to whoever asks for it by its address.
    asked = experiments["experiment_id"] == st.query_params.get("experiment")
    shown = ~experiments["archived"] | asked
    rows = experiments[shown if shown.any() else slice(None)].set_index("experiment_id", drop=False)
    named = titles(rows)
    chosen = _choose(page, "experiment", list(named), named.__getitem__, before, otherwise)
    return rows.loc[chosen]


def to_begin_with(ended: pd.DataFrame) -> list[str]:
    """What Compare shows of its own accord: the latest experiment that is over, of this machine
    if there is one, else of the examples."""
    mine = ended[ended["origin"] == "local"]
    first = (mine if len(mine) else ended)[:1]
    return [str(one) for one in first["experiment_id"]]


def choose_run(page: str, runs: pd.DataFrame) -> pd.Series:
    """The run to show, as a row of `storage.queries.list_runs`, and its selector."""
    rows = runs.set_index("run_id", drop=False)
    chosen = _choose(page, "run", list(rows.index), lambda key: str(rows.loc[key, "label"]))
    return rows.loc[chosen]


def choose_suite_run(runs: pd.DataFrame) -> pd.Series:
    """The suite run to show, as a row of `storage.queries.list_suite_runs`, and its selector."""
    rows = runs.set_index("suite_run", drop=False)
    return rows.loc[_choose("suites", "suite_run", list(rows.index), str)]


def choose_earlier(runs: pd.DataFrame, suite_run: str) -> str:
    """The id of the suite run to compare with, and its selector; empty for none."""
    others = runs.loc[runs["suite_run"] != suite_run, "suite_run"]
    chosen = _choose("suites", "against", [NO_RUN, *others], "against {}".format, (NO_RUN,))
    return "" if chosen == NO_RUN else chosen


def remembered(widget: str, default: T, of: str = "") -> tuple[T, Callable[[], None]]:
    """The default of a widget whose choice the address names, and its `on_change`.

    On the way back Streamlit leads over an address that says nothing, and resets such widgets to
    their defaults; there the default is what this session chose last. `of`: what the choice belongs
    to, an experiment.
    """
    place = f"remembered {widget} {of}"

    def remember() -> None:
        st.session_state[place] = st.session_state[widget]

    if st.session_state.get(SILENT) and place in st.session_state:
        return st.session_state[place], remember
    return default, remember


def titles(experiments: pd.DataFrame) -> dict[str, str]:
    """Name and time of each experiment, no two alike: a selector mixes up equal entries."""
    return told_apart(
        {
            key: f"{plain(row['name'])} · "
            + ("recorded example" if row["origin"] == "example" else words.moment(row["submitted"]))
            for key, row in experiments.iterrows()
        }
    )


def told_apart(texts: Mapping[str, str]) -> dict[str, str]:
    """What is said of each id; those that would read the same also carry the end of their id."""
    taken = Counter(texts.values())
    return {key: text if taken[text] == 1 else f"{text} · {key[-4:]}"
            for key, text in texts.items()}  # fmt: skip


def _choose(
    page: str,
    what: str,
    options: list[str],
    text: Callable[[str], str],
    before: Sequence[str] = (),
    otherwise: Sequence[str] = (),
) -> str:
    key, picked = f"{page}_{what}", f"{page}_{what}_picked"
    asked = st.query_params.get(what)
    st.session_state[SILENT] = asked is None
    if asked is not None and asked not in options:
        st.warning(f"There is no {inert(what)} {code(asked)} here.", icon=":material/search_off:")
    if asked is not None and asked != st.session_state.get(picked):
        st.session_state[what] = asked
    last = st.session_state.get(what)
    candidates = [asked, *(one for one in before if one == last), *before, last, *otherwise,
                  options[0]]  # fmt: skip
    chosen = next(option for option in candidates if option in options)
    st.session_state[key] = chosen
    label = what.replace("_", " ").capitalize()
    st.selectbox(
        inert(label), options, key=key, format_func=text, on_change=_write_to_address,
        args=(what, key, picked), label_visibility="collapsed", width=480,
    )  # fmt: skip
    if asked != chosen:
        st.query_params[what] = chosen
        st.session_state[picked] = chosen
    return chosen


def _write_to_address(what: str, key: str, picked: str) -> None:
    if what in OF_IT:
        st.query_params.pop(OF_IT[what], None)  # of what was shown until now
    st.session_state[what] = st.query_params[what] = st.session_state[key]
    st.session_state.pop(picked, None)
