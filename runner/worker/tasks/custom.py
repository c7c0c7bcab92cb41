"""A model and samples from the user's Python files."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.training import Metric
from breakeven.runner.specs.workload import Task
from breakeven.runner.worker.data.samples import part_sizes
from breakeven.runner.worker.data.splits import IGNORE, Dataset, Split, make_split
from breakeven.runner.worker.model.loaded_workload import (
    CLASS_METRICS,
    NUMBER_METRICS,
    TOKEN_METRICS,
    Align,
    Workload,
    align_classes,
    align_numbers,
)
from breakeven.runner.worker.model.transformers_models import switch_off_dropout
from breakeven.runner.worker.random_state import seed_all
from breakeven.runner.worker.user_code import call

TASK = Task(learns="what a model and data of your own come with", samples="functions")


def load(experiment: ExperimentSpec) -> Workload:
    """Loads a workload; raises `WorkloadError` if a function returns an unsuitable object.

    The model's function returns an `nn.Module` whose forward takes the entries of a batch as
    keyword arguments. The data's function returns a mapping with `train`, `validation` and, if the
    experiment has test samples, `test`. Each is a mapping from names to tensors with samples as
    first dimension, including `labels`, or a data set (`__len__`, `__getitem__`) of such mappings
    for single samples.
    """
    splits = _load_splits(experiment)
    metrics, align = _judging(splits["train"].labels)
    return Workload(
        model=_load_model(experiment, splits["train"]),
        data=Dataset(**splits, labels=_class_names(splits), vocabulary_size=None),
        metrics=metrics,
        align=align,
    )


def _judging(labels: Tensor) -> tuple[tuple[Metric, ...], Align]:
    if labels.is_floating_point():
        return NUMBER_METRICS, align_numbers
    return CLASS_METRICS if labels.ndim == 1 else TOKEN_METRICS, align_classes


def _class_names(splits: Mapping[str, Split]) -> tuple[str, ...]:
    """Class numbers as names; empty if labels are numbers or classes of tokens."""
    labels = [split.labels for split in splits.values()]
    if labels[0].is_floating_point() or labels[0].ndim > 1:
        return ()
    return tuple(map(str, range(int(torch.cat(labels).max()) + 1)))


def _call_seeded(source: str, seed: int) -> Any:
    seed_all(seed)
    return call(source)


def _load_model(experiment: ExperimentSpec, train: Split) -> nn.Module:
    source = experiment.model.source
    model = _call_seeded(source, experiment.training.seed)
    if not isinstance(model, nn.Module):
        returned = type(model).__name__
        raise WorkloadError(f"{source!r} returned {returned}; it must return a torch.nn.Module")
    entries = train.batch(torch.arange(1))
    try:
        inspect.signature(model.forward).bind(**entries)
    except TypeError as error:
        raise WorkloadError(
            f"{source!r}: the model's forward cannot take the entries of a batch as keyword "
            f"arguments: {error}. The entries are {', '.join(entries)}; a model that does not use "
            "the labels may take them as `labels=None`"
        ) from error
    if not experiment.has_dropout:
        switch_off_dropout(model)
    return model.cpu()


def _load_splits(experiment: ExperimentSpec) -> dict[str, Split]:
    source = experiment.data.source
    parts = _call_seeded(source, experiment.training.seed)
    sizes = part_sizes(experiment.data)
    if not isinstance(parts, Mapping) or not parts.keys() >= sizes.keys():
        kind = ", ".join(map(str, parts)) if isinstance(parts, Mapping) else type(parts).__name__
        raise WorkloadError(
            f"{source!r} returned {kind or 'nothing'}; it must return a mapping with the samples "
            f"of {', '.join(sizes)}"
        )
    splits = {
        part: _make_split(parts[part], count, f"{source!r}, {part} samples")
        for part, count in sizes.items()
    }
    layouts = {part: _layout(split) for part, split in splits.items()}
    for part, layout in layouts.items():
        if layout != layouts["train"]:
            raise WorkloadError(
                f"{source!r}: a sample of {part} is {layout}, but one of train is "
                f"{layouts['train']}; make them alike"
            )
    return splits


def _layout(split: Split) -> str:
    """Shape and type of each entry of a sample."""
    entries = {**split.inputs, "labels": split.labels}
    return ", ".join(
        f"{name} {tuple(tensor.shape[1:])} {str(tensor.dtype).removeprefix('torch.')}"
        for name, tensor in sorted(entries.items())
    )


def _make_split(content: Any, count: int, where: str) -> Split:
    """Makes a split of the first `count` samples."""
    entries = _tensors(content, count, where)
    sizes = {name: len(tensor) for name, tensor in entries.items()}
    if len(set(sizes.values())) > 1:
        raise WorkloadError(f"{where}: entries have different numbers of samples: {sizes}")
    labels = entries.pop("labels", None)
    if labels is None or not entries:
        raise WorkloadError(
            f"{where}: there must be an entry 'labels' and at least one other, for the model; "
            f"there is {', '.join(sizes) or 'none'}"
        )
    if len(labels) < count:
        raise WorkloadError(
            f"{where}: there are {len(labels)}, but {count} are requested; lower "
            "data.num_train_samples, data.num_eval_samples or data.num_test_samples"
        )
    return make_split(
        {name: tensor[:count] for name, tensor in entries.items()},
        _checked_labels(labels[:count], where),
    )


def _checked_labels(labels: Tensor, where: str) -> Tensor:
    if labels.is_floating_point():
        return labels
    if labels.is_complex() or labels.dtype == torch.bool:
        raise WorkloadError(
            f"{where}: labels are {labels.dtype}; they must be whole numbers, for classes, or "
            "floating, for numbers"
        )
    labels = labels.long()
    wrong = labels[(labels < 0) & (labels != IGNORE)]
    if len(wrong):
        raise WorkloadError(
            f"{where}: a label is {int(wrong[0])}; classes are numbered from 0, and {IGNORE} marks "
            "what does not count"
        )
    return labels


def _tensors(content: Any, count: int, where: str) -> dict[str, Tensor]:
    try:
        if isinstance(content, Mapping):
            return {str(name): _tensor(value) for name, value in content.items()}
        samples = [content[index] for index in range(min(count, len(content)))]
        return {
            str(name): torch.stack([_tensor(sample[name]) for sample in samples])
            for name in (samples[0] if samples else ())
        }
    except Exception as error:
        raise WorkloadError(
            f"{where}: neither a mapping from names to tensors nor a data set of such mappings for "
            f"single samples, all of one shape ({type(error).__name__}: {error})"
        ) from error


def _tensor(value: Any) -> Tensor:
    return torch.as_tensor(value).detach().cpu()
