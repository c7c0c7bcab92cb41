"""A model of a benchmark suite on random samples, for speed and correctness, not for learning."""

import importlib

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


def load(experiment: ExperimentSpec) -> Workload:
    """Loads a workload through the suite's module of `runner.worker.model`; raises
    `WorkloadError`."""
    model = experiment.model.from_suite
    assert model is not None
    module = importlib.import_module(f"breakeven.runner.worker.model.{model.suite}")
    workload: Workload = module.load(experiment, model)
    return workload
