"""Disables dropout, and tries each dropout on known numbers instead.

While `DropoutProbes` are active, torch's dropout functions return their input, so training drops
nothing. Instead, each function drops known numbers in a trial: ones for dropout; for attention, a
query that attends to only one key, whose value is one. All results are 0 or 1 / (1 - p), whatever
the model computes. The backend compiles each trial in place of its dropout.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

MAX_ELEMENTS = 65_536
"""Most numbers of a trial in one step, which uses as many input samples as fit."""
SILENCED = ("dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
"""Forms of dropout that are disabled, but not tried."""
ATTENTION_LOGIT = 64.0
"""Distance of one key's logit above all others, which then share e^-64 of the attention."""


@dataclass(frozen=True, kw_only=True)
class DropoutPlace:
    """One dropout in a model's forward pass."""

    operation: Literal["dropout", "attention"]
    p: float
    """The share of numbers that it must drop."""


class DropoutProbes:
    """Replaces torch's dropout functions, and counts the numbers that each of them drops.

    First `survey` finds the dropouts of a forward pass. Add `term` to the loss of every step: it is
    0, and its gradient, which reaches only the probes, shows whether the backward pass drops the
    same numbers.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.places: list[DropoutPlace] = []
        self._surveys = False
        self._gates: list[Tensor] = []
        self._found: list[Tensor] = []
        self._terms: list[Tensor] = []
        # Not F.dropout, because a captured graph's code would find the replacement there.
        self._dropout: Callable[..., Tensor] = torch.dropout
        self._attention: Callable[..., Tensor] = F.scaled_dot_product_attention

    @contextmanager
    def active(self) -> Iterator[None]:
        """Replaces the dropout functions."""
        replacements: dict[str, Any] = dict.fromkeys(SILENCED, lambda input, *_, **__: input)
        replacements["dropout"] = self._try_dropout
        replacements["scaled_dot_product_attention"] = self._try_attention
        with mock.patch.multiple(F, **replacements):
            yield

    def survey(self, forward: Callable[[], bool]) -> bool:
        """Finds the dropouts of a forward pass, which draw nothing; returns its result."""
        self._surveys = True
        try:
            return forward()
        finally:
            self._surveys = False
            # Separate leaf tensors, because compilers fail on parts of one tensor.
            self._gates = [
                torch.ones((), device=self._device, requires_grad=True) for _ in self.places
            ]

    def term(self) -> Tensor:
        """The term to add to the loss; called once in each forward pass."""
        terms, self._terms = self._terms, []
        total = torch.stack(terms).sum()
        return total - total.detach()

    def take(self, loss_scale: float) -> Tensor:
        """The draws since the last call, (places, 5), in double precision: count of numbers, count
        of zeros, sum, sum of squares, and the sum of squares according to the gradient.

        Gradients are divided by `loss_scale`.
        """
        found = torch.stack(self._found).double().reshape(-1, len(self.places), 4).sum(0).cpu()
        self._found.clear()
        backward = [0.0 if g.grad is None else g.grad.item() / loss_scale for g in self._gates]
        for gate in self._gates:
            gate.grad = None
        return torch.cat([found, torch.tensor(backward, dtype=torch.float64)[:, None]], dim=1)

    def _try_dropout(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if not training or p == 0:
            return input
        if self._surveys:
            self.places.append(DropoutPlace(operation="dropout", p=p))
            return input
        samples = input[: _num_samples(input)] if input.dim() > 1 else input
        ones = torch.ones_like(samples.detach()) * self._gate().to(input.dtype)
        self._watch(self._dropout(ones, p, True))
        return input

    def _try_attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **rest: Any,
    ) -> Tensor:
        output = self._attention(query, key, value, attn_mask, 0.0, is_causal, **rest)
        if dropout_p == 0:
            return output
        if self._surveys:
            self.places.append(DropoutPlace(operation="attention", p=dropout_p))
            return output
        size = _num_samples(query)
        if attn_mask is not None and attn_mask.dim() == query.dim():
            attn_mask = attn_mask[:size]
        query, key, value = (one[:size].detach() for one in (query, key, value))
        scale = rest.get("scale") or query.shape[-1] ** -0.5
        length = (ATTENTION_LOGIT / scale / query.shape[-1]) ** 0.5
        first = (torch.arange(key.shape[-2], device=key.device) == 0).to(key.dtype)
        ones = torch.ones_like(value) * self._gate().to(value.dtype)
        tried = self._attention(
            torch.full_like(query, length),
            torch.full_like(key, length) * first[:, None],
            ones,
            attn_mask,
            dropout_p,
            is_causal,
            **rest,
        )
        self._watch(tried[..., 0])
        return output

    def _gate(self) -> Tensor:
        """The gate of this place, which separates its gradient from the others."""
        return self._gates[len(self._found) % len(self.places)]

    def _watch(self, drawn: Tensor) -> None:
        forward = drawn.detach().float()
        self._terms.append((drawn.float() * forward).sum())
        zeros = (forward.abs() < 0.5).float().sum()
        tried = torch.full_like(zeros, forward.numel())
        self._found.append(torch.stack([tried, zeros, forward.sum(), forward.square().sum()]))


def _num_samples(tensor: Tensor) -> int:
    """Number of samples, the first dimension, in a trial."""
    return max(1, MAX_ELEMENTS // max(1, tensor[0].numel()))
