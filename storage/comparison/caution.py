"""Warnings and notes about the numbers of a comparison, as facts.

`storage.words.warnings` puts them into words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "missing runs",
    "ended early",
    "loss not finite",
    "not over",
    "different lengths",
    "stopped",
    "resumed",
    "rounds added",
    "rounds not added",
    "repeated lines",
    "missing lines",
    "different setting",
    "different sizes",
    "fallback",
    "sequential",
    "compiled together",
    "no control",
    "noisy",
    "few rounds",
    "nothing compiled",
    "given up",
    "compiles throughout",
    "operations unknown",
    "answers not compared",
    "measuring ended",
    "candidates ended",
    "search ended",
    "confirms",
    "wide intervals",
    "single repeats",
    "latency measured once",
    "note",
    "strangers unknown",
    "warmed up",
    "throttled",
    "shared device",
    "shared CPU",
    "stolen CPU",
    "CPU quota",
    "other clock",
    "other frequency",
    "many threads",
]


@dataclass(frozen=True, kw_only=True)
class Caution:
    """A fact that casts doubt on numbers or explains them.

    `runs` has the figures of each run concerned, by its label; `figures` has those of all runs
    together. Figures have the names of NUMBERS, if NUMBERS lists them.
    """

    kind: Kind
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)


def note(text: str) -> Caution:
    """A sentence that the run's own process recorded."""
    return Caution(kind="note", figures={"text": text})
