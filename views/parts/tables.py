"""Tables of what was recorded, each with what its numbers mean and its way out."""

from collections.abc import Mapping

import pandas as pd
import streamlit as st
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from breakeven.storage.numbers.metrics import DASH
from breakeven.storage.numbers.recorded import NUMBERS
from breakeven.views.parts.downloads import table_downloads
from breakeven.views.shared.inert import Markdown
from breakeven.views.shared.links import explained

MAX_WRITTEN_CELLS = 100_000
ALWAYS_KNOWN = ["run_id", "label", "role"]
"""Columns that say which run it is."""


def of_run(frame: pd.DataFrame, run: pd.Series) -> pd.DataFrame:
    """The rows of one run in a frame of `storage.queries`."""
    return frame[frame["run_id"] == run["run_id"]]


def show_table(
    title: Markdown,
    frame: pd.DataFrame,
    name: str,
    empty: Markdown,
    numbers: Mapping[str, str] | None = None,
    download: pd.DataFrame | None = None,
) -> None:
    """A table under its title, or what `empty` says; `name` is unique on the page.

    Columns are titled and explained as the numbers of their names (`storage.numbers.recorded`),
    those in `numbers` as the number given there; others hold words. Files hold `download`, if
    given, and else the table itself.
    """
    shown = frame.drop(columns=ALWAYS_KNOWN, errors="ignore")
    meant = {column: (numbers or {}).get(column, column) for column in shown.columns}
    meant = {column: number for column, number in meant.items() if number in NUMBERS}
    help = explained(meant.values()) if meant and not frame.empty else None
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{title}**", help=help, width="stretch")
            if not frame.empty:
                table_downloads(frame if download is None else download, name)
        if frame.empty:
            st.caption(empty)
            return
        # Written as everywhere else, and still sorted as numbers; of a large table that takes long.
        written = {column: NUMBERS[number].format for column, number in meant.items()
                   if shown.size <= MAX_WRITTEN_CELLS and is_number(shown[column])}  # fmt: skip
        titles = {column: _title(column, shown[column], column in written) for column in shown}
        config = {titles[column]: st.column_config.Column(help=NUMBERS[number].definition)
                  for column, number in meant.items()}  # fmt: skip
        renamed = shown.rename(columns=titles)
        formats = {titles[column]: write for column, write in written.items()}
        st.dataframe(renamed.style.format(formats) if formats else renamed, hide_index=True,
                     key=f"table-{name}", placeholder=DASH, column_config=config)  # fmt: skip


def is_number(values: pd.Series) -> bool:
    return is_numeric_dtype(values) and not is_bool_dtype(values)


def _title(column: str, values: pd.Series, is_written: bool) -> str:
    """A number's own title, with its unit unless that is written beside each value.

    Of other columns `failed_here` becomes `Failed here`; what is written with a capital stays.
    """
    if column in NUMBERS:
        number = NUMBERS[column]
        has_unit = is_written and not number.format(1.5)[-1].isdigit()
        return number.axis_title if is_number(values) and not has_unit else number.title
    words = column.replace("_", " ")
    return words[:1].upper() + words[1:]
