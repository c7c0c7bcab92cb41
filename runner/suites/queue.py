"""Queueing a suite run, and going on with one: only cells that are missing or failed."""

import re
from collections.abc import Sequence
from dataclasses import replace

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import Experiment, experiments, new_experiment_id, submit
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.validation import require


def new_suite_run(suite: str) -> str:
    """An id that is unique, and sortable by time among those of a suite."""
    return f"{suite}-{new_experiment_id()}"


def check_suite_run(suite_run: str) -> None:
    """Raises `InvalidSpec` for what cannot be the id of a suite run."""
    rule = "must be letters, digits, '.', '_' or '-'"
    require(bool(re.fullmatch(r"[A-Za-z0-9][\w.-]*", suite_run)), "run", suite_run, rule)


def submit_missing(
    data_dir: DataDir, cells: Sequence[ExperimentSpec]
) -> list[tuple[str, ExperimentSpec]]:
    """Queues the cells of which no experiment is finished or under way; their ids and cells.

    Raises `NotEnoughDisk`.
    """
    there = [_cell(one.spec) for one in experiments(data_dir) if _needs_no_other(one)]
    return [(submit(data_dir, cell), cell) for cell in cells if _cell(cell) not in there]


def _needs_no_other(experiment: Experiment) -> bool:
    return not any(run.state.ended_early and run.is_recorded for run in experiment.runs)


def _cell(spec: ExperimentSpec) -> ExperimentSpec:
    """The same for a cell and for its repetition run by run where the device lacked memory."""
    return replace(spec, schedule="turns", fallback_of=None)
