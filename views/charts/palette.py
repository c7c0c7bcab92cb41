"""One look per run label: a colour, a dash and a marker, the same on every chart and page.

Every colour has a contrast of at least 3 : 1 (WCAG 2.2, non-text) on both the light and the dark
background, so a figure need not know the theme. Colours alone distinguish baseline, eager,
aot_eager, inductor and cudagraphs, also for colour-blind people. Dash and marker distinguish all
others, and overlapping lines. `tests/views/test_palette.py` simulates colour blindness.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from urllib.parse import quote
from zlib import crc32

import pandas as pd

from breakeven.runner.specs.variants import ENVIRONMENT_MARK
from breakeven.views.shared.inert import Html, inert

NEUTRAL = "#8f949d"
FAINT = "rgba(138, 143, 152, 0.22)"
BAD = "#d94a57"


@dataclass(frozen=True)
class Look:
    """How a run is drawn: colour, Plotly's dash of its lines, Plotly's symbol of its marks."""

    color: str
    dash: str
    symbol: str


KNOWN = {
    "baseline": Look(NEUTRAL, "solid", "circle"),
    "control": Look("#696e77", "4px,4px", "circle-open"),
    "inductor": Look("#2f7fe0", "solid", "square"),
    "cudagraphs": Look("#a06a08", "16px,4px", "diamond"),
    "aot_eager": Look("#e23d80", "10px,3px,3px,3px", "triangle-up"),
    "eager": Look("#1f7a5c", "6px,3px", "cross"),
    "inductor-reduce-overhead": Look("#9b5de5", "20px,3px,6px,3px", "pentagon"),
    "inductor-forward": Look("#0e9aa7", "10px,3px,3px,3px,3px,3px", "star"),
    "inductor-forward_backward": Look("#318131", "20px,3px,3px,3px,3px,3px", "hexagram"),
    "inductor-blocks": Look("#d23420", "6px,3px,3px,3px", "triangle-down"),
    "inductor-max-autotune": Look("#8f6424", "16px,3px,3px,3px", "hourglass"),
}
COLORS = tuple(look.color for look in KNOWN.values())[2:]
"""Colours for things other than runs, such as compile phases."""

_DASHES = (
    "12px,6px", "2px,5px", "8px,3px,2px,3px,8px,3px", "14px,3px,2px,3px,2px,3px",
    "24px,6px", "24px,3px,3px,3px", "10px,3px,10px,3px,2px,3px",
)  # fmt: skip
_SYMBOLS = ("x", "star-square", "diamond-tall", "bowtie", "octagon", "hexagon", "star-diamond")
_COLORS = ("#df20df", "#8f9c16", "#5a6fd6", "#0e9aa7", "#c2662d", "#9b5de5", "#5c8a2f")
OTHERS = tuple(
    Look(color, dash, symbol)
    for color, (dash, symbol) in product(_COLORS, zip(_DASHES, _SYMBOLS, strict=True))
)
"""Looks of labels that `KNOWN` lacks; no other label has their dashes and symbols."""

SPLITS = {
    "train": Look(KNOWN["cudagraphs"].color, "solid", "diamond"),
    "validation": Look(KNOWN["inductor"].color, "solid", "circle"),
    "test": Look(KNOWN["aot_eager"].color, "solid", "triangle-up"),
}
UNKNOWN_SPLIT = Look(NEUTRAL, "solid", "square")

REPEAT = re.compile(r"(-on)?-\d+$")
"""The end of the label of a repeat or of a run on another device; both look like the original."""


def run_looks(labels: Iterable[str] | pd.Series) -> dict[str, Look]:
    """The look of each run.

    The look of a label outside `KNOWN` depends on the label only, so a custom backend looks the
    same in every experiment. If two labels would look alike, the later one takes the next free
    look.
    """
    # A frame of steps repeats a few labels very many times.
    ordered = list(dict.fromkeys(labels.unique() if isinstance(labels, pd.Series) else labels))
    named = {label: REPEAT.sub("", label) for label in ordered}
    looks = {label: KNOWN[name] for label, name in named.items() if name in KNOWN}
    looks |= _in_environments(ordered)
    for label in sorted(set(ordered) - set(looks)):
        first = crc32(label.encode()) % len(OTHERS)
        candidates = [*OTHERS[first:], *OTHERS[:first]]
        taken = set(looks.values())
        looks[label] = next((look for look in candidates if look not in taken), candidates[0])
    return {label: looks[label] for label in ordered}


def _in_environments(labels: Iterable[str]) -> dict[str, Look]:
    """The looks of known runs in several environments: the colour is that of the run, dash and
    symbol are those of the environment, except in the first one."""
    found = {}
    numbers: dict[str, int] = {}
    for label in labels:
        name, mark, environment = label.partition(ENVIRONMENT_MARK)
        if mark and name in KNOWN:
            number = numbers.setdefault(environment, len(numbers)) % (len(_DASHES) + 1)
            look, place = KNOWN[name], number - 1
            look_of_environment = Look(look.color, _DASHES[place], _SYMBOLS[place])
            found[label] = look_of_environment if number else look
    return found


def run_mark(label: str, look: Look) -> Html:
    """A run's label after a sample of its line, so that a table is the legend of the charts."""
    dashes = "" if look.dash == "solid" else f" stroke-dasharray='{look.dash.replace('px', '')}'"
    line = f"<path d='M0 4H36' stroke='{look.color}' stroke-width='5'{dashes}/>"
    picture = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 36 8'>{line}</svg>"
    return f'<img class="mark" alt="" src="data:image/svg+xml,{quote(picture)}">{inert(label)}'
