"""`breakeven queue suite`: an experiment for each model of a benchmark suite."""

import argparse
from collections.abc import Sequence
from typing import Any, get_args

from breakeven.runner.arguments.options import FIELDS, add_field_options, checked, read_fields
from breakeven.runner.checks.refused_experiments import check_at_once
from breakeven.runner.commands.entry import tell
from breakeven.runner.experiments.queue_order import startable
from breakeven.runner.files import is_locked
from breakeven.runner.machine.capabilities import likely_capabilities, read_capabilities
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.arm_fields import Settings
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import Bounds
from breakeven.runner.specs.training import Precision
from breakeven.runner.specs.values import read_whole_number, split_at_commas
from breakeven.runner.suites import SUITES
from breakeven.runner.suites.suite_matrix import (
    PARTS,
    SUITE_SCENARIOS,
    Matrix,
    check_choice,
    check_suite_run,
    new_suite_run,
    submit_missing,
)

SHRINK = Bounds(1, 9999, "no model has more layers, heads or words")
ROWS = (
    "name",
    "scenario",
    "task",
    "settings",
    "model.source",
    "data.source",
    "training.precision",
    "speed.part",
    "cache.part",
    "accuracy.parts",
)
"""Fields that the matrix sets itself."""


def add_suite_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the matrix, and those of the fields that all cells share."""
    listed = "; ".join(f"{name}: {suite.text.rstrip('.')}" for name, suite in SUITES.items())
    parser.add_argument("suite", choices=list(SUITES), metavar="SUITE", help=listed)
    lists = {
        "models": "models of the suite, by name (default: all that the Dynamo harness runs)",
        "precision": f"one or more of {', '.join(get_args(Precision))} (default: float32)",
        "parts": f"one or both of {', '.join(PARTS)} (default: both)",
        "scenarios": f"one or more of {', '.join(SUITE_SCENARIOS)} (default: those of the suite)",
        "settings": "harness, plain or both: settings of torch, see --help-fields (default: "
        "harness)",
    }
    group = parser.add_argument_group("matrix", "every combination of these is an experiment")
    for name, text in lists.items():
        group.add_argument(f"--{name}", type=split_at_commas, metavar="NAME,...", help=text)
    group.add_argument(
        "--shrink",
        type=checked(read_whole_number),
        default=1,
        metavar="N",
        help="divide the layers, attention heads and words of huggingface's models by N, for "
        "trials on small machines (default: 1)",
    )
    parser.add_argument(
        "--run",
        metavar="ID",
        help="id of the suite run (default: a new one); for an existing id, only missing and "
        "failed cells are queued",
    )
    add_field_options(parser, [path for path in FIELDS if path not in ROWS])


def add_suite(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Queues the missing cells of a suite run, and prints their ids."""
    machine = read_capabilities(data_dir)
    suite_run, cells = read_cells(options, (machine or likely_capabilities()).usual_device)
    accepted = [cell for cell in cells if check_at_once(cell, machine)]
    queued = submit_missing(data_dir, cells, accepted)
    for experiment_id, cell in queued:
        tell(f"{experiment_id}  {cell.name}")
    waits = startable(data_dir) and not is_locked(data_dir.supervisor_lock)
    how = f"; `breakeven queue start{data_dir.option}` runs the queue" if waits else ""
    tell(f"suite run {suite_run}: {len(queued)} of {len(cells)} experiments queued{how}")
    return 0


def read_cells(
    options: argparse.Namespace, usual_device: str = "cpu"
) -> tuple[str, list[ExperimentSpec]]:
    """The suite run's id and all its cells; raises `InvalidSpec`. `usual_device` as in
    `read_spec`."""
    suite = SUITES[options.suite]
    suite_run = options.run or new_suite_run(suite.name)
    check_suite_run(suite_run)
    SHRINK.check("shrink", options.shrink)
    matrix = Matrix(
        suite=suite,
        models=suite.choose(tuple(options.models or ())),
        precisions=_chosen("precision", options.precision, get_args(Precision), ("float32",)),
        parts=_chosen("parts", options.parts, PARTS, PARTS),
        scenarios=_chosen("scenarios", options.scenarios, SUITE_SCENARIOS, suite.scenarios),
        settings=_chosen("settings", options.settings, get_args(Settings), ("harness",)),
        shrink=options.shrink,
    )
    values: dict[str, Any] = {"devices": (usual_device,)}
    read_fields(options, values)
    values.pop("settings", None)  # the matrix has them as a list, under the name of the field
    return suite_run, list(matrix.cells(values, suite_run))


def _chosen(
    name: str, given: Sequence[str] | None, known: Sequence[str], usual: tuple[Any, ...]
) -> tuple[Any, ...]:
    if given is None:
        return usual
    check_choice(name, given, known)
    return tuple(given)
