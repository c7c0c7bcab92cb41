"""Prediction of masked tokens, by a transformers model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.workload import Task
from breakeven.runner.worker.data.samples import choose_texts
from breakeven.runner.worker.data.splits import IGNORE, Dataset, Split, make_split
from breakeven.runner.worker.model.loaded_workload import TOKEN_METRICS, Workload, align_classes
from breakeven.runner.worker.model.transformers_models import (
    BERT_MODELS,
    import_model,
    make_model,
    make_tokenizer,
    text_shape,
    tokenize,
)

TASK = Task(
    learns="hidden words of a text",
    samples="texts",
    labels="token",
    models=BERT_MODELS,
    data=("builtin:reviews",),
    metrics=TOKEN_METRICS,
)
CHOSEN_SHARE = 0.15
"""Share of the tokens that the model must predict. The mask hides 80 % of them, a random token
replaces 10 %, and 10 % do not change (BERT, Devlin et al. 2018, section 3.1)."""
AUTO_CLASS = "AutoModelForMaskedLM"


def import_packages(experiment: ExperimentSpec) -> None:
    """Imports what `load` imports."""
    import_model(experiment, AUTO_CLASS)


def hide_tokens(
    inputs: dict[str, Tensor], special: Tensor, mask_token: int, vocabulary_size: int, seed: int
) -> Split:
    """Hides tokens that the seed chooses, at least one in each text, but none of the `special`
    ones: padding and tokens that mark ends. All tensors are (samples, tokens), on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    tokens = inputs["input_ids"]
    drawn = torch.rand(tokens.shape, generator=generator).masked_fill(special, 2)
    # A batch without targets would have no loss, so each text's lowest draw is always chosen.
    bound = drawn.amin(1, keepdim=True).clamp(min=CHOSEN_SHARE)
    chosen = (drawn <= bound) & ~special
    fate = torch.rand(tokens.shape, generator=generator)
    others = torch.randint(vocabulary_size, tokens.shape, generator=generator)
    hidden = tokens.masked_fill(chosen & (fate < 0.8), mask_token)
    hidden = torch.where(chosen & (fate >= 0.9), others, hidden)
    labels = tokens.masked_fill(~chosen, IGNORE)
    return make_split({**inputs, "input_ids": hidden}, labels)


@dataclass(frozen=True, kw_only=True)
class MaskedSplit(Split):
    """Texts with other hidden tokens in each epoch."""

    hide: Callable[[int], Split]
    """Hides tokens by a seed."""

    def for_epoch(self, seed: int) -> Split:
        fresh = self.hide(seed).to(self.labels.device)
        return replace(
            self, inputs=fresh.inputs, labels=fresh.labels, num_targets=fresh.num_targets
        )


def load(experiment: ExperimentSpec) -> Workload:
    """Loads a workload; raises `RunnerError` for an unusable model or data."""
    seed = experiment.training.seed
    samples = choose_texts(experiment.data, seed, labelled=False)
    tokenizer = make_tokenizer(experiment.model, samples["train"].samples)
    if tokenizer.mask_token is None:
        raise WorkloadError(
            f"model.source = {experiment.model.source!r}: its tokenizer has no token that masks "
            "others; choose a model that was trained as a masked language model, such as BERT"
        )

    def hiding(part: str) -> Callable[[int], Split]:
        inputs = tokenize(
            tokenizer,
            samples[part].samples,
            experiment.data.sequence_length,
            return_special_tokens_mask=True,
        )
        special = inputs.pop("special_tokens_mask").bool()
        return partial(hide_tokens, inputs, special, tokenizer.mask_token_id, len(tokenizer))

    # All evaluations hide the same tokens of held-out texts.
    hide = {part: hiding(part) for part in samples}
    splits = {part: hides(seed) for part, hides in hide.items()}
    splits["train"] = MaskedSplit(**vars(splits["train"]), hide=hide["train"])
    shape = text_shape(experiment, tokenizer)
    return Workload(
        model=make_model(experiment, AUTO_CLASS, settings={}, shape=shape),
        data=Dataset(**splits, labels=(), vocabulary_size=len(tokenizer)),
        metrics=TASK.metrics,
        align=align_classes,
    )
