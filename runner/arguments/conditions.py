"""Conditions on the command line, such as `slower`, `compile>60` and `speedup>1.2`.

`--fail-if` of `show`, `compare` and `trend` takes lists of conditions; a search of the list of
experiments may contain some, too. `storage/terminal/gate.py`, `storage/terminal/trends.py` and
`storage/library/catalog.py` judge conditions; `docs/suites.md` defines those of `--fail-if`.
"""

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from breakeven.runner.arguments.options import checked
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import require
from breakeven.runner.specs.values import nearest, split_at_commas


class Limit(NamedTuple):
    """The limit of a condition."""

    example: str
    is_needed: bool = True
    below: float = math.inf
    environment: str | None = None
    """What the user must write after the name and a colon; None for a name alone."""


COMPARED = re.compile(r"([a-z-]+(?::[\w.+!-]+)?)\s*([<>])\s*(.*)", re.DOTALL)
SLOWER_THAN = "slower-than"
GATE = {
    "slower": None,
    "parity": None,
    "accuracy": None,
    "compile": Limit("60"),
    SLOWER_THAN: Limit("2%", below=100, environment="ENVIRONMENT"),
}
"""Conditions about the backends of an experiment; the limit of `compile` is in seconds, that of
`slower-than` in percent of the step time in another environment."""
GATE_METAVAR = "slower|parity|accuracy|'compile>SECONDS'|'slower-than:ENVIRONMENT>PERCENT'"
GATE_HELP = (
    "what the exit status judges, instead of parity alone, with the reasons printed: 5 if a "
    "backend is slower than the baseline; 3 or 4 if its parity is broken or could not be shown; 5 "
    "if its final accuracy is worse or could not be compared; if its compile latency exceeds a "
    "limit; if a run is slower than the same run in another environment by more than a limit "
    "(write quotes, because the shell interprets >). Join conditions by commas or repeat the "
    "option (docs/suites.md)"
)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A word, or a number that is above or below a limit."""

    name: str
    above: bool = True
    limit: float | None = None
    environment: str | None = None
    """The text after a colon: `torch211` in `slower-than:torch211>2%`."""

    def __str__(self) -> str:
        """The text on the command line."""
        name = self.name if self.environment is None else f"{self.name}:{self.environment}"
        if self.limit is None:
            return name
        return f"{name}{'>' if self.above else '<'}{self.limit:.15g}"


def parse_condition(text: str) -> Condition | None:
    """Reads a condition with or without a limit; None for a sign without a number."""
    compared = COMPARED.fullmatch(text)
    if compared is None:
        return Condition(name=text)
    name, sign, limit = compared.groups()
    try:
        number = float(limit.removesuffix("%"))
    except ValueError:
        return None
    name, _, environment = name.partition(":")
    condition = Condition(
        name=name, above=sign == ">", limit=number, environment=environment or None
    )
    return condition if math.isfinite(number) else None


def parse_conditions(
    text: str, known: Mapping[str, Limit | None] = GATE, metavar: str = GATE_METAVAR
) -> list[Condition]:
    """Reads conditions such as `slower,compile>60`; raises `ValueError`.

    `known`: the valid names and their limits; `metavar` lists them for people.
    """
    offered = metavar.replace("|", ", ")
    conditions = [_known(part, known, offered) for part in split_at_commas(text)]
    if not conditions:
        raise ValueError(f"no condition is given; choose from {offered}")
    return conditions


def add_fail_if(
    parser: argparse.ArgumentParser,
    known: Mapping[str, Limit | None] = GATE,
    metavar: str = GATE_METAVAR,
    help: str = GATE_HELP,
) -> None:
    """Adds `--fail-if` to a command; `fail_if` is then a list of conditions, perhaps empty."""
    read = checked(lambda text: parse_conditions(text, known, metavar))
    parser.add_argument(
        "--fail-if", action="extend", type=read, default=[], metavar=metavar, help=help
    )


def check_gate(spec: ExperimentSpec, conditions: Sequence[Condition]) -> None:
    """Raises `InvalidSpec` for a condition on what the experiment does not measure."""
    measured = spec.kind.conditions
    named = ", ".join(measured) or "nothing"
    first, *others = spec.environment_names
    needed = (
        f"the first environment, {first}" if others else "an environment; the experiment has none"
    )
    for condition in conditions:
        rule = f"must be what the scenario {spec.scenario!r} measures: {named}"
        require(condition.name in measured, "--fail-if", str(condition), rule)
        rule = f"must name {needed}"
        require(
            condition.environment in (None, first if others else None),
            "--fail-if",
            str(condition),
            rule,
        )


def _known(text: str, known: Mapping[str, Limit | None], offered: str) -> Condition:
    name, _, environment = re.split("[<>]", text)[0].strip().partition(":")
    limit = known.get(name)
    if name not in known or "<" in text or (limit is None and name != text):
        raise ValueError(
            f"{text!r} is not a condition; choose from {offered}{nearest(name, known)}"
        )
    if bool(environment) != bool(limit and limit.environment):
        raise ValueError(f"{text!r} is not a condition; choose from {offered}")
    condition = parse_condition(text)
    if limit is None or (name == text and not limit.is_needed):
        return Condition(name=name)
    if condition is None or condition.limit is None or not 0 <= condition.limit < limit.below:
        named = f"{name}:{environment}" if environment else name
        raise ValueError(
            f"{text!r} has no valid limit; write '{named}>{limit.example}', in quotes, because the "
            "shell interprets >"
        )
    return condition
