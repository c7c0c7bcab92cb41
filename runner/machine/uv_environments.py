"""Environments in the data folder, made from requirements with `uv`; and the environments that a
command names."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from breakeven.runner.errors import InvalidRunFolder, InvalidSpec, RunnerError
from breakeven.runner.experiments.queue import writing
from breakeven.runner.logs import log_action
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.arm_fields import ENVIRONMENT_NAME
from breakeven.runner.specs.values import nearest

OWN = "own"
"""Name of Breakeven's own Python among the environments."""
PYTHON = "bin/python"
REQUIREMENTS = "requirements.txt"
REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*(\[.*\])?\s*([=<>!~@;].*)?")
"""A package with or without a version, as in `torch==2.11.0`."""
UNFINISHED = ".making"


@dataclass(frozen=True)
class UvEnvironment:
    """An environment that uv made in the data folder."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def python(self) -> Path:
        return self.folder / PYTHON

    @property
    def requirements(self) -> str:
        """The requirements from which it was made."""
        return (self.folder / REQUIREMENTS).read_text()


def uv_environments(data_dir: DataDir) -> list[UvEnvironment]:
    """The environments of the data folder, by name."""
    folders = sorted(data_dir.environments.glob("*/"))
    return [UvEnvironment(folder) for folder in folders if (folder / REQUIREMENTS).is_file()]


def resolved(data_dir: DataDir, texts: Iterable[str]) -> list[str]:
    """The environments that a command names, as `NAME=/path/to/python`; makes those that are given
    by requirements. Raises `InvalidSpec` or `RunnerError`."""
    return [f"{name}={_python(data_dir, name, given)}" for name, given in _split(texts)]


def _split(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names, each with its Python or requirements; a name without them gets an empty text."""
    for text in texts:
        name, equals, given = text.partition("=")
        if equals and ENVIRONMENT_NAME.fullmatch(name):
            yield name, given
        else:
            yield from ((listed.strip(), "") for listed in text.split(","))


def _python(data_dir: DataDir, name: str, given: str) -> Path:
    if not ENVIRONMENT_NAME.fullmatch(name):
        rule = "must be NAME=PYTHON, NAME=REQUIREMENTS or the name of an environment"
        raise InvalidSpec("environments", name, rule)
    if not given:
        return _named(data_dir, name)
    path = Path(given).expanduser().absolute()
    if os.path.isfile(path / PYTHON):  # Path.is_file raises for a name longer than names may be.
        return path / PYTHON
    if os.path.isfile(path) and path.suffix != ".txt":
        return path
    return make(data_dir, name, read_requirements(name, given)).python


def read_requirements(name: str, given: str) -> str:
    """Lines of requirements, given as a file or as words; raises `InvalidSpec`."""
    path = Path(given).expanduser()
    if os.path.isfile(path) and path.suffix == ".txt":
        return path.read_text().rstrip("\n") + "\n"
    words = shlex.split(given)
    if not words or not all(REQUIREMENT.fullmatch(word) for word in words):
        rule = "is neither a Python, nor a file of requirements, nor requirements"
        raise InvalidSpec("environments", f"{name}={given}", rule)
    return "\n".join(words) + "\n"


def _named(data_dir: DataDir, name: str) -> Path:
    if name == OWN:
        return Path(sys.executable)
    known = {environment.name: environment.python for environment in uv_environments(data_dir)}
    if name not in known:
        rule = f"is no environment of {data_dir.environments}; make it with {name}=REQUIREMENTS"
        raise InvalidSpec("environments", name, rule + nearest(name, [OWN, *known]))
    return known[name]


def make(data_dir: DataDir, name: str, requirements: str) -> UvEnvironment:
    """The environment of this name; makes it with `uv`, whose progress goes to the terminal. Raises
    `RunnerError` without uv, if uv fails, and if the name is taken by other requirements."""
    there = UvEnvironment(data_dir.environments / name)
    if there.folder.is_dir():
        if there.requirements == requirements:
            return there
        raise RunnerError(
            f"the environment {name} is there already, made from other requirements "
            f"({', '.join(there.requirements.split())}); choose another name, or remove it: "
            f"`breakeven data clean --environments {name}`"
        )
    uv = find_uv()
    data_dir.make()
    data_dir.environments.mkdir(exist_ok=True)
    unfinished = data_dir.environments / f"{UNFINISHED}-{name}"
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        _run(uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(unfinished))
        (unfinished / REQUIREMENTS).write_text(requirements)
        _run(
            uv,
            "pip",
            "install",
            "--python",
            str(unfinished / PYTHON),
            "--requirements",
            str(unfinished / REQUIREMENTS),
        )
    except RunnerError:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    unfinished.rename(there.folder)
    log_action(data_dir.logs, "make environment", name)
    return there


def remove(data_dir: DataDir, environment: UvEnvironment) -> None:
    """Removes an environment; raises `RunnerError` while a run that has not ended needs it."""
    for run in data_dir.unrecorded_runs():
        with suppress(InvalidSpec, InvalidRunFolder, OSError):
            if str(environment.python) in run.read_spec().experiment.other_pythons:
                raise RunnerError(f"{run.run_id} has not ended and needs it")
    with writing(environment.folder):
        shutil.rmtree(environment.folder)
    log_action(data_dir.logs, "remove environment", environment.name)


def find_uv() -> str:
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        raise RunnerError("environments are made with uv: `pip install uv`, or name a Python")
    return uv


def _run(*command: str) -> None:
    if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode:
        raise RunnerError(f"uv could not make the environment: {shlex.join(command[1:])} failed")
