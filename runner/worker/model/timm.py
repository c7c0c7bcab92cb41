"""Models of timm with random weights, as in the Dynamo harness."""

import importlib
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.workload import SuiteModelName
from breakeven.runner.suites.timm import SUITE
from breakeven.runner.worker.model.loaded_workload import (
    CLASS_METRICS,
    Workload,
    align_classes,
    random_dataset,
)
from breakeven.runner.worker.model.transformers_models import switch_off_dropout

PIXEL_VALUES = 256


def load(experiment: ExperimentSpec, chosen: SuiteModelName) -> Workload:
    """Loads a workload; raises `WorkloadError` if timm or the model is missing."""
    name = chosen.name
    timm = import_timm()
    torch.manual_seed(experiment.training.seed)
    try:
        model = timm.create_model(name, pretrained=False, drop_rate=0.0)
    except Exception as error:
        raise WorkloadError(
            f"model.source = 'timm:{name}': timm {timm.__version__} cannot build it: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not experiment.has_dropout:
        switch_off_dropout(model)
    settings = timm.data.resolve_model_data_config(model, use_test_size=not experiment.trains)
    shape = settings["input_size"]
    # A model without classes returns its features; each feature then represents a class.
    num_classes = model.num_classes or model.num_features

    def images(count: int, random: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
        pixels = torch.randint(PIXEL_VALUES, (count, *shape), generator=random).float()
        labels = torch.randint(num_classes, (count,), generator=random)
        return {"pixels": (pixels - pixels.mean()) / pixels.std()}, labels

    return Workload(
        model=NamesClasses(model),
        data=random_dataset(experiment, images),
        metrics=CLASS_METRICS,
        align=align_classes,
    )


class NamesClasses(nn.Module):
    """Takes a batch by names and returns logits, (samples, classes)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor, labels: Tensor | None = None) -> Tensor:
        """`pixels` (samples, channels, height, width); only the criterion uses labels."""
        answer: Any = self.model(pixels)
        # A distilled model returns two answers in training; the harness takes the first.
        logits: Tensor = answer[0] if isinstance(answer, tuple) else answer
        return logits


def import_timm() -> ModuleType:
    """The package; raises `WorkloadError` if it cannot be imported."""
    try:
        importlib.import_module("timm.data")
        return importlib.import_module("timm")
    except ImportError as error:
        raise WorkloadError(
            f"the suite timm needs the packages timm and torchvision ({error}): {SUITE.install}"
        ) from error
