"""One colour per run label, the same on every chart and page.

Every colour has a contrast of at least 3 : 1 (WCAG 2.2, non-text) on both the light and the dark
background, so a figure need not know the theme.
"""

from collections.abc import Iterable

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
}
OTHERS = ("#d6498f", "#6d8b1f", "#b07d10", "#1f9d76", "#d94a57", "#a06be0", "#3b82f6")


def run_colors(labels: Iterable[str]) -> dict[str, str]:
    """Colour of each run; labels come in variant order, so an experiment always looks the same."""
    ordered = list(dict.fromkeys(labels))
    others = [label for label in ordered if label not in KNOWN]
    assigned = {label: OTHERS[place % len(OTHERS)] for place, label in enumerate(others)}
    return {label: KNOWN.get(label) or assigned[label] for label in ordered}


def dash(role: str) -> str:
    """The control is a second baseline: same colour, dashed."""
    return "dash" if role == "control" else "solid"
