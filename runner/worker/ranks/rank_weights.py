"""Says in a few numbers which weights a rank has after a block, so that ranks can be compared.

Ranks that train copies of one model, as under DistributedDataParallel, must have the same weights,
bit for bit. Which ranks that are, the training without a compiler shows.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from breakeven.runner.worker.data.splits import own_part

WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers by the bytes of an element."""


@torch.no_grad()
def describe_weights(tensors: Iterable[Tensor]) -> dict[str, Any]:
    """Fields of a `rank_block`: hashes of the tensors that the rank has as a whole, and of its
    parts of tensors that ranks share; the root of the sum of all squares. Each of the
    elements is read on its device, which sends three numbers."""
    sums: dict[bool, list[Tensor]] = {True: [], False: []}
    squares: list[Tensor] = []
    for tensor in {id(tensor): tensor for tensor in tensors}.values():
        part = own_part(tensor).detach()
        if is_lazy(tensor) or type(part) not in (Tensor, torch.nn.Parameter):
            continue  # A tensor of a library's own kind may not know these operations.
        if part.is_complex():
            part = torch.view_as_real(part)
        placements = getattr(tensor, "placements", ())
        is_whole = all(placement.is_replicate() for placement in placements)
        sums[is_whole].append(part.view(WORDS[part.element_size()]).sum(dtype=torch.int64))
        if part.is_floating_point() and part.element_size() > 1:
            squares.append(torch.linalg.vector_norm(part, dtype=torch.float32))
    fields: dict[str, Any] = {
        "weights_sha256": _hashed(sums[True]),
        "shards_sha256": _hashed(sums[False]),
    }
    if squares:
        on_one = torch.stack([number.to(squares[0].device) for number in squares])
        fields["weights_size"] = torch.linalg.vector_norm(on_one).item()
    return fields


def _hashed(sums: list[Tensor]) -> str | None:
    """A hash of the sums of the bits of each tensor; None without any. Waits once."""
    if not sums:
        return None
    numbers = torch.stack([total.to(sums[0].device) for total in sums]).tolist()
    return hashlib.sha256(repr(numbers).encode()).hexdigest()[:16]
