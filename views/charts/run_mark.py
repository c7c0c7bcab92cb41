"""The piece of a run's line that stands beside its label, wherever a table is a legend, too."""

from urllib.parse import quote

from breakeven.views.charts.palette import Look
from breakeven.views.shared.inert import Html, inert


def run_mark(label: str, look: Look) -> Html:
    """A run's label behind a piece of its line, so that a table is the legend of the charts."""
    dashes = "" if look.dash == "solid" else f" stroke-dasharray='{look.dash.replace('px', '')}'"
    line = f"<path d='M0 4H36' stroke='{look.color}' stroke-width='5'{dashes}/>"
    picture = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 36 8'>{line}</svg>"
    return f'<img class="mark" alt="" src="data:image/svg+xml,{quote(picture)}">{inert(label)}'
