"""Classification of images, by a transformers model."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.workload import Task
from breakeven.runner.worker.data.hub_access import from_pretrained
from breakeven.runner.worker.data.samples import choose_images, number_labels
from breakeven.runner.worker.data.splits import Dataset, make_split
from breakeven.runner.worker.model.loaded_workload import CLASS_METRICS, Workload, align_classes
from breakeven.runner.worker.model.transformers_models import (
    classification_settings,
    import_model,
    make_model,
)

DIGITS, VIT = "builtin:digits", "builtin:vit-small"

TASK = Task(
    learns="the label of an image",
    samples="images",
    labels="sample",
    models=(VIT,),
    data=(DIGITS,),
    metrics=CLASS_METRICS,
)
AUTO_CLASS = "AutoModelForImageClassification"


def import_packages(experiment: ExperimentSpec) -> None:
    """Imports what `load` imports."""
    import_model(experiment, AUTO_CLASS)


def load(experiment: ExperimentSpec) -> Workload:
    """Loads a workload; raises `RunnerError` for an unusable model or data."""
    encode = _make_encoder(experiment)
    samples = choose_images(experiment.data, experiment.training.seed)
    names, labels = number_labels(samples)
    splits = {
        part: make_split({"pixel_values": encode(content.samples)}, labels[part])
        for part, content in samples.items()
    }
    _, channels, height, _ = splits["train"].inputs["pixel_values"].shape
    return Workload(
        model=make_model(
            experiment,
            AUTO_CLASS,
            settings=classification_settings(names),
            shape={"image_size": height, "num_channels": channels},
        ),
        data=Dataset(**splits, labels=names, vocabulary_size=None),
        metrics=TASK.metrics,
        align=align_classes,
    )


def _make_encoder(experiment: ExperimentSpec) -> Callable[[Any], Tensor]:
    """A function from images to the model's pixels (images, channels, height, width)."""
    source, data = experiment.model.source, experiment.data.source
    if (source == VIT) != (data == DIGITS):
        raise WorkloadError(
            f"model.source = {source!r} and data.source = {data!r} do not fit each other: {VIT} "
            f"is made for the small images of {DIGITS}, and a pretrained model for images from a "
            "file, a folder or the hub"
        )
    if source == VIT:
        return torch.as_tensor
    import transformers  # here, because it takes a second

    processor = from_pretrained(transformers.AutoImageProcessor, source, "no image processor; ")

    def encode(images: Any) -> Tensor:
        # One by one, because all unpacked images may not fit into memory.
        encoded = [processor(image, return_tensors="pt")["pixel_values"] for image in images]
        return torch.cat(encoded)

    return encode
