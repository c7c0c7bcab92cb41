"""`breakeven list --runs`: the state of every run, without the database."""

import argparse
from pathlib import Path

from breakeven.runner.commands.entry import NEEDS_NO_DATABASE, Add, tell
from breakeven.runner.experiments.queue import damages, listed
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.texts import printable

SHOWN = 10
"""Unreadable folders that are printed; there may be very many."""


def add_list_of_runs(add: Add) -> None:
    """Adds `list` as it is without the database."""
    command = add("list", print_states)
    text = "list the states of all runs; reads no database"
    command.add_argument(NEEDS_NO_DATABASE, action="store_true", required=True, help=text)
    text = f"name all unreadable run folders, not only {SHOWN}"
    command.add_argument("--all", action="store_true", help=text)


def print_states(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Prints the state of every run, and the unreadable run folders."""
    for experiment in listed(data_dir):
        tell(f"{experiment.experiment_id}  {printable(experiment.spec.name)}")
        for label, run, damage in experiment.runs:
            tell(f"    {label:<20} {_run_line(run, damage)}")
    damaged = list(damages(data_dir))
    if damaged:
        tell(f"{len(damaged):,} run folders cannot be read:")
    for run_id, why in damaged[: None if options.all else SHOWN]:
        tell(f"    {printable(run_id)}: {_without_path(data_dir.runs / run_id, why)}")
    if len(damaged) > SHOWN and not options.all:
        tell(f"    and {len(damaged) - SHOWN:,} more; `list --runs --all` names all")
    return 0


def _run_line(run: RunDir | None, damage: str | None) -> str:
    """The state of a run in one line."""
    if run is None:
        return "missing: there is no folder of this run"
    if damage is not None:
        return f"unreadable: {_without_path(run.path, damage)}"
    status = run.status
    reason = f": {printable(status.reason)}" if status.reason else ""
    attempt = f" (attempt {run.attempt})" if run.attempt > 1 else ""
    return f"{status.state}{attempt}{reason}"


def _without_path(folder: Path, why: str) -> str:
    """The reason why a folder is unreadable, without its path."""
    return printable(why).removeprefix(printable(folder)).lstrip("/ ")
