"""Models: built-in configurations with random weights, local folders, hub names."""

import hashlib
from typing import Any

import torch
import transformers
from torch import nn

from runner.errors import WorkloadError
from runner.spec import ExperimentSpec
from runner.worker.data import Dataset
from runner.worker.tokenizing import hub_advice

BERT_SIZES: dict[str, dict[str, int]] = {
    "builtin:bert-tiny": {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 512,
    },
    "builtin:bert-base": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    },
}
VIT_SMALL: dict[str, int] = {
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "patch_size": 2,
}


def build_model(experiment: ExperimentSpec, data: Dataset) -> nn.Module:
    """The model on the CPU; weights that are not pretrained come from the seed."""
    spec = experiment.model
    wants_images = spec.source == "builtin:vit-small"
    has_images = data.vocabulary_size is None
    if wants_images != has_images:
        kinds = ("texts", "images")
        raise WorkloadError(
            f"model.source = {spec.source!r} takes {kinds[wants_images]}, but the data set holds "
            f"{kinds[has_images]}; choose a model and a data set of one kind"
        )
    torch.manual_seed(experiment.training.seed)
    if has_images:
        return _build_vit(experiment, data)
    if spec.is_builtin:
        return _build_bert(experiment, data)
    return _load_pretrained(experiment, data)


def weights_sha256(model: nn.Module) -> str:
    """Hash of all parameters and buffers, in their order."""
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@torch.no_grad()
def perturb(model: nn.Module, relative: float, seed: int) -> None:
    """Multiplies every weight by 1 + `relative` x a standard normal random number."""
    generator = torch.Generator().manual_seed(seed + 1)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
        parameter.mul_((1 + relative * noise).to(parameter.dtype))


def _build_bert(experiment: ExperimentSpec, data: Dataset) -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=data.vocabulary_size,
        num_labels=len(data.labels),
        max_position_embeddings=max(512, experiment.data.sequence_length),
        **BERT_SIZES[experiment.model.source],
    )
    model: nn.Module = transformers.BertForSequenceClassification(_prepared(config, experiment))
    return model


def _build_vit(experiment: ExperimentSpec, data: Dataset) -> nn.Module:
    _, channels, height, _ = data.train.inputs["pixel_values"].shape
    config = transformers.ViTConfig(
        num_labels=len(data.labels), image_size=height, num_channels=channels, **VIT_SMALL
    )
    model: nn.Module = transformers.ViTForImageClassification(_prepared(config, experiment))
    return model


def _load_pretrained(experiment: ExperimentSpec, data: Dataset) -> nn.Module:
    spec = experiment.model
    try:
        config = transformers.AutoConfig.from_pretrained(spec.source, num_labels=len(data.labels))
        model: nn.Module = transformers.AutoModelForSequenceClassification.from_pretrained(
            spec.source,
            config=_prepared(config, experiment),
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
        )
        return model
    except Exception as error:
        advice = hub_advice(spec.source, error)
        raise WorkloadError(f"model.source = {spec.source!r}: {advice}") from error


def _prepared(config: Any, experiment: ExperimentSpec) -> Any:
    """Names the task, and sets every dropout probability to 0 if the experiment trains without."""
    # Left open, transformers settles it in the first forward, and the changed configuration makes
    # Dynamo compile the whole step a second time.
    config.problem_type = "single_label_classification"
    if not experiment.has_dropout:
        for name, value in config.to_dict().items():
            if "drop" in name and isinstance(value, float):
                setattr(config, name, 0.0)
    return config
