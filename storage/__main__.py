"""What the data folder holds, on the terminal and as files:

    python -m storage compare EXPERIMENT
    python -m storage explain EXPERIMENT
    python -m storage list [WORD...]
    python -m storage trend [WORD...] [--of NUMBER] [--fail-if CONDITION]
    python -m storage difference EXPERIMENT EXPERIMENT...
    python -m storage ladder EXPERIMENT
    python -m storage replay EXPERIMENT
    python -m storage compile-diff RUN RUN
    python -m storage suite SUITE_RUN [--against EARLIER]
    python -m storage report EXPERIMENT... --output report.html
    python -m storage export EXPERIMENT --format harness-performance-csv --output FILE
    python -m storage import FILE...
    python -m storage team status|ingest|upkeep|rebuild|reset

`explain` says why each backend is faster or slower than the baseline, by what its kernels took.
`report` writes experiments, or a suite run, whole into one file, HTML or PDF, which `import` takes
in again, as it does archives of run folders; `export` and `import` also speak the formats of
PyTorch's own benchmarks (docs/exchange.md). Their exit status is 0, or 2 for bad input.

Exit status of `compare`: 0 every run finished and parity holds for every backend; 1 a run did not
finish; 2 bad input; 3 parity is broken; 4 parity proves nothing (the baseline learned nothing, or
there is no control, or no backend). A broken parity outranks a run that did not finish. With
`--fail-if` (docs/ci-gate.md): 0 every run finished and no condition is met; 1 a run did not finish;
2 bad input; 5 a condition is met, which outranks a run that did not finish. In the scenario
`accuracy`, with or without conditions: 0 every check passes; 1 one was not made; 2 bad input; 3 one
does not pass. In the scenario `cache` and the part `inference` of `speed`, which prove no parity,
there is no 4.

Exit status of `trend`: 0; 2 bad input; with `--fail-if` (docs/ci-gate.md) 1 nothing could be
judged; 5 a condition is met.

Exit status of `replay`: 0 no number came out otherwise than expected; 1 a run did not finish, or
nothing could be judged; 2 bad input; 6 a number did, which outranks a run that did not finish.

Exit status of `suite`: 0 every cell passed; 1 one is not over, was stopped, or was measured too
badly to be compared with the earlier suite run; 2 bad input; 3 one failed; 5 one is worse than in
the earlier suite run, which outranks the others.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from runner.commands.conditions import add_fail_if
from runner.commands.filters import add_list_options
from runner.commands.terminal import ends_quietly
from runner.folders.data_dir import DEFAULT_TEXT, DataDir, default_data_folder
from storage import commands
from storage.checkup import print_checkup
from storage.commands import BAD_INPUT
from storage.errors import StoreError
from storage.exchange import FORMATS
from storage.team.actions import add_team_options
from storage.terminal import trend as trend_report


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if not options.data_folder.is_dir():
        print(f"--data-folder {options.data_folder}: there is no such folder", file=sys.stderr)  # noqa: T201
        return BAD_INPUT
    try:
        status: int = options.execute(DataDir(options.data_folder), options)
        return status
    except BrokenPipeError:
        raise
    except (StoreError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return BAD_INPUT


def parser() -> argparse.ArgumentParser:
    """All commands with their options; `execute` of what it parses runs the command."""
    whole = argparse.ArgumentParser(
        prog="python -m storage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = whole.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, execute: Callable[..., int], text: str) -> argparse.ArgumentParser:
        command = kinds.add_parser(name, help=text, description=text)
        command.set_defaults(execute=execute)
        where = f"where runs are kept {DEFAULT_TEXT}"
        command.add_argument("--data-folder", type=Path, default=default_data_folder(), help=where)
        return command

    comparing = add("compare", commands.print_comparison, "print the comparison of an experiment")
    exporting = add(
        "export", commands.export, "write an experiment in a format of PyTorch's benchmarks"
    )
    text = "name the stage of the compiler that fails, computes wrongly or loses time"
    climbing = add("ladder", commands.print_ladder, text)
    explaining = add(
        "explain", commands.print_explanation, "say why each backend is faster or slower"
    )
    for command in (comparing, explaining, exporting, climbing):
        orders = "id of the experiment" + (", or of a suite run" if command is exporting else "")
        command.add_argument("experiment", help=orders)
    add_fail_if(comparing)
    exporting.add_argument("--format", choices=list(FORMATS), required=True)
    exporting.add_argument("--output", type=Path, required=True, metavar="FILE")
    text = "tell what the compiler did otherwise in one run than in another"
    differing = add("compile-diff", commands.print_compile_difference, text)
    for name in ("run", "other"):
        differing.add_argument(name, metavar="RUN", help="EXPERIMENT.LABEL, as its folder is named")
    listing = add("list", commands.print_list, "list experiments and what they came to")
    telling = add(
        "trend", commands.print_trend, "tell how the same training fared over time, and its steps"
    )
    for command in (listing, telling):
        add_list_options(command)
    trend_report.add_trend_options(telling)
    text = "tell of every device that experiments ran on, and which became noisy or slow"
    add("devices", commands.print_devices, text).add_argument(
        "--json", action="store_true", help="print JSON"
    )
    text = "hold experiments against each other: the first is what others are compared with"
    add("difference", commands.print_difference, text).add_argument(
        "experiments", nargs="+", metavar="EXPERIMENT", help="id, as `list` has it"
    )
    text = "say whether what was measured again came out as it should"
    add("replay", commands.print_replay, text).add_argument(
        "experiment", help="what `python -m runner replay RUN` ran"
    )
    summing = add(
        "suite", commands.print_suite, "print the summary of a suite run, and what changed"
    )
    summing.add_argument("suite_run", help="id of the suite run, as `python -m runner suite` says")
    summing.add_argument("--against", metavar="EARLIER", help="id of an earlier suite run")
    add("checkup", print_checkup, "what `python -m runner doctor` asks, as a line of JSON")
    telling = add(
        "report", commands.write_report, "write experiments whole into one file, HTML or PDF"
    )
    telling.add_argument("experiments", nargs="+", metavar="EXPERIMENT",
                         help="ids of experiments or of suite runs")  # fmt: skip
    telling.add_argument("-o", "--output", type=Path, required=True, metavar="FILE",
                         help="must end in .html or .pdf")  # fmt: skip
    text = "take in reports, archives of run folders, and results of PyTorch's benchmarks"
    importing = add("import", commands.import_files, text)
    text = "look after the store that BREAKEVEN_STORE names (docs/team-store.md)"
    add_team_options(add("team", commands.work_on_team_store, text))
    importing.add_argument("files", type=Path, nargs="+", metavar="FILE")
    return whole


if __name__ == "__main__":
    sys.exit(ends_quietly(main))
