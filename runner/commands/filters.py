"""Which experiments a list shows: the options of `list`, and what they are called in an address.

`storage/library/filters.py` applies them; the page Experiments offers the same.
"""

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from breakeven.runner.commands.conditions import Condition, parse_condition
from breakeven.runner.commands.options import checked
from breakeven.runner.specs.values import nearest

FACETS = {
    "state": "how it stands: queued, running, finished, failed, ...",
    "scenario": "train, speed, accuracy or cache",
    "task": "what the model learns",
    "model": "what is trained",
    "data": "on what",
    "device": "name of the device",
    "torch": "version of torch",
    "transformers": "version of transformers",
    "precision": "float32, tf32, bf16 or fp16",
    "batch": "batch size",
    "backend": "one of its backends",
    "verdict": "speed of the best backend: faster, slower, same, inconclusive, failed or cancelled",
    "parity": "worst of its backends: matches, broken, ...",
    "tag": "one of its tags",
    "origin": "local, example or imported",
}
"""What experiments can be chosen by, any of several values, and what each is."""
NUMBERS = {
    "speedup": "best speedup",
    "compile": "compile latency of the best backend, in seconds",
    "steps": "break-even of the best backend, in steps",
    "duration": "in seconds",
    "doubts": "warnings of the comparison",
    "mb": "size on disk, in MB",
}
"""What a text can ask to be more or less: `speedup>1.2`."""
COMPUTED = ("verdict", "parity")
"""Facets that are known of an experiment only once it was compared."""
SORTS = ("when", "name", "state", "model", "device", "torch", *NUMBERS)
Archived = Literal["no", "yes", "only"]
TERM = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')
COMPARISON = re.compile(r"([a-z]+)[<>](.*)")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a text asks for."""

    wanted: tuple[str, ...] = ()
    """All of them are in the texts of an experiment, whether large or small letters."""
    unwanted: tuple[str, ...] = ()
    comparisons: tuple[Condition, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which experiments to list, in which order."""

    text: str = ""
    """Words that must all be found, `-word` for one that must not, `"two words"`, and comparisons
    as `speedup>1.2`."""
    facets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By facet, values of which one must be there."""
    archived: Archived = "no"
    """Whether archived experiments are listed, too, or alone."""
    sort: str = "-when"
    """One of `SORTS`; with `-` in front the largest first."""

    @property
    def terms(self) -> Terms:
        return parse_terms(self.text)

    @property
    def before_comparing(self) -> "Filter":
        """The conditions that need no comparison: they let more experiments through."""
        facets = {name: values for name, values in self.facets.items() if name not in COMPUTED}
        return replace(self, text="", facets=facets, sort="-when")


def parse_terms(text: str) -> Terms:
    """Takes a text apart; raises ValueError for a comparison that makes no sense."""
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


def check_sort(text: str) -> str:
    """The text itself; raises ValueError if lists cannot be sorted by it."""
    if text.removeprefix("-") not in SORTS:
        raise ValueError(f"{text!r} is no order; choose from {', '.join(SORTS)}, or - and one")
    return text


def add_list_options(parser: argparse.ArgumentParser) -> None:
    """Adds what `read_filter` reads, and how to write what was found."""
    numbers = ", ".join(f"{name} ({text})" for name, text in NUMBERS.items())
    parser.add_argument(
        "words", nargs="*", metavar="WORD", type=checked(_check_term),
        help="words that an experiment has in its texts, all of them; -word (after --) for one it "
        f"has not; 'speedup>1.2' for numbers: {numbers}",
    )  # fmt: skip
    add_facets(parser)
    parser.add_argument("--archived", choices=get_args(Archived), default="no",
                        help="whether archived experiments are listed (default: no)")  # fmt: skip
    parser.add_argument("--sort", type=checked(check_sort), default="-when", metavar="[-]NAME",
                        help=f"one of {', '.join(SORTS)}; - for the largest first; write "
                        "--sort=-speedup (default: -when)")  # fmt: skip
    written = parser.add_mutually_exclusive_group()
    written.add_argument("--json", action="store_true", help="as a list of JSON objects")
    written.add_argument("--table", action="store_true", help="as a table (the default)")


def add_facets(parser: argparse.ArgumentParser) -> None:
    """Adds what `read_facets` reads."""
    for name, text in FACETS.items():
        parser.add_argument(f"--{name}", action="append", metavar="VALUE",
                            help=f"{text}; can be given several times")  # fmt: skip


def read_facets(options: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    """By facet, the values that were given."""
    return {name: tuple(given) for name in FACETS if (given := getattr(options, name))}


def read_filter(options: argparse.Namespace) -> Filter:
    """The filter of parsed options."""
    text = " ".join(map(_quoted, options.words))
    return Filter(
        text=text, facets=read_facets(options), archived=options.archived, sort=options.sort
    )


def filter_arguments(wanted: Filter) -> list[str]:
    """The arguments that `read_filter` makes the same filter of; defaults are left out."""
    facets = [f"--{name}={value}" for name, values in wanted.facets.items() for value in values]
    plain = Filter()
    others = [f"--archived={wanted.archived}"] if wanted.archived != plain.archived else []
    others += [f"--sort={wanted.sort}"] if wanted.sort != plain.sort else []
    words = [minus + (phrase or word) for minus, phrase, word in TERM.findall(wanted.text)
             if phrase or word]  # fmt: skip
    first = ["--"] if any(word.startswith("-") for word in words) else []
    return [*facets, *others, *first, *words]


def _comparison(word: str) -> Condition:
    name, _, limit = re.split("([<>])", word, maxsplit=1)
    if name not in NUMBERS:
        raise ValueError(f"{name!r} is no number of a list; choose from {', '.join(NUMBERS)}"
                         f"{nearest(name, NUMBERS)}")  # fmt: skip
    condition = parse_condition(word)
    if condition is None:
        raise ValueError(f"{limit!r} after {word.removesuffix(limit)} is no number")
    return condition


def _quoted(word: str) -> str:
    minus = "-" if word.startswith("-") else ""
    return f'{minus}"{word.removeprefix("-")}"' if " " in word else word


def _check_term(text: str) -> str:
    parse_terms(_quoted(text))
    return text
