"""One colour per run label, the same on every chart and page.

Every colour has a contrast of at least 3 : 1 (WCAG 2.2, non-text) on both the light and the dark
background, so a figure need not know the theme.
"""

import re
from collections.abc import Iterable
from zlib import crc32

NEUTRAL = "#8a8f98"
FAINT = "rgba(138, 143, 152, 0.22)"
GOOD = "#1f9d76"
BAD = "#d94a57"
DOUBT = "#b07d10"

KNOWN = {
    "baseline": NEUTRAL,
    "control": NEUTRAL,
    "inductor": "#2f7fe0",
    "cudagraphs": "#e0702b",
    "aot_eager": "#9b5de5",
    "eager": "#0e9aa7",
    "inductor-reduce-overhead": "#d6498f",
    "inductor-forward": "#8f9c16",
    "inductor-forward_backward": "#318131",
    "inductor-blocks": "#c92e1d",
    "inductor-max-autotune": "#8f6424",
}
OTHERS = ("#df20df", *(color for color in KNOWN.values() if color != NEUTRAL))
"""What any other label can have, as far as the runs beside it leave it free."""


SPLITS = {"train": KNOWN["cudagraphs"], "validation": KNOWN["inductor"], "test": KNOWN["eager"]}


REPEAT = re.compile(r"-\d+$")
"""Ends the label of a repeat, which has the colour of what it repeats."""


def run_colors(labels: Iterable[str]) -> dict[str, str]:
    """Colour of each run; up to ten runs beside baseline and control all differ.

    The place at which a label begins to look for a free colour depends on its name alone, so that
    hardly any colour changes when other runs come or go.
    """
    ordered = list(dict.fromkeys(labels))
    known = {label: KNOWN.get(REPEAT.sub("", label)) for label in ordered}
    colors = {label: color for label, color in known.items() if color is not None}
    for label in ordered:
        if label not in colors:
            first = crc32(label.encode()) % len(OTHERS)
            candidates = [*OTHERS[first:], *OTHERS[:first]]
            free = [color for color in candidates if color not in colors.values()]
            colors[label] = (free or candidates)[0]
    return {label: colors[label] for label in ordered}


def dash(role: str) -> str:
    """The control is a second baseline: same colour, dashed."""
    return "dash" if role == "control" else "solid"
