"""Parts that Streamlit draws with scripts of their own, drawn out of sight before they are needed.

In the place of the first part of a kind nothing is shown until its script is there; and what stands
in such a gap React shows half a second after the last one began, at the earliest, though its script
is there after some milliseconds (`FALLBACK_THROTTLE_MS`). Of these kinds the gap is over while the
server still reads what the page shows.
"""

import streamlit as st

from breakeven.views.charts.moving import expect_charts
from breakeven.views.parts.downloads import download


def expect_parts() -> None:
    """Nobody sees or reaches them: `style.css` has them take no part in the page."""
    expect_charts()
    with st.container(key="expected"):
        st.segmented_control("Expected", ["One"], key="expected-choice", disabled=True)
        st.link_button("Expected", "definitions", disabled=True)
        download("Expected", bytes, "expected", "text/plain", unavailable="Out of sight")
