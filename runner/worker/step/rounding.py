"""A forward pass in which every operation rounds otherwise, as another right compiler's would.

How far answers move then is how far rounding alone moves them: of this model, with these weights,
on these samples. Nothing of the model is changed, and none of its random numbers is drawn.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

CONTRACTIONS = ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "linear", "convolution")
"""Operations that add up many products."""
CONTRACTION_ULPS = 4
"""Units in the last place by which sums of products in another order differ, in float32. What is
rounded to 16 bits was added up in float32."""
TF32_STEP = 2.0**-10
WHOLE_BELOW = 64
"""Whole numbers below this are masks, positions or zeros: exact, however they are computed."""


class RoundedOtherwise(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Moves each number that an operation of torch puts out by one unit in its last place, up, down
    or not at all; sums of products by as much as another order of adding may."""

    def __init__(self, seed: int, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator(device).manual_seed(seed)
        self._is_tf32 = torch.get_float32_matmul_precision() != "highest"

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        outputs = func(*args, **(kwargs or {}))
        is_new = all(one.alias_info is None for one in func._schema.returns)
        if func.namespace != "aten" or not is_new or not any(map(_has_fraction, tree_leaves(args))):
            return outputs
        name = func.overloadpacket.__name__
        adds_up = name in CONTRACTIONS or name.startswith("_scaled_dot_product")
        return tree_map_only(Tensor, lambda output: self._moved(output, adds_up), outputs)

    def _moved(self, output: Tensor, adds_up: bool) -> Tensor:
        if not _has_fraction(output) or not output.numel():
            return output
        step = torch.finfo(output.dtype).eps
        if adds_up and output.element_size() >= 4:
            step = max(CONTRACTION_ULPS * step, TF32_STEP if self._is_tf32 else 0.0)
        way = torch.randint(-1, 2, output.shape, generator=self._generator, device=output.device)
        moved = output * (1 + step * way).to(output.dtype)
        is_exact = (output == output.round()) & (output.abs() < WHOLE_BELOW)
        return torch.where(is_exact | ~moved.isfinite(), output, moved)


def _has_fraction(value: Any) -> bool:
    """Tensors of other kinds, such as those that several devices share, are left alone."""
    return type(value) in (Tensor, torch.nn.Parameter) and value.is_floating_point()
