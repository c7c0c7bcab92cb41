"""Models of TorchBench with their own inputs, as in the Dynamo harness."""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.testing import reduce_to_scalar_loss

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.workload import SuiteModelName
from breakeven.runner.suites.torchbench import SUITE
from breakeven.runner.worker.model.loaded_workload import (
    NUMBER_METRICS,
    Workload,
    align_numbers,
    random_dataset,
)
from breakeven.runner.worker.model.transformers_models import switch_off_dropout

PACKAGES = ("torchbenchmark.models", "torchbenchmark.canary_models")


def load(experiment: ExperimentSpec, chosen: SuiteModelName) -> Workload:
    """Loads a workload; raises `WorkloadError` if the model is missing or cannot be built.

    The model has one batch; further batches of the experiment repeat it.
    """
    name = chosen.name
    kind = _find(name)
    try:
        with _seed_kept(experiment.training.seed):
            benchmark = kind(
                test="train" if experiment.trains else "eval",
                device=experiment.device.partition(":")[0],
                batch_size=experiment.training.batch_size,
            )
            model, inputs = benchmark.get_module()
    except Exception as error:
        raise WorkloadError(
            f"model.source = 'torchbench:{name}' cannot be built: {type(error).__name__}: {error}"
        ) from error
    if not experiment.has_dropout:
        switch_off_dropout(model)
    named = (
        dict(inputs)
        if isinstance(inputs, Mapping)
        else {str(place): value for place, value in enumerate(inputs)}
    )
    size = experiment.training.batch_size
    batched = {
        key: value.detach().cpu()
        for key, value in named.items()
        if isinstance(value, Tensor) and value.ndim > 0 and len(value) == size
    }

    def repeat(count: int, random: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
        order = torch.arange(count) % size
        return {f"input_{key}": value[order] for key, value in batched.items()}, torch.zeros(count)

    return Workload(
        model=ModelWithLoss(model, named, by_name=isinstance(inputs, Mapping)),
        data=random_dataset(experiment, repeat),
        metrics=NUMBER_METRICS,
        align=align_numbers,
    )


class ModelWithLoss(nn.Module):
    """Calls a model with its inputs and computes the harness's loss from its output."""

    def __init__(self, model: nn.Module, inputs: Mapping[str, Any], *, by_name: bool) -> None:
        """`inputs`: the model's own inputs in their order, for what a batch lacks."""
        super().__init__()
        self.model = model
        self._inputs = dict(inputs)
        self._by_name = by_name

    def forward(self, labels: Tensor | None = None, **batch: Tensor) -> dict[str, Tensor]:
        """Returns `loss`, and the answer's first tensor as `logits`."""
        inputs = {key: batch.get(f"input_{key}", value) for key, value in self._inputs.items()}
        answer = self.model(**inputs) if self._by_name else self.model(*inputs.values())
        return {"loss": reduce_to_scalar_loss(answer), "logits": _first_tensor(answer)}


def _first_tensor(answer: Any) -> Tensor:
    while not isinstance(answer, Tensor):
        answer = next(iter(answer.values() if isinstance(answer, Mapping) else answer))
    return answer


def _find(name: str) -> Any:
    """The class of a model; raises `WorkloadError` if it is not installed."""
    for package in PACKAGES:
        try:
            return importlib.import_module(f"{package}.{name}").Model
        except ModuleNotFoundError as error:
            if error.name is None or not f"{package}.{name}".startswith(error.name):
                raise WorkloadError(
                    f"model.source = 'torchbench:{name}' needs a package that is not installed "
                    f"({error}). Run: python install.py {name} in the folder of TorchBench"
                ) from error
    raise WorkloadError(
        f"model.source = 'torchbench:{name}': the suite torchbench needs the package "
        f"torchbenchmark with this model: {SUITE.install.replace('MODEL', name)}"
    )


@contextmanager
def _seed_kept(seed: int) -> Iterator[None]:
    """Seeds torch, and restores its seed function, which TorchBench replaces by a fixed one."""
    manual_seed = torch.manual_seed
    manual_seed(seed)
    try:
        yield
    finally:
        torch.manual_seed = manual_seed
