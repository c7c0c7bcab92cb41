"""Filters of the list of experiments: the options of `list`, with the same names in addresses.

`storage/library/catalog.py` applies them; the page Experiments offers the same filters.
"""

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from breakeven.runner.arguments.conditions import Condition, parse_condition
from breakeven.runner.arguments.options import checked
from breakeven.runner.specs.values import nearest

FACETS = {
    "state": "state: queued, running, finished, failed, ...",
    "scenario": "train, speed, accuracy or cache",
    "task": "what the model learns",
    "model": "name of the model",
    "data": "name of the data set",
    "device": "name of the device",
    "torch": "version of torch",
    "transformers": "version of transformers",
    "precision": "float32, tf32, bf16 or fp16",
    "batch": "batch size",
    "backend": "one of its backends, or of its arms by name",
    "environment": "one of its environments",
    "verdict": "speed of the best backend: faster, slower, same, inconclusive, failed or cancelled",
    "parity": "worst of its backends: matches, broken, ...",
    "tag": "one of its tags",
    "origin": "local, example or imported",
}
"""Facets by name, with their descriptions."""
NUMBERS = {
    "speedup": "best speedup",
    "compile": "compile latency of the best backend, in seconds",
    "steps": "break-even of the best backend, in steps",
    "duration": "duration in seconds",
    "warnings": "number of warnings",
    "mb": "size on disk, in MB",
}
"""Numbers that a search can compare: `speedup>1.2`."""
COMPUTED = ("verdict", "parity")
"""Facets that are known only after an experiment was compared."""
SORTS = ("when", "name", "state", "model", "device", "torch", *NUMBERS)
Archived = Literal["no", "yes", "only"]
TERM = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')
COMPARISON = re.compile(r"([a-z]+)[<>](.*)")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms of a search."""

    wanted: tuple[str, ...] = ()
    """Words that must all be in the texts of an experiment, in any case of letters."""
    unwanted: tuple[str, ...] = ()
    comparisons: tuple[Condition, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Experiments to list, and their order."""

    text: str = ""
    """Words that must all be found, `-word` for a word that must not, `"two words"`, and
    comparisons such as `speedup>1.2`."""
    facets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By facet, the allowed values."""
    archived: Archived = "no"
    """Whether archived experiments are listed, or only these."""
    sort: str = "-when"
    """One of `SORTS`; with `-` in front, the largest comes first."""

    @property
    def terms(self) -> Terms:
        return parse_terms(self.text)

    @property
    def before_comparing(self) -> "Filter":
        """The part of the filter that needs no comparison; it matches more experiments."""
        facets = {name: values for name, values in self.facets.items() if name not in COMPUTED}
        return replace(self, text="", facets=facets, sort="-when")


def parse_terms(text: str) -> Terms:
    """Reads the terms of a search; raises `ValueError` for an invalid comparison."""
    wanted: list[str] = []
    unwanted: list[str] = []
    comparisons: list[Condition] = []
    for minus, phrase, word in TERM.findall(text):
        compared = COMPARISON.fullmatch(word) if word and not minus else None
        if compared is not None:
            comparisons.append(_comparison(word))
        elif phrase or word:
            (unwanted if minus else wanted).append((phrase or word).casefold())
    return Terms(wanted=tuple(wanted), unwanted=tuple(unwanted), comparisons=tuple(comparisons))


def add_list_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `read_filter` reads, and the format of the output."""
    numbers = ", ".join(f"{name} ({text})" for name, text in NUMBERS.items())
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        type=checked(_check_term),
        help="words that must all be in an experiment's texts; -word (after --) for a word that "
        f"must not; 'speedup>1.2' for numbers: {numbers}",
    )
    add_facets(parser)
    parser.add_argument(
        "--archived",
        choices=get_args(Archived),
        default="no",
        help="list archived experiments, too, or alone (default: no)",
    )
    orders = [f"{sign}{name}" for name in SORTS for sign in ("", "-")]
    parser.add_argument(
        "--sort",
        choices=orders,
        default="-when",
        metavar="[-]NAME",
        help=f"one of {', '.join(SORTS)}; with - in front, the largest first: "
        "--sort=-speedup (default: -when)",
    )
    written = parser.add_mutually_exclusive_group()
    written.add_argument("--json", action="store_true", help="print a list of JSON objects")
    written.add_argument("--table", action="store_true", help="print a table (the default)")


def add_facets(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `read_facets` reads."""
    filters = parser.add_argument_group("filters, each as often as needed")
    for name, text in FACETS.items():
        filters.add_argument(f"--{name}", action="append", metavar="VALUE", help=text)


def read_facets(options: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    """The given values by facet."""
    return {name: tuple(given) for name in FACETS if (given := getattr(options, name))}


def read_filter(options: argparse.Namespace) -> Filter:
    """The filter of parsed options."""
    text = " ".join(map(_quoted, options.words))
    return Filter(
        text=text, facets=read_facets(options), archived=options.archived, sort=options.sort
    )


def filter_arguments(wanted: Filter) -> list[str]:
    """The arguments from which `read_filter` makes the same filter; defaults are left out."""
    facets = [f"--{name}={value}" for name, values in wanted.facets.items() for value in values]
    plain = Filter()
    others = [f"--archived={wanted.archived}"] if wanted.archived != plain.archived else []
    others += [f"--sort={wanted.sort}"] if wanted.sort != plain.sort else []
    words = [
        minus + (phrase or word)
        for minus, phrase, word in TERM.findall(wanted.text)
        if phrase or word
    ]
    first = ["--"] if any(word.startswith("-") for word in words) else []
    return [*facets, *others, *first, *words]


def _comparison(word: str) -> Condition:
    name, _, limit = re.split("([<>])", word, maxsplit=1)
    if name not in NUMBERS:
        raise ValueError(
            f"{name!r} is not a number of the list; choose from {', '.join(NUMBERS)}"
            f"{nearest(name, NUMBERS)}"
        )
    condition = parse_condition(word)
    if condition is None:
        raise ValueError(f"{limit!r} after {word.removesuffix(limit)} is not a number")
    return condition


def _quoted(word: str) -> str:
    minus = "-" if word.startswith("-") else ""
    return f'{minus}"{word.removeprefix("-")}"' if " " in word else word


def _check_term(text: str) -> str:
    parse_terms(_quoted(text))
    return text
