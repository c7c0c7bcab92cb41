"""Models of transformers with default configurations, as in the Dynamo harness, or smaller for
trials on small machines.
"""

from typing import Any

import torch
import transformers
from torch import Tensor, nn

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.values import nearest
from breakeven.runner.specs.workload import SuiteModelName
from breakeven.runner.worker.model.loaded_workload import (
    TOKEN_METRICS,
    Workload,
    align_classes,
    align_next_tokens,
    random_dataset,
)
from breakeven.runner.worker.model.transformers_models import without_dropout

LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "encoder_layers",
    "decoder_layers",
    "num_decoder_layers",
)
HEADS = (
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_heads",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "attention_heads",
)
WIDTHS = (
    "hidden_size",
    "n_embd",
    "dim",
    "d_model",
    "embedding_size",
    "word_embed_proj_dim",
    "intermediate_size",
    "hidden_dim",
    "d_ff",
    "d_inner",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "ffn_dim",
    "cross_attention_hidden_size",
)
SMALLEST_VOCABULARY = 100
"""Smallest vocabulary, with room for the special tokens of every model."""
CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "AllenaiLongformerBase": (
        "LongformerForMaskedLM",
        {
            "attention_window": [512] * 12,
            "max_position_embeddings": 4098,
            "vocab_size": 50265,
            "type_vocab_size": 1,
            "layer_norm_eps": 1e-5,
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
            "sep_token_id": 2,
        },
    ),
    "CamemBert": (
        "CamembertForMaskedLM",
        {
            "max_position_embeddings": 514,
            "vocab_size": 32005,
            "type_vocab_size": 1,
            "layer_norm_eps": 1e-5,
        },
    ),
    "DistillGPT2": ("GPT2LMHeadModel", {"n_layer": 6}),
    "GoogleFnet": ("FNetForMaskedLM", {}),
    "T5Small": ("T5ForConditionalGeneration", {}),
    "YituTechConvBert": ("ConvBertForMaskedLM", {}),
}
"""For names of the harness that are not classes of transformers: the class, and how the harness's
configuration, which comes from the hub, differs from the default."""
PADDED_WITH_0 = ("GPT2ForSequenceClassification", "GPTNeoForSequenceClassification", "Roberta")
"""Prefixes of models that need a padding token and have no suitable one."""
READS_ONE_TOKEN = "Roberta"
"""With padding token 0, its default configuration has only one valid position, so all tokens are 0
in the harness."""
FEEDS_THE_DECODER = ("T5", "M2M100", "MT5", "BlenderbotForConditionalGeneration")
ENDS_WITH_EOS = "Bart"
"""Models with this in their name expect an end-of-text token as the last token."""


def shrink(config: Any, divisor: int) -> None:
    """Divides the sizes of a configuration, rounding down, but to at least 1.

    The widths shrink like the number of attention heads, so that a head keeps its size. The
    model's longest input does not change.
    """
    if divisor == 1:
        return
    layers = next(filter(None, _sizes(config, LAYERS).values()), None)
    heads = next(filter(None, _sizes(config, HEADS).values()), divisor)
    fewer = max(1, heads // divisor)
    changed: dict[str, Any] = {
        name: value[: max(1, layers // divisor)]
        for name, value in vars(config).items()
        if isinstance(value, list) and len(value) == layers  # an entry for each layer
    }
    for name, size in _sizes(config, LAYERS).items():
        changed[name] = max(1, size // divisor)
    for name, size in _sizes(config, HEADS).items():
        changed[name] = max(1, size * fewer // heads)
    for name, size in _sizes(config, WIDTHS).items():
        changed[name] = size * fewer // heads
    for name, size in _sizes(config, ("vocab_size",)).items():
        changed[name] = max(SMALLEST_VOCABULARY, size // divisor)
    for name, value in changed.items():
        setattr(config, name, value)


def _sizes(config: Any, names: tuple[str, ...]) -> dict[str, int]:
    """The configuration's own sizes with these names, without aliases of transformers, so that no
    size is divided twice."""
    own = [name for name in names if name not in config.attribute_map]
    sizes = {name: getattr(config, name, None) for name in own}
    return {name: size for name, size in sizes.items() if isinstance(size, int)}


def load(experiment: ExperimentSpec, chosen: SuiteModelName) -> Workload:
    """Loads a workload; raises `WorkloadError` if transformers lacks or cannot build the model."""
    name = chosen.name
    kind, config = configuration(name, chosen.divisor)
    config = without_dropout(config, experiment)
    torch.manual_seed(experiment.training.seed)
    try:
        model = kind(config)
    except Exception as error:
        raise WorkloadError(
            f"model.source = 'huggingface:{name}': transformers {transformers.__version__} cannot "
            f"build it: {type(error).__name__}: {error}"
        ) from error
    # After the model is built, as in the harness: T5's decoder then has its own configuration.
    model.config.use_cache = False
    return Workload(
        model=AnswersQuestions(model) if name.endswith("QuestionAnswering") else model,
        data=random_dataset(
            experiment,
            lambda count, random: _samples(name, config, experiment, count, random),
            config.vocab_size,
        ),
        metrics=TOKEN_METRICS,
        align=align_next_tokens if name.endswith(("CausalLM", "GPT2")) else align_classes,
    )


class AnswersQuestions(nn.Module):
    """Takes the start and end of an answer as one tensor of labels, (samples, 2)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, labels: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
        """Returns `loss`, and `logits` of start and end, (samples, 2, tokens)."""
        output = self.model(**inputs, start_positions=labels[:, 0], end_positions=labels[:, 1])
        logits = torch.stack([output.start_logits, output.end_logits], dim=1)
        return {"loss": output.loss, "logits": logits}


def configuration(name: str, divisor: int) -> tuple[Any, Any]:
    """The class of a model, and its configuration."""
    class_name, differences = CONFIGURATIONS.get(name, (name, {}))
    kind: Any = getattr(transformers, class_name, None)
    if not hasattr(kind, "config_class"):
        raise WorkloadError(
            f"model.source = 'huggingface:{name}': transformers {transformers.__version__} has no "
            f"model {class_name!r}{nearest(class_name, dir(transformers))}"
        )
    config = kind.config_class(**differences)
    if name.startswith(PADDED_WITH_0):
        config.pad_token_id = 0
    if name.endswith("SequenceClassification"):
        # Otherwise transformers sets it in the first forward pass, and the changed configuration
        # makes Dynamo compile the whole step again.
        config.problem_type = "single_label_classification"
    shrink(config, divisor)
    return kind, config


def _samples(
    name: str, config: Any, experiment: ExperimentSpec, count: int, random: torch.Generator
) -> tuple[dict[str, Tensor], Tensor]:
    length = experiment.data.sequence_length

    def draw(below: int, *shape: int) -> Tensor:
        return torch.randint(below, shape, generator=random)

    tokens = draw(1 if name.startswith(READS_ONE_TOKEN) else config.vocab_size, count, length)
    if ENDS_WITH_EOS in name:
        tokens[:, -1] = config.eos_token_id
    inputs = {"input_ids": tokens}
    if name.startswith(FEEDS_THE_DECODER):
        inputs["decoder_input_ids"] = tokens
    if name.endswith("QuestionAnswering"):
        return inputs, draw(length, count, 2)
    if name.endswith("SequenceClassification"):
        return inputs, draw(config.num_labels, count)
    return inputs, draw(config.vocab_size, count, length)
