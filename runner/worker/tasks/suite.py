"""A model of a benchmark suite on random samples, for speed and correctness, not for learning."""

import importlib
from typing import Any

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.workload import RANDOM_DATA, SUITE_SOURCES, Task
from breakeven.runner.suites import SUITES
from breakeven.runner.worker.model.loaded_workload import Workload

TASK = Task(
    learns="nothing: a model of PyTorch's benchmarks on random samples, for its speed",
    samples="random",
    models=tuple(model.source for name in SUITE_SOURCES for model in SUITES[name].models),
    data=(RANDOM_DATA,),
)


def import_packages(experiment: ExperimentSpec) -> None:
    """Imports the suite's module of `runner.worker.model`."""
    _module_of_suite(experiment)


def load(experiment: ExperimentSpec) -> Workload:
    """Loads a workload through the suite's module of `runner.worker.model`; raises
    `WorkloadError`."""
    workload: Workload = _module_of_suite(experiment).load(experiment, experiment.model.from_suite)
    return workload


def _module_of_suite(experiment: ExperimentSpec) -> Any:
    model = experiment.model.from_suite
    assert model is not None
    return importlib.import_module(f"breakeven.runner.worker.model.{model.suite}")
