"""Which experiment and run a page shows. The address says it, so a link or a reload shows it again.

A page that is opened without saying (from the navigation bar) shows what this session looked at
last, and else what the page itself thinks best.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st

from views import words
from views.inert import code, inert

NO_RUN = "no other run"
"""What stands for no suite run to compare with."""


def choose_experiment(
    page: str, experiments: pd.DataFrame, preferred: Sequence[str] = ()
) -> pd.Series | None:
    """The experiment to show, as a row of `storage.queries.list_experiments`, and its selector.

    `preferred`: ids that come before the one looked at last. None if there is no experiment.
    """
    if experiments.empty:
        return None
    rows = experiments.set_index("experiment_id", drop=False)
    titles = _titles(rows)
    chosen = _choose(page, "experiment", list(titles), titles.__getitem__, preferred)
    return rows.loc[chosen]


def choose_run(page: str, runs: pd.DataFrame) -> pd.Series:
    """The run to show, as a row of `storage.queries.list_runs`, and its selector."""
    rows = runs.set_index("run_id", drop=False)
    chosen = _choose(page, "run", list(rows.index), lambda key: str(rows.loc[key, "label"]), ())
    return rows.loc[chosen]


def choose_suite_run(runs: pd.DataFrame) -> pd.Series:
    """The suite run to show, as a row of `storage.queries.list_suite_runs`, and its selector."""
    rows = runs.set_index("suite_run", drop=False)
    return rows.loc[_choose("suites", "suite_run", list(rows.index), str, ())]


def choose_earlier(runs: pd.DataFrame, suite_run: str) -> str:
    """The id of the suite run to compare with, and its selector; empty for none."""
    others = runs.loc[runs["suite_run"] != suite_run, "suite_run"]
    chosen = _choose("suites", "against", [NO_RUN, *others], "against {}".format, (NO_RUN,))
    return "" if chosen == NO_RUN else chosen


def _titles(experiments: pd.DataFrame) -> dict[str, str]:
    """Name and time of each experiment. A selector mixes up entries that read the same, so those
    that would also carry the end of their id.
    """
    titles = {
        key: f"{row['name']} · "
        + ("recorded example" if row["origin"] == "example" else words.moment(row["submitted"]))
        for key, row in experiments.iterrows()
    }
    taken = Counter(titles.values())
    return {
        key: text if taken[text] == 1 else f"{text} · {key[-4:]}" for key, text in titles.items()
    }


def _choose(
    page: str, what: str, options: list[str], text: Callable[[str], str], preferred: Sequence[str]
) -> str:
    asked = st.query_params.get(what)
    if asked is not None and asked not in options:
        st.warning(f"There is no {inert(what)} {code(asked)} here.", icon=":material/search_off:")
    candidates = [asked, *preferred, st.session_state.get(what), options[0]]
    chosen = next(option for option in candidates if option in options)
    key = f"{page}_{what}"
    st.session_state[key] = chosen
    label = what.replace("_", " ").capitalize()
    st.selectbox(
        inert(label), options, key=key, format_func=text, on_change=_write_to_address,
        args=(what, key), label_visibility="collapsed", width=480,
    )  # fmt: skip
    if asked != chosen:
        st.query_params[what] = chosen
    st.session_state[what] = chosen
    return chosen


def _write_to_address(what: str, key: str) -> None:
    if what == "experiment":
        st.query_params.pop("run", None)  # a run of the experiment shown until now
    st.query_params[what] = st.session_state[key]
