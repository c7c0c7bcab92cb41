"""Prediction of the next token in texts, by a transformers model."""

from torch import Tensor

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.workload import Task
from breakeven.runner.worker.data.samples import choose_texts
from breakeven.runner.worker.data.splits import IGNORE, Dataset, Split, make_split
from breakeven.runner.worker.model.loaded_workload import TOKEN_METRICS, Workload, align_next_tokens
from breakeven.runner.worker.model.transformers_models import (
    import_model,
    make_model,
    make_tokenizer,
    text_shape,
    tokenize,
)

TASK = Task(
    learns="the next word of a text",
    samples="texts",
    labels="token",
    models=("builtin:gpt2-tiny", "builtin:gpt2"),
    data=("builtin:reviews",),
    metrics=TOKEN_METRICS,
)
AUTO_CLASS = "AutoModelForCausalLM"


def import_packages(experiment: ExperimentSpec) -> None:
    """Imports what `load` imports."""
    import_model(experiment, AUTO_CLASS)


def load(experiment: ExperimentSpec) -> Workload:
    """Loads a workload; raises `RunnerError` for an unusable model or data."""
    samples = choose_texts(experiment.data, experiment.training.seed, labelled=False)
    tokenizer = make_tokenizer(experiment.model, samples["train"].samples)
    tokenizer.padding_side = "right"
    length = experiment.data.sequence_length
    splits = {
        part: _make_split(tokenize(tokenizer, content.samples, length))
        for part, content in samples.items()
    }
    # The tokenizer of a built-in model opens texts with [CLS] and closes them with [SEP].
    ends = {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
    shape = text_shape(experiment, tokenizer) | ends
    # Nothing is generated here. A cache refers to each block by its number, so every block would be
    # compiled again, until the compiler gives up.
    model = make_model(experiment, AUTO_CLASS, settings={"use_cache": False}, shape=shape)
    # Otherwise GPT-2 chooses this loss with a warning, which breaks the compiler's graph.
    model.loss_type = "ForCausalLM"  # type: ignore[assignment]
    return Workload(
        model=model,
        data=Dataset(**splits, labels=(), vocabulary_size=len(tokenizer)),
        metrics=TASK.metrics,
        align=align_next_tokens,
    )


def _make_split(inputs: dict[str, Tensor]) -> Split:
    """Makes a split; all tokens are targets, except padding and the first token."""
    tokens, mask = inputs["input_ids"], inputs["attention_mask"]
    labels = tokens.masked_fill(mask == 0, IGNORE)
    labels[:, 0] = IGNORE
    return make_split({"input_ids": tokens, "attention_mask": mask}, labels)
