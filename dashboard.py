"""Breakeven's dashboard: its pages. `serve.py` serves them."""

from pathlib import Path

import streamlit as st

from breakeven.storage.errors import TeamStoreUnusable
from breakeven.views.access.signed_in import show_person
from breakeven.views.shared.resources import show_unopened
from breakeven.views.upkeep.strip import show_wrong
from breakeven.views.wall import page as wall

VIEWS = Path(__file__).parent / "views"

st.set_page_config(page_title="Breakeven", page_icon=VIEWS / "shared/icon.svg", layout="wide")
st.logo(VIEWS / "shared/logo.svg", size="large")
st.html(VIEWS / "shared/style.css")
pages = [
    st.Page(VIEWS / "experiments.py", title="Experiments", icon=":material/table_rows:"),
    st.Page(VIEWS / "compare.py", title="Compare", icon=":material/leaderboard:", default=True),
    st.Page(VIEWS / "difference.py", title="Side by side", icon=":material/compare_arrows:"),
    st.Page(VIEWS / "live.py", title="Live", icon=":material/monitor_heart:"),
    st.Page(VIEWS / "launch.py", title="Launch", icon=":material/rocket_launch:"),
    st.Page(VIEWS / "run.py", title="Run", icon=":material/troubleshoot:"),
    st.Page(VIEWS / "suites.py", title="Suites", icon=":material/view_list:"),
    st.Page(VIEWS / "matrix.py", title="Matrix", icon=":material/grid_on:"),
    st.Page(VIEWS / "trends.py", title="Trends", icon=":material/timeline:"),
    st.Page(VIEWS / "devices.py", title="Devices", icon=":material/developer_board:"),
    st.Page(VIEWS / "system.py", title="System", icon=":material/stethoscope:"),
    st.Page(VIEWS / "definitions.py", title="Definitions", icon=":material/menu_book:"),
]
page = st.navigation(pages, position="top")
show_person(on_wall=wall.is_asked())
show_wrong()
try:
    page.run()
except TeamStoreUnusable as error:  # While a page asked for what only that store has.
    show_unopened(error)
