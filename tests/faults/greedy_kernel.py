"""A Triton kernel that needs more shared memory than any GPU has."""

import torch
import triton
import triton.language as tl

SIZE = 512


@triton.jit
def product(x, y, out, SIZE: tl.constexpr):
    places = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(out + places, tl.dot(tl.load(x + places), tl.load(y + places)))


def fail() -> None:
    """Raises Triton's error for a lack of shared memory."""
    x = torch.ones(SIZE, SIZE, device="cuda", dtype=torch.float16)
    out = torch.empty(SIZE, SIZE, device="cuda", dtype=torch.float32)
    product[1,](x, x, out, SIZE)
