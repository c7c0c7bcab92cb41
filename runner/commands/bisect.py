"""`--bisect-versions` of `compare` and `script`: finds the first bad version of a package, by
experiments in which the oldest version and another one take turns."""

import argparse
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, log2
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from breakeven.runner.checks.environments import check_environments
from breakeven.runner.commands.conditions import SLOWER_THAN, Condition
from breakeven.runner.commands.entry import JUDGE_VERSION, tell
from breakeven.runner.commands.options import checked
from breakeven.runner.commands.waiting import Storage, run_through
from breakeven.runner.errors import InvalidSpec, RunnerError
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.machine.environments import make, read_requirements, released_between
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.values import split_at_commas
from breakeven.runner.specs.variants import ENVIRONMENT_NAME
from breakeven.runner.texts import printable

OPTION = "--bisect-versions"
USUAL_PACKAGE = "torch"
OUT_OF_NAME = re.compile(r"[^\w.-]")
FOUND, NOT_FOUND = 0, 4
CONDITIONS = ("parity", "compile", SLOWER_THAN)
LONGEST_NAME = 60
"""Characters of an experiment's name, in front of the versions."""


class Versions(NamedTuple):
    """Versions of a package: two ends, or all of them in the order of the search."""

    package: str
    named: tuple[str, ...]
    is_range: bool


def read_versions(text: str) -> Versions:
    """Reads `2.9.1..2.14.1`, `transformers==4.50..5.0` or `torch==2.9.1,2.11.0,2.14.1`; raises
    `ValueError`."""
    package, equals, versions = text.rpartition("==")
    is_range = ".." in versions
    named = versions.split("..") if is_range else split_at_commas(versions)
    valid = all(re.fullmatch(r"[A-Za-z0-9][\w.+!-]*", one) for one in named)
    few = len(named) != 2 if is_range else len(named) < 2
    valid = valid and (not equals or bool(ENVIRONMENT_NAME.fullmatch(package)))
    if few or not valid or len(set(named)) < len(named):
        raise ValueError(f"{text!r} must read A..B or A,B,C, with the package in front unless it "
                         f"is {USUAL_PACKAGE}: transformers==4.50..5.0")  # fmt: skip
    return Versions(package or USUAL_PACKAGE, tuple(named), is_range)


def add_bisect_option(parser: argparse.ArgumentParser) -> None:
    """Adds the option to a command."""
    text = (
        "find the first version of a package with which this training is slower, fails or learns "
        "something else than with A: torch==A..B for the released versions, torch==A,B,C for these "
        "(default package: torch). uv makes an environment for each version that is tried; "
        "--environment NAME=REQUIREMENTS says what else is installed there; --fail-if replaces "
        "what is bad (docs/devices.md)"
    )
    parser.add_argument(OPTION, type=checked(read_versions), metavar="[PACKAGE==]A..B", help=text)


def first_bad(count: int, judge: Callable[[int], bool | None]) -> tuple[int, int]:
    """The last good and the first bad of `count` versions, of which the first is good and the last
    is bad. `judge` says whether a version is bad; None: unknown, and a neighbour is tried."""
    good, bad, unknown = 0, count - 1, set[int]()
    while rest := [one for one in range(good + 1, bad) if one not in unknown]:
        middle = min(rest, key=lambda one: abs(one - (good + bad) / 2))
        is_bad = judge(middle)
        if is_bad is None:
            unknown.add(middle)
        elif is_bad:
            bad = middle
        else:
            good = middle
    return good, bad


def bisect(
    data_dir: DataDir, options: argparse.Namespace, spec: ExperimentSpec, beside: Sequence[str]
) -> int:
    """Searches, prints what was found, and returns the exit status. `beside`: the environment that
    the command names, for requirements besides the package."""
    package, named, is_range = options.bisect_versions
    prefix, requirements = _requirements(beside)
    versions = released_between(package, *named) if is_range else list(named)
    _check_conditions(options.fail_if, (named[0], versions[0]))
    search = _Search(data_dir, spec, package, versions, prefix, requirements, options.fail_if,
                     Storage(data_dir))  # fmt: skip
    most = 1 + ceil(log2(max(1, len(versions) - 1)))
    _print(f"{package}: {len(versions) - 1} versions after {versions[0]}, up to {versions[-1]}; "
           f"about {most} experiments")  # fmt: skip
    if not search.is_last_bad():
        _print(f"{package} {versions[-1]} shows no fault compared with {versions[0]}: there is "
               "nothing to search for.")  # fmt: skip
        return NOT_FOUND
    good, bad = first_bad(len(versions), search.is_bad)
    _print(search.answer(good, bad))
    return FOUND if bad == good + 1 else NOT_FOUND


class Stopped(RunnerError):
    """The experiments of a search were stopped."""


@dataclass
class _Search:
    """The experiments of a search, and what each said."""

    data_dir: DataDir
    spec: ExperimentSpec
    package: str
    versions: list[str]
    prefix: str
    requirements: str
    conditions: list[Condition]
    storage: Storage
    words: dict[int, str] = field(default_factory=dict)
    """What was found for each version that was tried."""
    last_experiment: str = ""
    """The experiment of the last version, whose faults are sought in the others."""

    def is_last_bad(self) -> bool:
        """Whether the last version is bad; raises `RunnerError` if it, or the first one, cannot be
        used."""
        last = len(self.versions) - 1
        self.last_experiment = self._race(last)
        return self._judgement(last, self.last_experiment) == "bad"

    def is_bad(self, number: int) -> bool | None:
        """Whether a version has a fault of the last one; None if that cannot be known."""
        try:
            verdict = self._judgement(number, self._race(number))
        except Stopped:
            raise
        except RunnerError as error:
            self.words[number] = f"open, because it could not be tried: {error}"
            _print(f"{self.package} {self.versions[number]} is {self.words[number]}")
            return None
        return None if verdict == "open" else verdict == "bad"

    def answer(self, good: int, bad: int) -> str:
        """The result, and what was found for each version that was tried."""
        one_of = "" if bad == good + 1 else f"one of {', '.join(self.versions[good + 1 : bad + 1])}"
        lines = [f"The first bad version of {self.package} is {one_of or self.versions[bad]}."]
        lines += [f"  {self.versions[one]} is {self.words[one]}" for one in sorted(self.words)]
        return "\n".join(lines)

    def _race(self, number: int) -> str:
        """Runs the experiment of a version and the first one; returns its id."""
        first, other = (self._environment(one) for one in (0, number))
        name = f"{self.spec.name[:LONGEST_NAME]}: {self.package} {self.versions[number]}"
        spec = replace(self.spec, name=name, environments=(first, other))
        check_environments(spec, self.data_dir)
        _print(f"\n{self.package} {self.versions[number]} beside {self.versions[0]}")
        experiment = run_through(self.data_dir, spec, self.storage)
        if any(run.state.is_cancelled for run in experiment.runs):
            raise Stopped("the search was stopped; its environments and experiments remain")
        return experiment.experiment_id

    def _environment(self, number: int) -> str:
        version = self.versions[number]
        name = OUT_OF_NAME.sub("-", "-".join([self.prefix, self.package, version]).lstrip("-"))
        wanted = f"{self.requirements}{self.package}=={version}\n"
        return f"{name}={make(self.data_dir, name, wanted).python}"

    def _judgement(self, number: int, experiment_id: str) -> str:
        """Lets `storage/` judge, and prints what it says. Raises `RunnerError` if it cannot."""
        with TemporaryDirectory() as folder:
            file = Path(folder) / "judgement.json"
            more = [f"--fail-if={condition}" for condition in self.conditions]
            arguments = [experiment_id, f"--worst={self.last_experiment}", f"--output={file}"]
            if self.storage.run(JUDGE_VERSION, [*arguments, *more]):
                raise RunnerError(f"{experiment_id} could not be judged")
            judgement = json.loads(file.read_text())
        verdict: str = judgement["verdict"]
        self.words[number] = f"{verdict} ({experiment_id}): {judgement['words']}"
        _print(f"{self.package} {self.versions[number]} is {self.words[number]}")
        return verdict


def _requirements(beside: Sequence[str]) -> tuple[str, str]:
    """Name and lines of the requirements besides the package; empty without an environment."""
    if not beside:
        return "", ""
    name, equals, given = beside[0].partition("=")
    is_python = os.path.isfile(given) and not given.endswith(".txt")
    if len(beside) > 1 or not equals or not ENVIRONMENT_NAME.fullmatch(name) or is_python:
        rule = f"must be one NAME=REQUIREMENTS with {OPTION}: what each environment gets besides "
        raise InvalidSpec("environments", list(beside), rule + "the package")
    return name, read_requirements(name, given)


def _check_conditions(conditions: Sequence[Condition], first: Sequence[str]) -> None:
    for one in conditions:
        if one.name not in CONDITIONS or (one.of is not None and one.of not in first):
            rule = f"with {OPTION} must be parity, 'compile>SECONDS' or '{SLOWER_THAN}:{first[0]}>"
            raise InvalidSpec("--fail-if", str(one), rule + "PERCENT'")


def _print(text: str) -> None:
    tell("\n".join(map(printable, text.split("\n"))))
