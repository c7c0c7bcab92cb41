"""Models of transformers from their default configurations, as the Dynamo harness builds them."""

import difflib
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.workload import SuiteModelName
from breakeven.runner.worker.model.models import without_dropout
from breakeven.runner.worker.model.workload import TOKEN_METRICS, Align, Workload, align_classes
from breakeven.runner.worker.suites.random_samples import random_dataset
from breakeven.runner.worker.suites.shrinking import shrink
from breakeven.runner.worker.tasks.causal_lm import align_next_tokens

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
"""Names of the harness that are no class of transformers: the class, and in what the configuration
that the harness fetches from the hub differs from the default."""
PADDED_WITH_0 = ("GPT2ForSequenceClassification", "GPTNeoForSequenceClassification", "Roberta")
"""Models, by the beginning of their name, that need a padding token and have none that fits."""
READS_ONE_TOKEN = "Roberta"
"""Its default configuration has no position for a padding of 0 but the first, so that all tokens
are 0 in the harness."""
FEEDS_THE_DECODER = ("T5", "M2M100", "MT5", "BlenderbotForConditionalGeneration")
ENDS_WITH_EOS = "Bart"
"""Models whose name holds this expect a text's end as the last token."""


def load(experiment: ExperimentSpec, chosen: SuiteModelName) -> Workload:
    """Raises `WorkloadError` for a name that transformers does not have or cannot build."""
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
    # After it was built, as the harness does: T5's decoder has a configuration of its own by then.
    model.config.use_cache = False
    return Workload(
        model=AnswersQuestions(model) if name.endswith("QuestionAnswering") else model,
        data=random_dataset(
            experiment,
            lambda count, random: _samples(name, config, experiment, count, random),
            config.vocab_size,
        ),
        metrics=TOKEN_METRICS,
        align=_align(name),
    )


class AnswersQuestions(nn.Module):
    """Takes where an answer starts and ends as one tensor of labels, (samples, 2)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, labels: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
        """`loss`, and as `logits` those of start and end, (samples, 2, tokens)."""
        output = self.model(**inputs, start_positions=labels[:, 0], end_positions=labels[:, 1])
        logits = torch.stack([output.start_logits, output.end_logits], dim=1)
        return {"loss": output.loss, "logits": logits}


def configuration(name: str, divisor: int) -> tuple[Any, Any]:
    """The class of a model, and its configuration."""
    class_name, differences = CONFIGURATIONS.get(name, (name, {}))
    kind: Any = getattr(transformers, class_name, None)
    if not hasattr(kind, "config_class"):
        near = difflib.get_close_matches(class_name, dir(transformers), n=3)
        raise WorkloadError(
            f"model.source = 'huggingface:{name}': transformers {transformers.__version__} has no "
            f"model {class_name!r}" + (f"; it has {', '.join(near)}" if near else "")
        )
    config = kind.config_class(**differences)
    if name.startswith(PADDED_WITH_0):
        config.pad_token_id = 0
    if name.endswith("SequenceClassification"):
        # Left open, transformers settles it in the first forward, and the changed configuration
        # makes Dynamo compile the whole step a second time.
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


def _align(name: str) -> Align:
    next_token = name.endswith(("CausalLM", "GPT2"))
    return align_next_tokens if next_token else align_classes
