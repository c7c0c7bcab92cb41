"""The commands of `breakeven` that read the database; `storage/commands.py` executes them.

docs/suites.md has the exit statuses of `show`, `trend` and suite runs, docs/investigate.md those of
investigations.
Of the other commands: 0, or 2 for bad input.
"""

import argparse
import json
import sys
from contextlib import suppress
from pathlib import Path

from breakeven.runner.arguments.conditions import add_fail_if
from breakeven.runner.arguments.filters import add_list_options
from breakeven.runner.arguments.lengths import add_plan
from breakeven.runner.commands.entry import (
    FROM_INPUT,
    IMPORT,
    IMPORT_TEXT,
    JUDGED,
    NEEDS_NO_DATABASE,
    PLAN_INVESTIGATION,
    Add,
    CommandParser,
    actions_of,
    add_outputs,
    adder,
    ends_quietly,
)
from breakeven.runner.errors import RunnerError
from breakeven.runner.protocol.data_dir import DataDir, default_data_folder
from breakeven.storage import commands
from breakeven.storage.commands import BAD_INPUT
from breakeven.storage.errors import StoreError
from breakeven.storage.exchange.benchmark_formats import FORMATS
from breakeven.storage.terminal import trends as trend_report

TEAM_ACTIONS = {
    "status": "what the store holds, and who feeds it",
    "ingest": "take in the run folders of this machine",
    "upkeep": "write rows to files, merge small files, drop earlier states; once a day",
    "rebuild": "delete the rows of this data folder, and take it in again",
    "reset": "forget all; machines take in their run folders again (needs --yes)",
}


def main(arguments: list[str] | None = None) -> int:
    if arguments is None and sys.argv[1:] == [FROM_INPUT]:
        given = sys.stdin.read()
        if not given:  # Its starter ended without a command for it.
            return 0
        arguments = json.loads(given)
    options = parser().parse_args(arguments)
    if options.data_folder == default_data_folder():
        with suppress(OSError):  # The recorded examples need no folder.
            DataDir(options.data_folder).make()
    elif not options.data_folder.is_dir():
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
    all_commands = CommandParser(prog="breakeven")
    add = adder(all_commands.add_subparsers(required=True, metavar="COMMAND"))
    _add_results(add)
    _add_lists(add)
    _add_export(add)
    action = actions_of(add("data"), "data", required=True)
    bring = action(IMPORT[1], commands.import_files, IMPORT_TEXT, "FILE...")
    bring.add_argument("files", type=Path, nargs="+", metavar="FILE", help="file to read")
    _add_team(add)
    _add_inner_commands(add)
    return all_commands


def _add_results(add: Add) -> None:
    """Commands on one experiment: `show` and `explain`."""
    show = add("show", commands.show, operands="[ID]")
    text = "of an experiment or of a suite run, or the beginning or end of one, such as 10f4 "
    text += "(default: the last experiment)"
    show.add_argument("experiment", metavar="ID", nargs="?", help=text)
    show.add_argument(JUDGED, action="store_true", help=argparse.SUPPRESS)
    show.add_argument("--against", metavar="EARLIER", help="id of an earlier suite run")
    text = "of an investigation, or with a slower backend: print the text of an issue for PyTorch"
    show.add_argument("--issue", action="store_true", help=text)
    text = "of a script: print only the change that `git apply` makes, as the plan recommends"
    show.add_argument("--diff", action="store_true", help=text)
    text = "print all numbers, reasons, warnings and notes"
    show.add_argument("--wide", action="store_true", help=text)
    add_plan(show)
    add_fail_if(show)
    explain = add("explain", commands.print_explanation, operands="[ID]")
    text = "of an experiment, or the beginning or end of one (default: the last experiment)"
    explain.add_argument("experiment", metavar="ID", nargs="?", help=text)
    text = "of a `compare --ladder`: name the stage that fails, computes wrongly or loses time"
    explain.add_argument("--ladder", action="store_true", help=text)
    add_outputs(show)
    explain.add_argument("--json", action="store_true", help="print JSON (docs/suites.md)")


def _add_lists(add: Add) -> None:
    """Commands on several experiments: `list`, `trend` and `diff`."""
    listing = add("list", commands.print_list, operands="[WORD...]")
    text = "print the states of the runs of all experiments; takes no filter"
    listing.add_argument(NEEDS_NO_DATABASE, action="store_true", help=text)
    text = "show all columns: state, model, device, torch, intervals, parity, tags and others"
    listing.add_argument("--wide", action="store_true", help=text)
    trend = add("trend", commands.print_trend, operands="[WORD...]")
    for command in (listing, trend):
        add_list_options(command)
    trend_report.add_trend_options(trend)
    diff = add("diff", commands.print_difference, operands="EXPERIMENT... | RUN RUN")
    text = "ids of experiments, of which the first is compared with the others; or two runs, "
    text += "EXPERIMENT.LABEL, as their folders are named"
    diff.add_argument("sides", nargs="+", metavar="EXPERIMENT|RUN", help=text)


def _add_export(add: Add) -> None:
    export = add("export", commands.export, operands="-o FILE EXPERIMENT...")
    text = "ids of experiments or of suite runs; one for a format of PyTorch"
    export.add_argument("experiments", nargs="+", metavar="EXPERIMENT", help=text)
    export.add_argument(
        "--format",
        choices=[commands.HTML, *FORMATS],
        default=commands.HTML,
        help="a whole report (the default), or a format of PyTorch's benchmarks",
    )
    text = "file to write; a report must end in .html"
    export.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help=text)


def _add_team(add: Add) -> None:
    action = actions_of(add("team"), "team", required=True)
    for name, text in TEAM_ACTIONS.items():
        command = action(name, commands.work_on_team_store, text)
        command.set_defaults(action=name)
        if name == "ingest":
            command.add_argument("--watch", action="store_true", help="go on until it is stopped")
        elif name == "upkeep":
            text = "how long earlier states stay (default: 7, longer than a backup takes)"
            command.add_argument("--days", type=float, default=7.0, metavar="N", help=text)
        elif name == "reset":
            command.add_argument("--yes", action="store_true", help="really forget all")


def _add_inner_commands(add: Add) -> None:
    """Commands for the runner alone, which may not open the database."""
    text = "write the experiment of `breakeven investigate`"
    planning = add(PLAN_INVESTIGATION, commands.plan_investigation, text)
    planning.add_argument("run")
    planning.add_argument("--budget", type=float, required=True)
    planning.add_argument("--output", type=Path, required=True)


if __name__ == "__main__":
    sys.exit(ends_quietly(main))
