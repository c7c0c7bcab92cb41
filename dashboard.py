"""Breakeven's dashboard: its pages. `serve.py` serves them."""

from pathlib import Path

import streamlit as st

from breakeven.storage.errors import TeamStoreUnusable
from breakeven.views.parts import command_palette
from breakeven.views.shared.resources import show_unopened
from breakeven.views.upkeep.health import show_wrong

VIEWS = Path(__file__).parent / "views"

# Each page names its tab (`words.name_tab`).
st.set_page_config(page_icon=VIEWS / "shared/icon.svg", layout="wide")
st.logo(VIEWS / "shared/logo.svg", size="large")
pages = [
    st.Page(
        VIEWS / "all_experiments.py",
        title="Experiments",
        icon=":material/table_rows:",
        url_path="experiments",
        default=True,
    ),
    st.Page(VIEWS / "experiment.py", title="Experiment", icon=":material/leaderboard:"),
    st.Page(VIEWS / "launch.py", title="Launch", icon=":material/rocket_launch:"),
    st.Page(VIEWS / "machine.py", title="Machine", icon=":material/developer_board:"),
    st.Page(
        VIEWS / "definitions.py",
        title="Definitions",
        icon=":material/menu_book:",
        visibility="hidden",
    ),
]
page = st.navigation(pages, position="top")
command_palette.show_palette()
show_wrong()
try:
    page.run()
except TeamStoreUnusable as error:  # The page needs data that only the team store has.
    show_unopened(error)
