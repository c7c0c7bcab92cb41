"""How often each layer of torch's compile cache was hit, missed and passed by in this process."""

from pathlib import Path

from torch._dynamo.utils import counters
from torch._inductor.runtime.cache_dir_utils import triton_cache_dir

COUNTERS = {
    "fx_graph": ("inductor", "fxgraph_cache_hit", "fxgraph_cache_miss", "fxgraph_cache_bypass"),
    "aot_autograd": (
        "aot_autograd", "autograd_cache_hit", "autograd_cache_miss", "autograd_cache_bypass"
    ),
}  # fmt: skip
"""Layer to the group and names of torch's counters of hits, misses, bypasses."""
CAME_COMPILED = "triton_bundler_load_static_autotuner"
"""Torch's counter of Triton kernels that came, compiled, with a graph from its cache."""
BINARIES = ("*/*.cubin", "*/*.hsaco")
"""What Triton leaves of a kernel in its cache, by CUDA and by ROCm."""

Layers = dict[str, dict[str, int]]
"""Layer to how many look-ups were a `hit`, a `miss` or a `bypass`."""


class CompileCaches:
    """Counts from the making of this object on."""

    def __init__(self) -> None:
        self._kernels_before = _compiled_kernels()

    def counts(self) -> Layers:
        """Of every layer of which something was counted."""
        found = {
            layer: {
                outcome: counters[group][name]
                for outcome, name in zip(("hit", "miss", "bypass"), names, strict=True)
            }
            for layer, (group, *names) in COUNTERS.items()
        }
        # Torch counts no misses of Triton: what it calls so is how often a kernel was asked for.
        found["triton"] = {
            "hit": counters["inductor"][CAME_COMPILED],
            "miss": len(_compiled_kernels() - self._kernels_before),
            "bypass": 0,
        }
        return {layer: counts for layer, counts in found.items() if any(counts.values())}


def _compiled_kernels() -> set[Path]:
    folder = Path(triton_cache_dir(0))
    return {file for pattern in BINARIES for file in folder.glob(pattern)}
