"""`python -m runner pack`: journals of experiments that are over take a sixth of the room."""

import argparse
import os
import sys
import time
from contextlib import suppress

from runner.errors import InvalidRunFolder, RunnerError, UnknownExperiment
from runner.folders.data_dir import DataDir, run_names
from runner.folders.queue import folders_of
from runner.folders.run_dir import RunDir
from runner.texts import printable

BAD_INPUT = 2
DAY_SECONDS = 86_400.0


def add_pack_options(command: argparse.ArgumentParser) -> None:
    command.usage = f"{command.usage} [EXPERIMENT...]"
    command.add_argument("experiments", nargs="*", metavar="EXPERIMENT",
                         help="its id, as `list` has it; all, if none is named")  # fmt: skip
    command.add_argument("--older-than", type=_days, default=0.0, metavar="DAYS",
                         help="only runs that ended so many days ago")  # fmt: skip
    command.add_argument("--undo", action="store_true", help="make them plain files again")


def pack_journals(data_dir: DataDir, options: argparse.Namespace) -> int:
    """0, or 2 if an experiment is not there, not over, or a journal could not be read back."""
    with suppress(OSError):
        os.nice(10)  # Somebody's training may be measured meanwhile.
    runs = _named(data_dir, options.experiments)
    status = count = freed = 0
    for run in runs:
        try:
            before = _bytes(run)
            if options.undo:
                run.unpack_journal()
            elif _is_old(run, options.older_than):
                run.pack_journal()
            change = before - _bytes(run)
        except InvalidRunFolder as error:
            sys.stderr.write(f"{error}\n")
            status = BAD_INPUT
            continue
        freed += change
        count += change != 0
    done = "unpacked" if options.undo else "packed"
    took = f"{abs(freed) / 1e6:,.1f} MB {'more' if freed < 0 else 'less'}"
    sys.stdout.write(f"{count} journals {done}: {took}\n")
    return status


def _named(data_dir: DataDir, ids: list[str]) -> list[RunDir]:
    """Their runs; without ids all that are over."""
    if not ids:
        runs = map(data_dir.run_dir, run_names(data_dir.runs))
        return [run for run in runs if run.is_recorded]
    found: list[RunDir] = []
    for experiment_id in ids:
        mine = folders_of(data_dir, experiment_id)
        if not mine:
            raise UnknownExperiment(
                f"no experiment {printable(repr(experiment_id))} in {data_dir.runs}"
            )
        found += mine
    return found


def _is_old(run: RunDir, days: float) -> bool:
    """Whether it ended so long ago; one that did not is for `pack_journal` to refuse."""
    if not days or not run.is_recorded:
        return True
    try:
        ended = run.read_exit()
    except RunnerError:
        return False
    return ended is not None and time.time() - ended.time > days * DAY_SECONDS


def _bytes(run: RunDir) -> int:
    total = 0
    for file in (run.events_file, run.packed_file):
        with suppress(OSError):
            total += file.lstat().st_size
    return total


def _days(text: str) -> float:
    try:
        days = float(text.strip().removesuffix("d"))
    except ValueError:
        days = -1.0
    if not 0 <= days < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of days, as 30")
    return days
