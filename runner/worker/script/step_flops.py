"""Floating-point operations of a step that nobody here knows, counted while the script makes it.

Every operation that torch carries out is looked at, in one step of a run without a compiler, in a
block that counts in no timing. Counted is what `torch.utils.flop_counter` counts: matrix products,
convolutions and attention, an addition and a multiplication as two. Attention in one kernel counts
as the matrix products that it stands for, backwards twice as many as forwards, as Breakeven's own
tasks count it.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils.flop_counter import flop_registry

KNOWN_NAMESPACES = ("aten", "prim", "prims", "profiler")
"""Others are a library's own kernels: what they compute only they know."""
HEAVY = {"mm", "bmm", "addmm", "addbmm", "baddbmm", "mv", "addmv", "conv1d", "conv2d", "conv3d",
         "convolution", "linear", "rnn", "lstm", "gru", "attention", "fft", "linalg"}  # fmt: skip
"""Words in the names of operations that compute much, whether or not anything counts them."""
LIGHT = {"linalg_vector_norm", "linalg_cross", "_thnn_fused_lstm_cell",
         "_thnn_fused_lstm_cell_backward_impl", "_thnn_fused_gru_cell",
         "_thnn_fused_gru_cell_backward"}  # fmt: skip
"""Names with such a word of operations that compute little."""
FUSED_ATTENTION = "_scaled_dot_product_"


class StepFlops(TorchDispatchMode):
    """Counts from `begin` to `end`; changes nothing of what is computed."""

    supports_higher_order_operators = True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """So that what a library compiles for itself is compiled meanwhile, too."""
        return True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._total = 0
        self.uncounted: set[str] = set()
        """Operations that compute much, and whose count nobody knows."""
        self._is_paused = False
        self._is_counting = False

    @property
    def is_counting(self) -> bool:
        return self._is_counting

    @property
    def flops(self) -> int | None:
        """None if some could not be counted."""
        return None if self.uncounted else self._total

    def begin(self) -> None:
        self._is_counting = True
        self.__enter__()  # type: ignore[no-untyped-call]

    def pause(self, is_paused: bool) -> None:
        """What is done meanwhile is no part of the step, such as an evaluation."""
        self._is_paused = is_paused

    def end(self) -> None:
        """Nothing if it counts no more."""
        if not self._is_counting:
            return
        self._is_counting = False
        if _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        else:  # the script began something of the kind in the step, and has not ended it
            self._is_paused = True
            self.uncounted.add("a mode of torch's that spans steps")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self._is_paused:
            # Whatever is odd about an operation is no reason to end the script.
            try:
                self._count(func, args, kwargs or {}, result)
            except Exception:
                self.uncounted.add(str(func))
        return result

    def _count(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        packet = getattr(func, "_overloadpacket", func)
        name = getattr(packet, "__name__", str(packet))
        if name.startswith(FUSED_ATTENTION):
            is_backward = "_backward" in name
            query, key, value = args[1:4] if is_backward else args[:3]
            self._total += _attention(query, key, value) * (2 if is_backward else 1)
        elif packet in flop_registry:
            self._total += flop_registry[packet](*args, **kwargs, out_val=result)
        elif _is_heavy(func, name):
            self.uncounted.add(name)


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> int:
    """Of both products, by each query with each key; (batch, heads, length, width)."""
    *many, queries, width = query.shape
    pairs = torch.Size(many).numel() * queries * key.shape[-2]
    return 2 * pairs * (width + value.shape[-1])


def _is_heavy(func: Any, name: str) -> bool:
    namespace = getattr(func, "namespace", None)
    if namespace not in KNOWN_NAMESPACES:
        return True
    return name not in LIGHT and not HEAVY.isdisjoint(name.strip("_").split("_"))
