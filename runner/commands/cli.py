"""The command line and its commands.

Exit status of `compare`: 0 every run finished and parity holds for every backend; 1 a run did not
finish; 2 bad input; 3 a backend or an environment breaks parity; 4 parity could not be shown. With
`--fail-if` (docs/suites.md): 0 every run finished and no condition is met; 1 a run did not finish;
2 bad input; 5 a condition is met."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from breakeven.runner.commands.doctor import add_doctor_options, examine_machine
from breakeven.runner.commands.entry import BAD_INPUT, STORED
from breakeven.runner.commands.library import add_library_commands
from breakeven.runner.commands.link import add_token_options, print_link
from breakeven.runner.commands.searches import add_search_commands
from breakeven.runner.commands.start import add_start_commands
from breakeven.runner.errors import NotWritable, RunnerError
from breakeven.runner.protocol.data_dir import DEFAULT_TEXT, DataDir, default_data_folder


def main(arguments: Sequence[str] | None = None) -> int:
    ours, theirs = split_at_dashes(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(ours)
    options.script_arguments = theirs
    try:
        status: int = options.execute(DataDir(options.data_folder), options)
        return status
    except RunnerError as error:
        sys.stderr.write(f"{error}\n")
        return BAD_INPUT
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stderr.write(f"{NotWritable(Path(options.data_folder), error)}\n")
        return BAD_INPUT


def split_at_dashes(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before and after `--`, which argparse would mix up."""
    words = list(arguments)
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def parser() -> argparse.ArgumentParser:
    """All commands with their options; `execute` of the parsed options runs the command."""
    whole = argparse.ArgumentParser(
        prog="breakeven", description="Without a command, breakeven serves the dashboard."
    )
    commands = whole.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, execute: Callable[..., int], text: str) -> argparse.ArgumentParser:
        usage = f"breakeven {name} [options]"
        command = commands.add_parser(name, help=text, description=text, usage=usage)
        command.set_defaults(execute=execute)
        where = f"folder of all runs {DEFAULT_TEXT}"
        command.add_argument("--data-folder", default=default_data_folder(), help=where)
        return command

    add_start_commands(add)
    add_search_commands(add)
    add_library_commands(add)
    for name, text in STORED.items():
        if name not in commands.choices:
            commands.add_parser(name, help=text)
    text = "find what is wrong with machine, installation and data folder, and name remedies"
    add_doctor_options(add("doctor", examine_machine, text))
    text = "print the secret link, with which people act on the dashboard from elsewhere"
    add_token_options(add("token", print_link, text))
    return whole
