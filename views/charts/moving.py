"""A chart that moves while somebody looks at it, and leaves zoom and hidden lines as they are.

Streamlit makes its own charts anew for every figure, whatever the figure's `uirevision` says. This
one is the same plotly.js, from the package that draws the pictures, told of the new data.
"""

from functools import cache
from pathlib import Path
from typing import Any

import plotly
import plotly.graph_objects as go
import streamlit as st
from streamlit.components.v1 import declare_component

from views.shared.inert import inert_figure

SCRIPT = "plotly.min.js"
_chart = st.components.v2.component(
    "moving_chart",
    html='<div class="moving-chart" role="figure"></div>',
    js=Path(__file__).with_suffix(".js").read_text(),
    isolate_styles=False,
)


@cache
def _served() -> str:
    """The name under which plotly.js is served, so that no network is needed: the files of what is
    declared are, though this is never shown."""
    folder = Path(plotly.__file__).parent / "package_data"
    return declare_component("plotly_js", path=folder).name


def moving_chart(figure: go.Figure, key: str, config: dict[str, Any], alt: str) -> None:
    """The figure, in the place of the one that had the same key."""
    _chart(
        key=key,
        data={
            "figure": inert_figure(figure).to_json(),
            "config": config,
            "alt": alt,
            "plotly": f"component/{_served()}/{SCRIPT}",
        },
    )
