"""`breakeven script train.py [options] -- ARGUMENTS`: a script under each backend."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from breakeven.runner.commands.options import add_field_options, read_fields, spec_options
from breakeven.runner.errors import RunnerError
from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.workload import SCRIPT_DATA, SCRIPT_PREFIX, SCRIPT_TASK

ASKED = (
    "name", "backends", "settings", "controls", "devices", "cpus", "exclusive", "priority",
    "cpu_threads", "schedule", "compile", "block_steps", "profile_steps", "time_limit_seconds",
    "keep_code", "keep_trace", "training.seed",
    "script.folder", "script.steps", "script.patience_seconds",
)  # fmt: skip
"""Fields that a script leaves open: it settles the others itself."""
FLAGS = {"script.steps": "--steps"}


def add_script_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "breakeven script FILE [options] [-- ARGUMENT ...]"
    parser.add_argument("script", metavar="FILE", help="the script, as `python FILE` would run it")
    parser.epilog = (
        "What stands behind -- the script is called with; a path from the current folder is made "
        "whole."
    )
    others = {option.path for option in spec_options()} - set(ASKED)
    add_field_options(parser, without=others, flags=FLAGS)


def split_at_dashes(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """What stands before `--` and behind it: argparse would mix both up."""
    words = list(arguments)
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def read_script(given: argparse.Namespace, machine: Capabilities) -> ExperimentSpec:
    """The experiment that parsed options describe; raises `RunnerError` if they cannot be.

    Without a device it is the machine's first GPU, which scripts take by themselves, or the CPU.
    """
    file = Path(given.script).expanduser().resolve()
    if not file.is_file():
        raise RunnerError(f"there is no file {file}")
    if given.__dict__.get("script.folder") is not None:
        setattr(given, "script.folder", str(Path(getattr(given, "script.folder")).resolve()))
    folder = Path(getattr(given, "script.folder", None) or file.parent)
    arguments = [_whole(argument, folder) for argument in given.script_arguments]
    values = {
        "name": file.name,
        "task": SCRIPT_TASK,
        "model": {"source": f"{SCRIPT_PREFIX}{file}"},
        "data": {"source": SCRIPT_DATA},
        "script": {"arguments": tuple(arguments)},
        "devices": (machine.devices[min(1, len(machine.devices) - 1)].id,),
    }
    read_fields(given, values)
    return ExperimentSpec.from_dict(values)


def write_script(spec: ExperimentSpec) -> list[str]:
    """The arguments of the command that makes the same experiment; defaults are left out."""
    assert spec.model.script is not None
    options = [option for option in spec_options() if option.path in ASKED]
    written = [
        argument.replace(option.flag, FLAGS.get(option.path, option.flag), 1)
        for option in options
        if (value := option.value_in(spec)) != option.default or option.path == "devices"
        for argument in option.written(value)
    ]
    return [spec.model.script, *written, "--", *spec.script.arguments]


def _whole(argument: str, folder: Path) -> str:
    """A path from the working folder as one from anywhere: runs have working folders of their own.
    What the script's folder has by the same name is meant to be there."""
    name, equals, value = argument.rpartition("=")
    path = Path(value)
    is_ours = value and not path.is_absolute() and path.exists() and not (folder / path).exists()
    return f"{name}{equals}{path.resolve()}" if is_ours else argument
