"""What every layer of a model puts out, under a compiler as well.

Forward hooks are set before anything is compiled, so that Dynamo traces them with the layers: each
output becomes one of the graph's own. That makes it another graph. What is an output has to be
written to memory, so kernels that were one are apart, and a fault of their fusion may not come.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from breakeven.runner.worker.accuracy.names import Name, Outcome

MAX_LAYERS = 100
MAX_ELEMENTS = 2**17
"""Of each output that are kept, drawn once for all of its size; 1 MB in double precision."""
SEED = 15


class LayerOutputs:
    """Keeps what the layers of a model put out, in the order in which they were done."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, Tensor]] = []

    @contextmanager
    def of(self, model: nn.Module) -> Iterator[None]:
        """Watches a model; what was kept of another one before is forgotten."""
        self._kept = []
        handles = [
            layer.register_forward_hook(_keeper(self._kept, name))
            for name, layer in watched(model).items()
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def take(self) -> Outcome:
        """By layer; a layer that was called again has its number behind its name."""
        calls: dict[str, int] = {}
        found: Outcome = {}
        for layer, output in self._kept:
            calls[layer] = calls.get(layer, 0) + 1
            title = layer if calls[layer] == 1 else f"{layer} (call {calls[layer]})"
            found[Name("activation", title)] = _sampled(output)
        self._kept.clear()
        return found


def watched(model: nn.Module) -> dict[str, nn.Module]:
    """The layers whose outputs are kept, by name: whole levels of the model from the outside in, so
    that equal blocks are treated alike, as long as there are not more than `MAX_LAYERS`."""
    levels: dict[int, dict[str, nn.Module]] = {}
    for name, layer in model.named_modules():
        # A list is never called, and the others hand on what they are given.
        if name and not isinstance(layer, (nn.ModuleList, nn.ModuleDict, _DropoutNd, nn.Identity)):
            levels.setdefault(name.count("."), {})[name] = layer
    found: dict[str, nn.Module] = {}
    for _, layers in sorted(levels.items()):
        if len(found) + len(layers) > MAX_LAYERS:
            break
        found |= layers
    return found


def _keeper(kept: list[tuple[str, Tensor]], name: str) -> Callable[..., None]:
    def keep(layer: nn.Module, arguments: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) and len(output) > 0 else output
        if isinstance(first, Tensor) and first.is_floating_point():
            kept.append((name, first.detach()))

    return keep


def _sampled(output: Tensor) -> Tensor:
    flat = output.flatten()
    if len(flat) <= MAX_ELEMENTS:
        return flat.clone()
    generator = torch.Generator().manual_seed(SEED)
    places = torch.randint(len(flat), (MAX_ELEMENTS,), generator=generator)
    return flat[places.to(flat.device)]
