"""Charts of pages that update in place; charts with the same x-axis zoom together.

Streamlit redraws its own charts for each new figure, whatever the figure's `uirevision`, and does
not connect charts. These charts use the plotly.js of the package that draws the pictures. They
receive new data and preserve zoom and hidden lines. All charts share it, so a browser loads
plotly.js once.
"""

from functools import cache
from pathlib import Path
from typing import Any

import plotly
import streamlit as st
from streamlit.components.v1 import declare_component

from breakeven.views.access.doors import LASTING

SCRIPTS = ("loading.js", "theme.js", "ranges.js", "moving.js")
PLOTLY = "plotly.min.js"


def _read(*names: str) -> str:
    return "".join(Path(__file__).with_name(name).read_text() for name in names)


_chart = st.components.v2.component(
    "moving_chart",
    html='<div class="moving-chart" role="figure"></div>',
    js=_read(*SCRIPTS),
    isolate_styles=False,
)
_loading = st.components.v2.component(
    "loading_charts",
    js=_read("loading.js") + "export default ({ data }) => void load(data.plotly);",
    isolate_styles=False,
)


@cache
def _served() -> str:
    """The name under which plotly.js is served without internet access: the files of a declared
    component are served, although this one is never shown."""
    folder = Path(plotly.__file__).parent / "package_data"
    return declare_component("plotly_js", path=folder).name


def _address() -> str:
    """A relative address with the version, so that browsers may cache it permanently."""
    return f"component/{_served()}/{PLOTLY}?{LASTING}={plotly.__version__}"


def expect_charts() -> None:
    """Has the browser load plotly.js while the server computes the figures."""
    _loading(key="loading-charts", data={"plotly": _address()})


def moving_chart(figure: str, key: str, config: dict[str, Any], alt: str, group: str) -> None:
    """Shows the figure, from `Card.written`, in place of the earlier one with the same key. Charts
    of a group with the same x-axis zoom together."""
    _chart(
        key=key,
        data={
            "figure": figure,
            "config": config,
            "alt": alt,
            "group": group,
            "plotly": _address(),
        },
    )
