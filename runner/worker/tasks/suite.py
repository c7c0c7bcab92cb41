"""A model of a benchmark suite on random samples: for speed and sameness, not for learning."""

import importlib

from runner.spec import ExperimentSpec
from runner.worker.workload import Workload


def load(experiment: ExperimentSpec) -> Workload:
    """Raises `WorkloadError` for a model that cannot be built here.

    Each suite is a module of `runner.worker.suites` with a function `load`.
    """
    model = experiment.model.from_suite
    assert model is not None
    module = importlib.import_module(f"runner.worker.suites.{model.suite}")
    workload: Workload = module.load(experiment, model)
    return workload
