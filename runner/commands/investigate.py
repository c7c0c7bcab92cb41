"""`investigate`: finds the cause of a run that failed, learned something else, or is slow."""

import argparse
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from breakeven.runner.commands.entry import PLAN_INVESTIGATION
from breakeven.runner.commands.options import checked
from breakeven.runner.commands.tune import read_budget
from breakeven.runner.commands.waiting import Storage, run_through
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.investigations import BUDGET_SECONDS
from breakeven.runner.texts import duration

Add = Callable[[str, Callable[..., int], str], argparse.ArgumentParser]


def add_investigate_command(add: Add) -> None:
    """Adds the command."""
    command = add("investigate", _investigate, "find the cause of a run that failed, learned "
                  "something else than the baseline, or is slower")  # fmt: skip
    text = "the run, EXPERIMENT.LABEL, as its folder is named"
    command.add_argument("run", metavar="RUN", help=text)
    text = "time for the search, such as 90s, 30m or 2h; for a run that is only slow, time for "
    text += f"each stage of the compiler (default: {duration(BUDGET_SECONDS)})"
    command.add_argument("--budget", type=checked(read_budget), default=BUDGET_SECONDS,
                         metavar="TIME", help=text)  # fmt: skip


def _investigate(data_dir: DataDir, options: argparse.Namespace) -> int:
    storage = Storage(data_dir)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "spec.json"
        arguments = [options.run, f"--budget={options.budget}", f"--output={file}"]
        status = storage.run(PLAN_INVESTIGATION, arguments)
        if status:
            return status
        spec = ExperimentSpec.from_json(file.read_text())
    experiment = run_through(data_dir, spec, storage)
    if spec.kind.compares_causes:
        return storage.run("show", [experiment.experiment_id])
    return storage.run("explain", ["--ladder", experiment.experiment_id])
