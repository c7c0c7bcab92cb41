"""The command `status`: how the runs of all experiments stand, and which folders are damaged."""

import argparse
import sys
from pathlib import Path

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import damages, listed
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.texts import printable

SHOWN = 10
"""Folders that cannot be read, of which there may be very many."""


def add_status_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--all", action="store_true", help=f"name all run folders that cannot be read, not {SHOWN}"
    )


def print_status(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Prints what `list` lists, run by run, and the folders that it leaves out."""
    for experiment in listed(data_dir):
        _print(f"{experiment.experiment_id}  {printable(experiment.spec.name)}")
        for label, run, damage in experiment.runs:
            _print(f"    {label:<20} {_told(run, damage)}")
    damaged = list(damages(data_dir))
    if damaged:
        _print(f"{len(damaged):,} run folders cannot be read:")
    for run_id, why in damaged[: None if options.all else SHOWN]:
        _print(f"    {printable(run_id)}: {_within(data_dir.runs / run_id, why)}")
    if len(damaged) > SHOWN and not options.all:
        _print(f"    and {len(damaged) - SHOWN:,} more, which `status --all` names")
    return 0


def _told(run: RunDir | None, damage: str | None) -> str:
    """How a run stands, in a line."""
    if run is None:
        return "missing: there is no folder of this run"
    if damage is not None:
        return f"unreadable: {_within(run.path, damage)}"
    stands = run.standing
    why = f": {printable(stands.reason)}" if stands.reason else ""
    again = f" (attempt {run.attempt})" if run.attempt > 1 else ""
    return f"{stands.state}{again}{why}"


def _within(folder: Path, why: str) -> str:
    """What is wrong with a folder, without its path."""
    return printable(why).removeprefix(printable(folder)).lstrip("/ ")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
