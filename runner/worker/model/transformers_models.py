"""Models of transformers: built-in configurations with random weights, local folders, the hub.
Their tokenizers: the pretrained model's own, or a WordPiece trained on the training samples.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import ExperimentSpec, ModelSpec
from breakeven.runner.worker.data.hub_access import from_pretrained
from breakeven.runner.worker.data.splits import tensor_bytes

BERT_MODELS = ("builtin:bert-tiny", "builtin:bert-base")
VOCABULARY_SIZE = 8192
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def _sizes(width: int, layers: int, heads: int) -> dict[str, int]:
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
    }


BUILTIN_CONFIGURATIONS: dict[str, tuple[str, dict[str, int]]] = {
    "builtin:bert-tiny": ("BertConfig", _sizes(128, 2, 2)),
    "builtin:bert-base": ("BertConfig", _sizes(768, 12, 12)),
    "builtin:gpt2": ("GPT2Config", {"n_embd": 768, "n_layer": 12, "n_head": 12}),
    "builtin:gpt2-tiny": ("GPT2Config", {"n_embd": 128, "n_layer": 2, "n_head": 2}),
    "builtin:vit-small": ("ViTConfig", {**_sizes(128, 4, 4), "patch_size": 2}),
}


def import_model(experiment: ExperimentSpec, auto_class: str) -> None:
    """Imports what `make_model` imports. The code of a model that is not built in is known only
    from its configuration."""
    import transformers

    architecture = getattr(transformers, auto_class)
    if experiment.model.is_builtin:
        kind, _ = BUILTIN_CONFIGURATIONS[experiment.model.source]
        architecture._model_mapping[getattr(transformers, kind)]


def make_model(
    experiment: ExperimentSpec, auto_class: str, *, settings: dict[str, Any], shape: dict[str, Any]
) -> nn.Module:
    """The model on the CPU; the seed determines weights that are not pretrained.

    `auto_class` names a class of transformers. `settings` apply to any configuration,
    `shape` only to that of a built-in model: pretrained models have their own shape.
    """
    import transformers  # here, because a model of a person's own does not need it

    architecture = getattr(transformers, auto_class)
    torch.manual_seed(experiment.training.seed)
    source = experiment.model.source
    if experiment.model.is_builtin:
        kind, size = BUILTIN_CONFIGURATIONS[source]
        config = getattr(transformers, kind)(**(size | shape | settings))
        config = without_dropout(config, experiment)
        model: nn.Module = architecture.from_config(config)
        return model
    config = from_pretrained(transformers.AutoConfig, source, **settings)
    model = from_pretrained(
        architecture,
        source,
        config=without_dropout(config, experiment),
        dtype=torch.float32,
        ignore_mismatched_sizes=True,
    )
    return model


def classification_settings(labels: tuple[str, ...]) -> dict[str, Any]:
    """Settings of a model that classifies samples."""
    # Otherwise transformers sets the problem's type in the first forward pass, and the changed
    # configuration makes Dynamo compile the whole step again.
    return {"num_labels": len(labels), "problem_type": "single_label_classification"}


def text_shape(experiment: ExperimentSpec, tokenizer: Any) -> dict[str, Any]:
    """Shape of a built-in model for the tokenizer's tokens."""
    return {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": max(512, experiment.data.sequence_length),
        "pad_token_id": tokenizer.pad_token_id,
    }


def weights_sha256(model: nn.Module) -> str:
    """Hash of all weights, in their order. Buffers are none: a mask that only one form of
    attention has leaves the weights as they are."""
    digest = hashlib.sha256()
    buffers = _names_of_buffers(model)
    for name, tensor in model.state_dict().items():
        if name not in buffers:
            digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def kinds_of_buffers(model: nn.Module) -> list[str]:
    """The buffers that a checkpoint has; equal ones of several layers are `h.*.attn.mask`."""
    saved = _names_of_buffers(model).intersection(model.state_dict())
    return sorted({re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in saved})


def _names_of_buffers(model: nn.Module) -> set[str]:
    return {name for name, _ in model.named_buffers(remove_duplicate=False)}


@torch.no_grad()
def perturb(model: nn.Module, relative: float, seed: int) -> None:
    """Multiplies every weight by 1 + `relative` x a standard normal random number, drawn on the CPU
    to be the same on every device and every rank."""
    generator = torch.Generator().manual_seed(seed + 1)
    for parameter in filter(torch.is_floating_point, model.parameters()):
        shape = parameter.shape
        noise = torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")
        factors = (1 + relative * noise).to(parameter.device, parameter.dtype)
        parameter.mul_(_shared_alike(factors, parameter))


def _shared_alike(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The tensor, which is equal on all ranks, shared among them as they share `like`."""
    if not hasattr(like, "placements"):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


def switch_off_dropout(model: nn.Module) -> None:
    """Sets the dropout probabilities of all torch modules to 0."""
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            module.dropout = 0.0


def without_dropout(config: Any, experiment: ExperimentSpec) -> Any:
    """Sets every dropout probability to 0 if the experiment trains without dropout."""
    if not experiment.has_dropout:
        for name, value in config.to_dict().items():
            if "drop" in name and isinstance(value, float):
                setattr(config, name, 0.0)
    return config


def make_tokenizer(model: ModelSpec, texts: Sequence[str]) -> Any:
    """The pretrained model's own tokenizer, or a WordPiece trained on the training texts."""
    from transformers import AutoTokenizer

    if model.is_builtin:
        return _train_tokenizer(texts)
    tokenizer = from_pretrained(AutoTokenizer, model.source, "no tokenizer; ")
    if tokenizer.pad_token is None:
        # Generative models rarely have one. The attention mask marks the padding.
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token is None:
        raise WorkloadError(
            f"model.source = {model.source!r}: its tokenizer has no token for padding nor for the "
            "end of a text; set its pad_token, save it, and name the folder"
        )
    return tokenizer


def tokenize(
    tokenizer: Any, texts: Sequence[str], length: int, **options: Any
) -> dict[str, Tensor]:
    """The texts as model inputs by name, each (texts, length): cut, or padded on the right."""
    encoded = tokenizer(
        list(texts),
        padding="max_length",
        truncation=True,
        max_length=length,
        return_tensors="pt",
        **options,
    )
    return dict(encoded)


def _train_tokenizer(texts: Sequence[str]) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    def build(vocabulary: dict[str, int]) -> Tokenizer:
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return tokenizer

    normalizer = normalizers.BertNormalizer(lowercase=True)
    # The trainer numbers the pieces within words in the order of a hash table, which depends on the
    # process, and breaks ties by these numbers. Naming the pieces first fixes the numbers.
    alphabet = sorted({letter for text in texts for letter in normalizer.normalize_str(text)})
    pieces = [f"##{letter}" for letter in alphabet if not letter.isspace()]
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY_SIZE, special_tokens=[*SPECIAL_TOKENS, *pieces], show_progress=False
    )
    draft = build({})
    draft.train_from_iterator(texts, trainer)
    # A new tokenizer, because the draft treats these pieces as special tokens.
    tokenizer = build(draft.get_vocab())
    separator, start = SPECIAL_TOKENS.index("[SEP]"), SPECIAL_TOKENS.index("[CLS]")
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", separator), ("[CLS]", start))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
