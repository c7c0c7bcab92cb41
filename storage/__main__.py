"""The commands of `breakeven` that read the database; `storage/commands.py` executes them.

Exit status of `show`: 0 every run finished and parity holds for every backend; 1 a run did not
finish; 2 bad input; 3 parity is broken, which outranks 1; 4 parity proves nothing. docs/suites.md
has those of `--fail-if`, `trend` and suite runs, docs/investigate.md those of investigations.
Of the other commands: 0, or 2 for bad input.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from breakeven.runner.arguments.conditions import add_fail_if
from breakeven.runner.arguments.filters import add_list_options
from breakeven.runner.arguments.lengths import add_plan
from breakeven.runner.commands.entry import (
    FROM_INPUT,
    NEEDS_NO_DATABASE,
    PLAN_INVESTIGATION,
    STORED,
    ends_quietly,
)
from breakeven.runner.errors import RunnerError
from breakeven.runner.protocol.data_dir import DEFAULT_TEXT, DataDir, default_data_folder
from breakeven.storage import commands
from breakeven.storage.commands import BAD_INPUT
from breakeven.storage.errors import StoreError
from breakeven.storage.exchange.formats import FORMATS
from breakeven.storage.terminal import trend as trend_report

TEAM_ACTIONS = {
    "status": "what the store holds, and who feeds it",
    "ingest": "take in the run folders that are here; with --watch until it is stopped",
    "upkeep": "turn rows into files, many files into one, drop earlier states; daily",
    "rebuild": "delete the rows of this data folder, and take it in again",
    "reset": "forget all; machines take their folders in again (needs --yes)",
}


def main(arguments: list[str] | None = None) -> int:
    if arguments is None and sys.argv[1:] == [FROM_INPUT]:
        given = sys.stdin.read()
        if not given:  # Its starter ended without a command for it.
            return 0
        arguments = json.loads(given)
    options = parser().parse_args(arguments)
    if not options.data_folder.is_dir():
        print(f"--data-folder {options.data_folder}: there is no such folder", file=sys.stderr)  # noqa: T201
        return BAD_INPUT
    try:
        status: int = options.execute(DataDir(options.data_folder), options)
        return status
    except BrokenPipeError:
        raise
    except (RunnerError, StoreError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return BAD_INPUT


def parser() -> argparse.ArgumentParser:
    """All commands with their options; `execute` of what it parses runs the command."""
    command_line = argparse.ArgumentParser(prog="breakeven")
    kinds = command_line.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, execute: Callable[..., int], text: str = "") -> argparse.ArgumentParser:
        text = text or STORED[name]
        command = kinds.add_parser(name, help=text, description=text)
        command.set_defaults(execute=execute)
        where = f"where runs are kept {DEFAULT_TEXT}"
        command.add_argument("--data-folder", type=Path, default=default_data_folder(), help=where)
        return command

    showing = add("show", commands.show)
    showing.add_argument("experiment", metavar="ID", help="of an experiment or of a suite run")
    showing.add_argument("--against", metavar="EARLIER", help="id of an earlier suite run")
    text = "of an investigation, or with a slower backend: print the text of an issue for PyTorch"
    showing.add_argument("--issue", action="store_true", help=text)
    text = "of a script: print only the change that `git apply` makes, as the plan recommends"
    showing.add_argument("--diff", action="store_true", help=text)
    add_plan(showing)
    explaining = add("explain", commands.print_explanation)
    explaining.add_argument("experiment", metavar="EXPERIMENT", help="its id, as `list` has it")
    text = "of a `compare --ladder`: name the stage that fails, computes wrongly or loses time"
    explaining.add_argument("--ladder", action="store_true", help=text)
    for command in (showing, explaining):
        command.add_argument("--json", action="store_true", help="print JSON (docs/suites.md)")
    add_fail_if(showing)
    exporting = add("export", commands.export)
    text = "ids of experiments or of suite runs; for a format of PyTorch one"
    exporting.add_argument("experiments", nargs="+", metavar="EXPERIMENT", help=text)
    exporting.add_argument(
        "--format",
        choices=[commands.HTML, *FORMATS],
        default=commands.HTML,
        help="a whole report (the default), or a format of PyTorch's benchmarks",
    )
    exporting.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="a report must end in .html",
    )
    listing = add("list", commands.print_list)
    listing.add_argument(
        NEEDS_NO_DATABASE,
        action="store_true",
        help="how the runs of all experiments stand; takes no filter",
    )
    telling = add("trend", commands.print_trend)
    for command in (listing, telling):
        add_list_options(command)
    trend_report.add_trend_options(telling)
    text = "ids of experiments; or two runs, EXPERIMENT.LABEL, as their folders are named"
    add("diff", commands.print_difference).add_argument(
        "sides", nargs="+", metavar="EXPERIMENT|RUN", help=text
    )
    importing = add("import", commands.import_files)
    importing.add_argument("files", type=Path, nargs="+", metavar="FILE")
    _add_inner_commands(add)
    team = add("team", commands.work_on_team_store)
    actions = "; ".join(f"{name}: {text}" for name, text in TEAM_ACTIONS.items())
    team.add_argument("action", choices=list(TEAM_ACTIONS), help=actions)
    team.add_argument("--watch", action="store_true", help="of ingest: go on")
    days = "of upkeep: how long earlier states stay (default: 7, longer than a backup takes)"
    team.add_argument("--days", type=float, default=7.0, help=days)
    team.add_argument("--yes", action="store_true", help="of reset: really")
    return command_line


def _add_inner_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Commands for the runner alone, which may not open the database."""
    text = "write the experiment that `breakeven investigate` queues"
    planning = add(PLAN_INVESTIGATION, commands.plan_investigation, text)
    planning.add_argument("run")
    planning.add_argument("--budget", type=float, required=True)
    planning.add_argument("--output", type=Path, required=True)


if __name__ == "__main__":
    sys.exit(ends_quietly(main))
