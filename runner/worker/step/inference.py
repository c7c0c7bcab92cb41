"""A split's samples through the model, batch by batch, in their order."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from breakeven.runner.specs.variants import Variant
from breakeven.runner.worker.compiler.compiling import make_compiler
from breakeven.runner.worker.data.splits import WHOLE, RankPart, Split
from breakeven.runner.worker.model.losses import logits_of
from breakeven.runner.worker.step.stepping import MixedPrecision


class Answer(NamedTuple):
    """What the model says of one batch, fillers left out wherever they would count."""

    output: Any
    """What an objective takes, together with `labels`."""
    labels: Tensor
    logits: Tensor
    """Of the samples that are no fillers."""
    num_targets: int


class Question(NamedTuple):
    """A batch of a split, which the model may answer several times."""

    samples: Tensor
    """Their places in the split, without fillers."""
    answer: Callable[..., Answer]
    """The model's answer; `compiled`, a keyword: under its compiler or without one."""


class Inference:
    """The weights as they are, under the variant's compiled model or without a compiler.

    Every batch has the size of the training's, so that one compilation serves all: the last one is
    filled up with samples that do not count. Only for a model that computes its own loss from
    labels which cannot say so, the last batch is smaller. The random state of training is not
    touched: dropout is off and nothing is drawn.
    """

    def __init__(
        self,
        model: nn.Module,
        precision: MixedPrecision,
        variant: Variant,
        batch_size: int,
        part: RankPart = WHOLE,
        *,
        own_loss: bool,
    ) -> None:
        """`own_loss` says that the objective needs the loss that the model itself computes. Of
        every batch only `part` is answered."""
        self._part = part
        self._model = model
        self._precision = precision
        self._batch_size = batch_size
        self._own_loss = own_loss
        self._replays_graphs = variant.captures_cuda_graphs

        # A function of its own: the compiler keeps its code apart from that of training.
        def answer(batch: dict[str, Tensor]) -> Any:
            return model(**batch)

        in_place = variant.scope == "blocks"
        self._compiled: Callable[..., Any] = answer if in_place else make_compiler(variant)(answer)

    def questions(self, split: Split) -> Iterator[Question]:
        """One per batch, of this rank's part of it. `split` is on the model's device."""
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
        logits, labels = logits_of(output), batch["labels"]
        if compiled and self._replays_graphs:
            logits = logits.clone()
        logits = logits[:num_real]
        if not self._own_loss:
            output, labels = logits, labels[:num_real]
        targets = split.num_targets[indices[:num_real].cpu()]
        return Answer(output, labels, logits, int(targets.sum()))

    def forward_uncompiled(self, batch: dict[str, Tensor]) -> Any:
        """What the model says of a batch without a compiler, in the mode that it is in."""
        # Blocks that were compiled in place would otherwise run compiled here, too.
        with torch.compiler.set_stance("force_eager"), self._precision.autocast():
            return self._model(**batch)

    def forward(self, batch: dict[str, Tensor]) -> Any:
        """What the variant's compiled model says of a batch, in the mode that the model is in.

        A captured CUDA graph overwrites its outputs at the next replay.
        """
        if self._replays_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with self._precision.autocast():
            return self._compiled(batch)

    def _batches(self, split: Split) -> Iterator[tuple[Tensor, int]]:
        """Indices of samples, of which so many are no fillers. Every rank has as many batches as
        the others, a last one without any sample of its own included."""
        order = torch.arange(len(split), device=split.labels.device)
        for indices in torch.split(order, self._batch_size):
            size = self._batch_size // self._part.size
            mine = indices[self._part.rank * size :][:size]
            num_real = len(mine)
            if num_real < size and (split.can_pad or not self._own_loss or not num_real):
                filler = indices[:1].expand(size - num_real)
                mine = torch.cat([mine, filler])
            yield mine, num_real
