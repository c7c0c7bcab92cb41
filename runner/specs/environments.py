"""Environments: Python installations in which the runs of an experiment execute, side by side.

An experiment names each as `torch211=/home/me/torch211/bin/python`. Every environment gets all runs
of the experiment, with a baseline and controls of its own: `baseline@torch211`,
`inductor@torch211`. The first one is what the others are compared with.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Protocol

from breakeven.runner.specs.fields import require
from breakeven.runner.specs.rules import MAX_BACKENDS
from breakeven.runner.specs.scenarios import Scenario
from breakeven.runner.specs.variants import ENVIRONMENT_MARK, Variant

NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,39}")
FIELD = "environments"


def pythons(environments: Iterable[str]) -> dict[str, str]:
    """The path of each environment's Python, by name."""
    return {name: python for name, _, python in (text.partition("=") for text in environments)}


def in_each(environments: Iterable[str], variants: Sequence[Variant]) -> list[Variant]:
    """The variants in every environment; as they are without one."""
    names = list(pythons(environments))
    if not names:
        return [*variants]
    return [
        replace(one, label=f"{one.label}{ENVIRONMENT_MARK}{name}", environment=name)
        for name in names
        for one in variants
    ]


class Placed(Protocol):
    """What of an experiment decides whether it can run in several environments."""

    @property
    def environments(self) -> tuple[str, ...]: ...
    @property
    def kind(self) -> Scenario: ...
    @property
    def backends(self) -> tuple[str, ...]: ...
    @property
    def num_places(self) -> int: ...


def check_environments(spec: Placed) -> None:
    """Raises `InvalidSpec` for names, paths and combinations that cannot run."""
    if not spec.environments:
        return
    for text in spec.environments:
        name, equals, python = text.partition("=")
        rule = "must read NAME=PATH, with a name of at most 40 letters, digits, '.', '_' and '-'"
        require(bool(equals and NAME.fullmatch(name)), FIELD, text, rule)
        rule = "must name the Python by its full path, such as /home/me/torch211/bin/python"
        require(PurePath(python).is_absolute(), FIELD, text, rule)
    rule = "must not use a name twice"
    different = len(pythons(spec.environments)) == len(spec.environments)
    require(different, FIELD, spec.environments, rule)
    rule = "can be compared in the scenarios 'train' and 'speed' alone"
    fits = spec.kind.compares_runs and not spec.kind.searches
    require(fits, FIELD, spec.environments, rule)
    rule = "cannot be compared by runs that are spread over devices"
    require(spec.num_places == 1, FIELD, spec.environments, rule)
    rule = f"make more than {MAX_BACKENDS} runs with these backends: each is a process, and all "
    rule += "live at the same time"
    few = len(spec.environments) * len(spec.backends) <= MAX_BACKENDS
    require(few, FIELD, spec.environments, rule)
