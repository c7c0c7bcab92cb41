"""Counts the shapes of what a script's models get while they train, and the padding in it.

A new shape may cost a compilation or another recorded CUDA graph, and padding costs work.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Shapes = tuple[torch.Size, ...]
MAX_KNOWN = 10_000
"""Different shapes of a model's inputs that are kept; further ones are not told apart."""
MAX_NAMED = 4
"""Dimensions that the record names."""


class InputShapes:
    """Counts the shapes of the tensors in each training call of a model."""

    def __init__(self) -> None:
        self._counts: dict[nn.Module | None, Counter[Shapes]] = {}
        self._names: dict[nn.Module | None, list[str]] = {}
        """What the first call of each model calls its arguments."""
        self._last_new: dict[nn.Module | None, int] = {}
        """The call of each model that had the last new shape."""
        self._num_tokens = self._num_padding = 0

    def add(self, model: nn.Module | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Counts a call of a model, None for a function; reads no number of a tensor."""
        shapes = tuple([tensor.shape for tensor in _tensors((*args, *kwargs.values()))])
        counts = self._counts.get(model)
        if counts is None:
            counts = self._counts[model] = Counter()
            self._names[model] = _names(args, kwargs)
        if shapes in counts or len(counts) < MAX_KNOWN:
            counts[shapes] += 1
            if counts[shapes] == 1:
                self._last_new[model] = counts.total()

    def count_padding(
        self, model: nn.Module | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Counts the padding tokens of a call: what its attention mask leaves out, or the tokens
        that an embedding of the model takes for padding. Waits for the device."""
        mask = kwargs.get("attention_mask")
        if isinstance(mask, Tensor) and mask.ndim == 2:
            is_padding = mask == 0
        else:
            given = _tensors((*args, *kwargs.values()))
            tokens = next((tensor for tensor in given if _are_tokens(tensor)), None)
            marks = set(_padding_marks(model))
            if tokens is None or len(marks) != 1:
                return
            is_padding = tokens == marks.pop()
        self._num_tokens += is_padding.numel()
        self._num_padding += int(is_padding.sum())

    @property
    def padding_share(self) -> float | None:
        """Share of padding among the counted tokens; None if it is unknown."""
        return self._num_padding / self._num_tokens if self._num_tokens else None

    def summary(self) -> dict[str, Any] | None:
        """The journal's record of the model with the most shapes; None without a call."""
        if not self._counts:
            return None
        model, counts = max(self._counts.items(), key=lambda entry: len(entry[1]))
        return {
            "distinct": len(counts),
            "calls": counts.total(),
            "most_common": counts.most_common(1)[0][1],
            "last_new": self._last_new[model],
            "varying": _varying(counts, self._names[model])[:MAX_NAMED],
        }


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """Tensors among values, and in lists and dictionaries there."""
    tensors: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            tensors += _tensors(value)
        elif isinstance(value, Mapping):
            tensors += _tensors(value.values())
    return tensors


def _names(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """The name of the argument that holds each of `_tensors`."""
    by_place = {f"argument {place}": value for place, value in enumerate(args, 1)}
    return [name for name, value in (by_place | kwargs).items() for _ in _tensors([value])]


def _are_tokens(value: Tensor) -> bool:
    return value.ndim == 2 and value.dtype in (torch.int32, torch.int64)


def _padding_marks(model: nn.Module | None) -> Iterator[int]:
    for module in () if model is None else model.modules():
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            yield module.padding_idx


def _varying(counts: Counter[Shapes], names: list[str]) -> list[dict[str, Any]]:
    """The dimensions that have several sizes, those with the most sizes first; of several that
    always have the same size, the first."""
    usual = counts.most_common(1)[0][0]
    alike = [shapes for shapes in counts if [*map(len, shapes)] == [*map(len, usual)]]
    rows: dict[tuple[int, ...], dict[str, Any]] = {}
    for place, name in enumerate(names[: len(usual)]):
        for dimension in range(len(usual[place])):
            sizes = tuple(shapes[place][dimension] for shapes in alike)
            if (number := len(set(sizes))) > 1 and sizes not in rows:
                rows[sizes] = {
                    "input": name,
                    "dimension": dimension,
                    "sizes": number,
                    "least": min(sizes),
                    "most": max(sizes),
                }
    return sorted(rows.values(), key=lambda row: -row["sizes"])
