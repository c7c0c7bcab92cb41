"""The command `cancel`: stops experiments, by their ids or by a filter as of `list`."""

import argparse
import json
import subprocess
import sys
from importlib.util import find_spec

from breakeven.runner.commands.filters import (
    FACETS,
    Filter,
    add_facets,
    filter_arguments,
    read_facets,
)
from breakeven.runner.commands.library import each
from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import cancel, find_experiment
from breakeven.runner.folders.states import ACTIVE_EXPERIMENTS
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.texts import printable


def add_cancel_options(parser: argparse.ArgumentParser) -> None:
    """Adds which experiments."""
    text = "its id, as `list` has it"
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=text)
    text = "all that go on and have these words, as `list WORDS` finds them"
    parser.add_argument("--text", default="", metavar="WORDS", help=text)
    add_facets(parser)
    parser.usage = f"{parser.usage} [EXPERIMENT...]"


def cancel_many(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Stops those with these ids, and those that go on and that the filter finds, which `list` with
    the same options lists before. 2 if one of them was refused; raises `RunnerError`."""
    asked = Filter(text=options.text, facets=read_facets(options))
    if not options.experiments and asked == Filter():
        chosen = ", ".join(f"--{name}" for name in ("text", *FACETS))
        raise RunnerError(f"cancel names no experiment: give its id, or choose by {chosen}")
    found = [] if asked == Filter() else _found(data_dir, asked)

    def one(experiment_id: str) -> str:
        experiment = find_experiment(data_dir, experiment_id)
        cancel(experiment)
        return f"is asked to stop ({printable(experiment.spec.name)})"

    names = [*dict.fromkeys([*options.experiments, *found])]
    if not names:
        sys.stdout.write("no experiment that goes on is like that\n")
    return each(names, one)


def _found(data_dir: DataDir, asked: Filter) -> list[str]:
    """Ids of the experiments of this data folder that go on and that `list` would list."""
    if find_spec("duckdb") is None:
        raise RunnerError("a filter takes duckdb, which is not installed here: give ids")
    command = [sys.executable, "-m", "breakeven.storage", "list", "--json",
               f"--data-folder={data_dir.path}", *filter_arguments(asked)]  # fmt: skip
    done = subprocess.run(command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RunnerError("nothing was stopped, because the experiments could not be listed")
    return [one["experiment_id"] for one in json.loads(done.stdout)
            if one["state"] in ACTIVE_EXPERIMENTS and one["origin"] == "local"]  # fmt: skip
