"""The command line and its commands.

Exit status of `compare`: 0 every run finished and parity holds for every backend; 1 a run did not
finish; 2 bad input; 3 a backend or an environment breaks parity; 4 parity could not be shown. With
`--fail-if` (docs/suites.md): 0 every run finished and no condition is met; 1 a run did not finish;
2 bad input; 5 a condition is met."""

import argparse
import sys
from collections.abc import Sequence

from breakeven.runner.commands.data import add_data_command
from breakeven.runner.commands.doctor import add_doctor_options, examine_machine
from breakeven.runner.commands.entry import BAD_INPUT, COMMANDS, STORED, CommandParser, adder
from breakeven.runner.commands.list_runs import add_list_of_runs
from breakeven.runner.commands.queue import add_queue_command
from breakeven.runner.commands.searches import add_search_commands
from breakeven.runner.commands.start import add_start_commands
from breakeven.runner.commands.token import add_token_options, print_link
from breakeven.runner.errors import NotWritable, RunnerError
from breakeven.runner.protocol.data_dir import DataDir


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    try:
        status: int = options.execute(DataDir(options.data_folder), options)
        return status
    except RunnerError as error:
        sys.stderr.write(f"{error}\n")
        return BAD_INPUT
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stderr.write(f"{NotWritable(options.data_folder, error)}\n")
        return BAD_INPUT


def parser() -> argparse.ArgumentParser:
    """All commands with their options; `execute` of the parsed options runs the command."""
    all_commands = CommandParser(
        prog="breakeven",
        usage="breakeven [COMMAND ...]",
        description=_overview(),
        epilog="`breakeven COMMAND --help` describes a command, --version prints the version.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = all_commands.add_subparsers(
        required=True, prog="breakeven", metavar="COMMAND", help=argparse.SUPPRESS
    )
    add = adder(commands)
    add_start_commands(add)
    add_search_commands(add)
    add_list_of_runs(add)
    for name in STORED:
        if name not in commands.choices:
            add(name)
    add_queue_command(add)
    add_data_command(add)
    add_doctor_options(add("doctor", examine_machine))
    add_token_options(add("token", print_link))
    return all_commands


def _overview() -> str:
    """All commands by what people want, a line each."""
    lines = ["Without a command, breakeven serves the dashboard."]
    for purpose, texts in COMMANDS.items():
        lines += ["", f"{purpose}:", *(f"  {name:<12} {text}" for name, text in texts.items())]
    return "\n".join(lines)
