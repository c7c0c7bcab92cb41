"""Runs the model on a split's samples, batch by batch, in their order."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.worker.compiler.compile_with_backend import make_compiler
from breakeven.runner.worker.data.splits import WHOLE, RankPart, Split
from breakeven.runner.worker.model.losses import find_logits
from breakeven.runner.worker.step.stepping import MixedPrecision


class Answer(NamedTuple):
    """The model's answer to one batch, without padding wherever padding would count."""

    output: Any
    """The objective's input, together with `labels`."""
    labels: Tensor
    logits: Tensor
    """The logits, without padding."""
    num_targets: int


class Question(NamedTuple):
    """A batch of a split, which the model may answer several times."""

    samples: Tensor
    """Places of the samples in the split, without padding."""
    answer: Callable[..., Answer]
    """Computes the answer; the keyword `compiled` chooses the compiled model or the plain one."""


class Inference:
    """Answers with the model's current weights, with or without the arm's compiler.

    All batches have the size of training, to share one compilation: samples that do not count pad
    the last batch. It is smaller only if the model computes its own loss from labels that cannot
    mark padding. Dropout is off, and no random numbers are drawn.
    """

    def __init__(
        self,
        model: nn.Module,
        precision: MixedPrecision,
        arm: Arm,
        batch_size: int,
        part: RankPart = WHOLE,
        *,
        own_loss: bool,
    ) -> None:
        """`own_loss`: whether the objective needs the model's own. Answers `part` of each batch."""
        self._part = part
        self._model = model
        self._precision = precision
        self._batch_size = batch_size
        self._own_loss = own_loss
        self._replays_graphs = arm.captures_cuda_graphs

        # A separate function does not share the compiled code of training.
        def answer(batch: dict[str, Tensor]) -> Any:
            return model(**batch)

        in_place = arm.scope == "blocks"
        self._compiled: Callable[..., Any] = answer if in_place else make_compiler(arm)(answer)

    def questions(self, split: Split) -> Iterator[Question]:
        """Yields this rank's part of each batch as a question. `split` is on the model's device."""
        self._model.eval()
        try:
            for indices, num_real in self._batches(split):
                answer = partial(self._answer, split, indices, num_real)
                yield Question(indices[:num_real], answer)
        finally:
            self._model.train()

    @torch.no_grad()
    def _answer(self, split: Split, indices: Tensor, num_real: int, *, compiled: bool) -> Answer:
        """The model's answer to the samples at `indices`, of which the first `num_real` count."""
        batch = split.batch(indices, num_real)
        output = self.forward(batch) if compiled else self.forward_uncompiled(batch)
        logits, labels = find_logits(output), batch["labels"]
        if compiled and self._replays_graphs:
            logits = logits.clone()
        logits = logits[:num_real]
        if not self._own_loss:
            output, labels = logits, labels[:num_real]
        targets = split.num_targets[indices[:num_real].cpu()]
        return Answer(output, labels, logits, int(targets.sum()))

    def forward_uncompiled(self, batch: dict[str, Tensor]) -> Any:
        """The model's output without a compiler, in its current mode."""
        # Otherwise blocks that were compiled in place would run compiled here, too.
        with torch.compiler.set_stance("force_eager"), self._precision.autocast():
            return self._model(**batch)

    def forward(self, batch: dict[str, Tensor]) -> Any:
        """The compiled model's output, until the next replay of a captured CUDA graph."""
        if self._replays_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with self._precision.autocast():
            return self._compiled(batch)

    def _batches(self, split: Split) -> Iterator[tuple[Tensor, int]]:
        """Yields indices of samples, and how many of them are not padding. All ranks have equally
        many batches; the last one may be all padding."""
        order = torch.arange(len(split), device=split.labels.device)
        for indices in torch.split(order, self._batch_size):
            size = self._batch_size // self._part.size
            part = indices[self._part.rank * size :][:size]
            num_real = len(part)
            if num_real < size and (split.can_pad or not self._own_loss or not num_real):
                filler = indices[:1].expand(size - num_real)
                part = torch.cat([part, filler])
            yield part, num_real
