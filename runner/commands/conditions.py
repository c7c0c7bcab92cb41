"""What a CI gate refuses: the conditions of `--fail-if`, read before anything runs.

`storage/terminal/gate.py` judges them, `docs/ci-gate.md` defines them.
"""

import argparse
import math
from dataclasses import dataclass

from breakeven.runner.specs.options import split_at_commas

VERDICTS = ("slower", "parity", "accuracy")
"""Conditions that are a verdict; the fourth, compile, has a limit."""
COMPILE = "compile"
METAVAR = "slower|parity|accuracy|'compile>SECONDS'"
HELP = (
    "exit with status 5, and say why, if a backend is slower than the baseline; if its parity is "
    "broken or could not be shown; if its final accuracy is worse or could not be compared; if its "
    "compile latency exceeds a limit (in quotes: the shell takes > for itself). Several are joined "
    "by commas or given one by one. Of the other statuses 0, 1 and 2 remain: see docs/ci-gate.md"
)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One of `VERDICTS`, or `compile` with its limit."""

    name: str
    limit_seconds: float | None = None

    def __str__(self) -> str:
        """As it was written on the command line."""
        return self.name if self.limit_seconds is None else f"{self.name}>{self.limit_seconds:.15g}"


def parse_conditions(text: str) -> list[Condition]:
    """The conditions that a text such as `slower,compile>60` holds; raises ValueError."""
    conditions = [_parse(part) for part in split_at_commas(text)]
    if not conditions:
        raise ValueError(f"no condition is given; choose from {METAVAR.replace('|', ', ')}")
    return conditions


def add_fail_if(parser: argparse.ArgumentParser) -> None:
    """Adds `--fail-if` to a command; `fail_if` is then a list of conditions, maybe empty."""
    parser.add_argument(
        "--fail-if", action="extend", type=_parse_argument, default=[], metavar=METAVAR, help=HELP
    )


def _parse_argument(text: str) -> list[Condition]:
    try:
        return parse_conditions(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parse(text: str) -> Condition:
    name, above, limit = (part.strip() for part in text.partition(">"))
    if name in VERDICTS and not above:
        return Condition(name=name)
    if name != COMPILE:
        raise ValueError(f"{text!r} is no condition; choose from {METAVAR.replace('|', ', ')}")
    try:
        seconds = float(limit)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(
            f"{text!r} has no limit; write 'compile>60' for 60 seconds, in quotes, because the "
            "shell takes > for itself"
        )
    return Condition(name=name, limit_seconds=seconds)
