"""All commands with their texts, and what every command does at its start and end."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn, Protocol

from breakeven.runner.errors import RunnerError
from breakeven.runner.protocol.data_dir import DEFAULT_TEXT, default_data_folder
from breakeven.runner.specs.values import nearest
from breakeven.runner.texts import printable

BAD_INPUT = 2
COMMANDS = {
    "measure": {
        "run": "compare backends on your own training: put it before the command",
        "compare": "compare backends on a model and data that options name",
        "tune": "find the fastest way to train for a planned length",
        "investigate": "find why a run failed, learns something else, or is slower",
    },
    "read": {
        "list": "search, filter and sort experiments; list the states of runs",
        "show": "print the result of an experiment or of a suite run",
        "explain": "explain why each backend is faster or slower",
        "diff": "print what differs between experiments, or between two runs",
        "trend": "print a number of the same training over time",
        "export": "write a report in HTML, or a format of PyTorch's benchmarks",
    },
    "wait in the queue": {
        "queue": "add experiments, start, order, hold, pause and cancel them",
        "resume": "continue stopped runs, or time an undecided experiment further",
    },
    "maintain": {
        "data": "label, delete, restore, clean and import experiments",
        "team": "maintain the store that a team shares",
        "doctor": "find what is wrong with machine, installation and data folder",
        "token": "print the secret link, with which people act from elsewhere",
    },
}
"""The text of each command, by what people want."""
TEXTS = {name: text for group in COMMANDS.values() for name, text in group.items()}
STORED = ("list", "show", "explain", "diff", "trend", "export", "team")
"""Commands that `storage/` runs."""
IMPORT = ("data", "import")
IMPORT_TEXT = "read reports, archives of run folders, and results of PyTorch's benchmarks"
"""The one action of `data` that `storage/` runs."""
NEEDS_NO_DATABASE = "--runs"
"""With this option `list` reads the run folders alone."""
FROM_INPUT = "-"
"""Stands in place of a command: `storage/` imports its packages, then reads its arguments as a JSON
list from standard input."""
WORDS = "words"
"""The operands of `list` and `trend`, which may stand before and after options."""
HELP = "help"
"""`breakeven help show` is `breakeven show --help`."""
JUDGED = "--judged"
"""With this option `show` has the exit status of `run` and `compare`, which print by it."""
PLAN_INVESTIGATION = "plan-investigation"
"""A command of `storage/` for `investigate` alone, which needs the verdicts on a run."""


def reads_database(words: Sequence[str]) -> bool:
    """Whether `storage/` runs the command of these words."""
    stored = words[0] in STORED or tuple(words[:2]) == IMPORT
    return stored and NEEDS_NO_DATABASE not in words


def without_help(words: Sequence[str]) -> list[str]:
    """The words of a command, with `--help` in place of the word `help` before them."""
    return [*words[1:], "--help"] if words[0] == HELP else list(words)


class CommandParser(argparse.ArgumentParser):
    """Its errors name the command, what it does not know, and the nearest that it knows."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, unknown = super().parse_known_args(args, namespace)
        words = next((action for action in self._actions if action.dest == WORDS), None)
        if words is not None and not any(word.startswith("-") for word in unknown):
            try:  # argparse itself takes words only before or only after the options
                known.words = [*known.words, *self._get_values(words, unknown)]
            except argparse.ArgumentError as error:
                self.error(str(error))
        elif unknown:
            option = unknown[0].partition("=")[0]
            near = nearest(option, self._option_string_actions) if option.startswith("-") else ""
            self.error(f"{unknown[0]!r} is not known here{near}")
        return known, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        near = nearest(value, known)
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"there is no {str(action.metavar).lower()} {value!r}{near}")
        rule = f"{value!r} must be one of {', '.join(known)}{near}"
        raise argparse.ArgumentError(action, rule)

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith("?") else "."
        help_line = f"`{self.prog} --help` lists what it takes."
        self.exit(BAD_INPUT, f"{self.prog}: {message}{end}\n{help_line}\n")


class Add(Protocol):
    """Adds a command with `--data-folder`: its name, the function that runs it (without one,
    `storage/` or an action of the command does), its text, and what its usage names after the
    options."""

    def __call__(
        self,
        name: str,
        execute: Callable[..., int] | None = None,
        text: str = "",
        operands: str = "",
    ) -> argparse.ArgumentParser: ...


def adder(parsers: "argparse._SubParsersAction[Any]", parent: str = "breakeven") -> Add:
    """Adds commands to `parsers`, which belong to the command `parent`."""
    is_inner = " " in parent

    def add(
        name: str,
        execute: Callable[..., int] | None = None,
        text: str = "",
        operands: str = "",
    ) -> argparse.ArgumentParser:
        text = text or TEXTS[name]
        usage = " ".join(filter(None, [parent, name, "[options]", operands]))
        command: argparse.ArgumentParser = parsers.add_parser(
            name, help=text, description=text, usage=usage
        )
        if execute is not None:
            command.set_defaults(execute=execute)
        command.add_argument(
            "--data-folder",
            type=Path,
            # The default of an inner command would replace what was given before its name.
            default=argparse.SUPPRESS if is_inner else default_data_folder(),
            metavar="FOLDER",
            help=f"folder of all runs {DEFAULT_TEXT}",
        )
        return command

    return add


def actions_of(command: argparse.ArgumentParser, name: str, *, required: bool) -> Add:
    """Adds actions to the command of this name: `breakeven queue add`."""
    command.usage = f"breakeven {name} {'ACTION' if required else '[ACTION]'} [options]"
    parsers = command.add_subparsers(
        required=required, prog=f"breakeven {name}", metavar="ACTION", title="actions"
    )
    return adder(parsers, f"breakeven {name}")


def add_outputs(command: argparse.ArgumentParser) -> None:
    """Adds the options that write a result for programs, and for a pull request."""
    command.add_argument("--json", action="store_true", help="print JSON (docs/suites.md)")
    text = "write a summary for a pull request, also into the file of $GITHUB_STEP_SUMMARY"
    command.add_argument("--markdown", type=Path, metavar="FILE", help=text)


def tell(text: str) -> None:
    """Prints a line of a command's answer."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def for_all(names: Sequence[str], act: Callable[[str], str]) -> int:
    """Calls `act` for each name, such as an experiment's id, and prints its answer or error.
    Returns 2 if one call failed."""
    status = 0
    for name in names:
        try:
            tell(f"{name}: {act(name)}")
        except RunnerError as error:
            sys.stderr.write(f"{printable(name)}: {error}\n")
            status = BAD_INPUT
    return status


def ends_quietly(main: Callable[[], int]) -> int:
    """Exit status of a command. If its reader closes the pipe, as `| head` does, the command prints
    nothing and has the exit status of a program that SIGPIPE ends."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            return main()
        finally:  # also after --help, which ends otherwise
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at the end, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
