"""Dynamo backends with known faults. With this folder on PYTHONPATH torch finds them by name."""

from collections.abc import Callable
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule


def _faithful(graph: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    return make_boxed_func(graph.forward)


def _zeroed(graph: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    def backward(*arguments: Any) -> tuple[Any, ...]:
        gradients = graph(*arguments)
        return tuple(
            torch.zeros_like(gradient) if isinstance(gradient, torch.Tensor) else gradient
            for gradient in gradients
        )

    return make_boxed_func(backward)


zeroed_gradients = aot_autograd(fw_compiler=_faithful, bw_compiler=_zeroed)
"""Runs the model as it is, and tells the optimizer that nothing needs to change."""


def _scaled(graph: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    def backward(*arguments: Any) -> tuple[Any, ...]:
        return tuple(
            1.05 * gradient if isinstance(gradient, torch.Tensor) else gradient
            for gradient in graph(*arguments)
        )

    return make_boxed_func(backward)


scaled_gradients = aot_autograd(fw_compiler=_faithful, bw_compiler=_scaled)
"""Makes every gradient 5 % too large, which Adam, dividing by their size, does not let show."""


def negated_inference(graph: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """Right as long as gradients are wanted; otherwise every answer has the wrong sign."""

    def run(*arguments: Any) -> Any:
        outputs = graph.forward(*arguments)
        if torch.is_grad_enabled():
            return outputs
        return [-o if torch.is_tensor(o) and o.is_floating_point() else o for o in outputs]

    return run
