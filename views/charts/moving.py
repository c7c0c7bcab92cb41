"""A chart that moves while somebody looks at it, or together with others over the same x.

Streamlit makes its own charts anew for every figure, whatever the figure's `uirevision` says, and
none of them knows of another. This one is the same plotly.js, from the package that draws the
pictures, told of the new data; zoom and hidden lines stay as they are.
"""

from functools import cache
from pathlib import Path
from typing import Any

import plotly
import plotly.graph_objects as go
import streamlit as st
from streamlit.components.v1 import declare_component

SCRIPTS = ("ranges.js", "moving.js")
PLOTLY = "plotly.min.js"
_chart = st.components.v2.component(
    "moving_chart",
    html='<div class="moving-chart" role="figure"></div>',
    js="".join(Path(__file__).with_name(name).read_text() for name in SCRIPTS),
    isolate_styles=False,
)


@cache
def _served() -> str:
    """The name under which plotly.js is served, so that no network is needed: the files of what is
    declared are, though this is never shown."""
    folder = Path(plotly.__file__).parent / "package_data"
    return declare_component("plotly_js", path=folder).name


def shares_x(figure: go.Figure) -> bool:
    """Whether others may stand over the same x, as `views.charts.layers.over_steps` has it."""
    return bool(figure.layout.meta)


def moving_chart(figure: str, key: str, config: dict[str, Any], alt: str, group: str) -> None:
    """The figure, as `Card.written` has it, in the place of the one that had the same key. Charts
    of a group that stand over the same x show the same part of it."""
    _chart(
        key=key,
        data={
            "figure": figure,
            "config": config,
            "alt": alt,
            "group": group,
            "plotly": f"component/{_served()}/{PLOTLY}",
        },
    )
