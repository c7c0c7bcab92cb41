"""One look per run label: a colour, a dash and a marker, the same on every chart and page; and the
looks of what is no run, in colours that no run has.

Every colour has a contrast of at least 3 : 1 (WCAG 2.2, non-text) on both the light and the dark
background, so a figure need not know the theme. No colour has 4.5 : 1 on both, so texts have the
page's colour, or on a coloured cell that of `text_on`. Colours alone distinguish baseline, eager,
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
from plotly.colors import unlabel_rgb

from breakeven.runner.specs.arm_fields import ENVIRONMENT_MARK
from breakeven.views.shared.inert import Html, inert

NEUTRAL = "#8f949d"
FAINT = "rgba(138, 143, 152, 0.22)"
GOOD, BAD = "#12875f", "#d94a57"


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
NON_RUN_COLORS = (
    "#149ecb",
    "#f26918",
    "#9816e5",
    "#23a510",
    "#cb1442",
    "#7f6926",
    "#3564b2",
    "#f248dd",
    "#b2859c",
    "#0b7265",
    "#8c6254",
    "#8989e5",
    "#6f5f7f",
    "#72987c",
)
"""Colours for things other than runs, such as compile phases: no run has them, so that a colour
means one thing on a page."""

_DASHES = (
    "12px,6px",
    "2px,5px",
    "8px,3px,2px,3px,8px,3px",
    "14px,3px,2px,3px,2px,3px",
    "24px,6px",
    "24px,3px,3px,3px",
    "10px,3px,10px,3px,2px,3px",
)
_SYMBOLS = ("x", "star-square", "diamond-tall", "bowtie", "octagon", "hexagon", "star-diamond")
_FALLBACK_COLORS = ("#df20df", "#8f9c16", "#5a6fd6", "#0e9aa7", "#c2662d", "#9b5de5", "#5c8a2f")
FALLBACK_LOOKS = tuple(
    Look(color, dash, symbol)
    for color, (dash, symbol) in product(_FALLBACK_COLORS, zip(_DASHES, _SYMBOLS, strict=True))
)
"""Looks of labels that `KNOWN` lacks; no other label has their dashes and symbols."""

SPLITS = {
    "train": Look(NON_RUN_COLORS[5], "solid", "diamond"),
    "validation": Look(NON_RUN_COLORS[0], "solid", "circle"),
    "test": Look(NON_RUN_COLORS[4], "solid", "triangle-up"),
}
UNKNOWN_SPLIT = Look(NEUTRAL, "solid", "square")


@dataclass(frozen=True)
class Fill:
    """How an area is filled: colour, and Plotly's shape of its pattern; empty for a full area."""

    color: str
    shape: str = ""

    @property
    def marker(self) -> dict[str, object]:
        """As Plotly's marker of a bar; also with a pattern it hides what lies below it."""
        pattern = {
            "shape": self.shape,
            "fillmode": "overlay",
            "fgcolor": "#ffffff",
            "solidity": 0.3,
            "size": 6,
        }
        return {"color": self.color, "pattern": pattern}


CLASS_FILLS = {
    "attention_flash": Fill(NON_RUN_COLORS[2]),
    "attention_cudnn": Fill(NON_RUN_COLORS[2], "/"),
    "attention_efficient": Fill(NON_RUN_COLORS[2], "x"),
    "attention_flex": Fill(NON_RUN_COLORS[2], "-"),
    "attention_math": Fill(NON_RUN_COLORS[2], "."),
    "matmul_fp8": Fill(NON_RUN_COLORS[0], "."),
    "matmul_fp16": Fill(NON_RUN_COLORS[0], "/"),
    "matmul_bf16": Fill(NON_RUN_COLORS[0]),
    "matmul_tf32": Fill(NON_RUN_COLORS[0], "-"),
    "matmul_float32": Fill(NON_RUN_COLORS[0], "x"),
    "matmul_float64": Fill(NON_RUN_COLORS[0], "+"),
    "matmul": Fill(NON_RUN_COLORS[0], "|"),
    "convolution": Fill(NON_RUN_COLORS[6]),
    "fused": Fill(NON_RUN_COLORS[3]),
    "elementwise": Fill(NON_RUN_COLORS[1]),
    "normalisation": Fill(NON_RUN_COLORS[4]),
    "random": Fill(NON_RUN_COLORS[7]),
    "copies": Fill(NON_RUN_COLORS[5]),
    "indexing": Fill(NON_RUN_COLORS[9]),
    "loss": Fill(NON_RUN_COLORS[8]),
    "optimizer": Fill(NON_RUN_COLORS[11]),
    "transfers": Fill(NON_RUN_COLORS[10]),
    "communication": Fill(NON_RUN_COLORS[12]),
    "bookkeeping": Fill(NON_RUN_COLORS[13]),
    "other": Fill(NEUTRAL, "/"),
}
"""The fill of each class of kernels, the same in every experiment; related classes share a colour
and differ in the pattern."""
STAGE_FILLS = {
    "Dynamo": Fill(NON_RUN_COLORS[0]),
    "Guards": Fill(NEUTRAL),
    "AOTAutograd": Fill(NON_RUN_COLORS[1], "/"),
    "Inductor lowering": Fill(NON_RUN_COLORS[2], "."),
    "Code generation": Fill(NON_RUN_COLORS[3], "x"),
    "Triton and C++": Fill(NON_RUN_COLORS[4], "-"),
    "Autotuning": Fill(NON_RUN_COLORS[5], "|"),
}
"""The fill of each stage of compiling, where no run's colour says whose it is."""
PHASE_DEPTHS = {
    "Dynamo": 100,
    "AOTAutograd": 72,
    "Inductor lowering": 48,
    "Code generation": 28,
    "Triton and C++": 10,
}
"""Per cent of a run's colour that each phase of compiling has in bars of several runs."""
ACTIVITY_SHAPES = {
    "steps": "",
    "evaluating": "|",
    "loading": ".",
    "compiling": "/",
    "profiling": "x",
    "finishing": "-",
    "checking": "+",
}
"""Pattern of each activity of a run, in its run's colour, in drawing order: a turn that compiles is
drawn below the compilation."""


def text_on(color: str) -> str:
    """Black or white, whichever stands out more from `rgb(...)`: at least 4.58 : 1, the square root
    of the contrast between the two (WCAG 2.2)."""
    parts = (part / 255 for part in unlabel_rgb(color))
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"


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
        first = crc32(label.encode()) % len(FALLBACK_LOOKS)
        candidates = [*FALLBACK_LOOKS[first:], *FALLBACK_LOOKS[:first]]
        taken = set(looks.values())
        looks[label] = next((look for look in candidates if look not in taken), candidates[0])
    return {label: looks[label] for label in ordered}


def _in_environments(labels: Iterable[str]) -> dict[str, Look]:
    """The looks of known runs in several environments: the colour is that of the run, dash and
    symbol are those of the environment, except in the first one."""
    looks = {}
    numbers: dict[str, int] = {}
    for label in labels:
        name, mark, environment = label.partition(ENVIRONMENT_MARK)
        if mark and name in KNOWN:
            number = numbers.setdefault(environment, len(numbers)) % (len(_DASHES) + 1)
            look, place = KNOWN[name], number - 1
            look_of_environment = Look(look.color, _DASHES[place], _SYMBOLS[place])
            looks[label] = look_of_environment if number else look
    return looks


def run_mark(label: str, look: Look) -> Html:
    """A run's label after a sample of its line, so that a table is the legend of the charts."""
    dashes = "" if look.dash == "solid" else f" stroke-dasharray='{look.dash.replace('px', '')}'"
    line = f"<path d='M0 4H36' stroke='{look.color}' stroke-width='5'{dashes}/>"
    picture = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 36 8'>{line}</svg>"
    return f'<img class="mark" alt="" src="data:image/svg+xml,{quote(picture)}">{inert(label)}'
