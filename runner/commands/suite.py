"""The options of the command `suite`: which cells there are, and every field of all of them."""

import argparse
from collections.abc import Sequence
from typing import Any, get_args

from breakeven.runner.commands.options import add_field_options, read_fields, said
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import Bounds
from breakeven.runner.specs.options import read_whole_number, split_at_commas
from breakeven.runner.specs.training import Precision
from breakeven.runner.specs.variants import Settings
from breakeven.runner.suites import SUITES
from breakeven.runner.suites.matrix import (
    PARTS,
    SUITE_SCENARIOS,
    Matrix,
    check_choice,
    check_suite_run,
    new_suite_run,
)

SHRINK = Bounds(1, 9999, "no model has more layers, heads and words to leave out")
ROWS = (
    "name", "scenario", "task", "settings", "model.source", "data.source", "training.precision",
    "speed.part", "cache.part", "accuracy.parts",
)  # fmt: skip
"""Fields that the matrix itself settles."""


def add_suite_options(parser: argparse.ArgumentParser) -> None:
    """Adds which cells a suite run has, and options for the fields that all of them share."""
    listed = "; ".join(f"{name}: {suite.text.rstrip('.')}" for name, suite in SUITES.items())
    parser.add_argument("suite", choices=list(SUITES), help=listed)
    lists = {
        "models": "models of the suite, by name (default: all that the Dynamo harness runs)",
        "precision": f"one or more of {', '.join(get_args(Precision))} (default: float32)",
        "parts": f"one or both of {', '.join(PARTS)} (default: both)",
        "scenarios": f"one or more of {', '.join(SUITE_SCENARIOS)} (default: those of the suite)",
        "settings": "harness, plain or both: what torch is set to, see `compare --help` (default: "
        "harness)",
    }
    group = parser.add_argument_group("matrix", "every combination of these is an experiment")
    for name, text in lists.items():
        group.add_argument(f"--{name}", type=split_at_commas, metavar="NAME,...", help=text)
    group.add_argument(
        "--shrink", type=said(read_whole_number), default=1, metavar="N",
        help="how many times fewer layers, attention heads and words the models of huggingface "
        "have than the suite's, for trials on small machines (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--run", metavar="ID",
        help="id of the suite run (default: a new one); of one that is there, only cells that are "
        "missing or failed are queued",
    )  # fmt: skip
    add_field_options(parser, without=ROWS)


def read_cells(options: argparse.Namespace) -> tuple[str, list[ExperimentSpec]]:
    """The suite run's id and all its cells; raises `InvalidSpec`."""
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
    asked: dict[str, Any] = {}
    read_fields(options, asked)
    return suite_run, list(matrix.cells(asked, suite_run))


def _chosen(
    name: str, given: Sequence[str] | None, known: Sequence[str], usual: tuple[Any, ...]
) -> tuple[Any, ...]:
    if given is None:
        return usual
    check_choice(name, given, known)
    return tuple(given)
