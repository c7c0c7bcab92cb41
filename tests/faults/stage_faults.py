"""Faults planted in torch's own compiler, each in one stage, while a context is open. The backends
stay torch's: Dynamo's graph changes, or AOTAutograd's result, a decomposition, a lowering of
Inductor, or the choices of autotuning. A fault of a stage affects every rung above it, too."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch._inductor.config
from torch._dynamo.backends import common
from torch._dynamo.output_graph import OutputGraph
from torch._inductor import compile_fx, lowering
from torch.fx import GraphModule

PAUSE_SECONDS = 0.01
"""Much longer than a step of the network."""
WRONG_EPSILON = 1e-2


@contextmanager
def wrong_capture() -> Iterator[None]:
    """Dynamo captures layer norms with another epsilon than the model's."""
    call = OutputGraph.call_user_compiler

    def calls(self: OutputGraph, graph: GraphModule, *rest: Any) -> Any:
        for node in graph.graph.find_nodes(
            op="call_function", target=torch.nn.functional.layer_norm
        ):
            node.args = (*node.args[:4], WRONG_EPSILON)
        graph.recompile()
        return call(self, graph, *rest)

    with mock.patch.object(OutputGraph, "call_user_compiler", calls):
        yield


@contextmanager
def slow_aot() -> Iterator[None]:
    """AOTAutograd's compiled graph waits before each of its calls."""
    make = common.aot_module_simplified

    def makes(*arguments: Any, **named: Any) -> Callable[..., Any]:
        compiled = make(*arguments, **named)

        def slowly(*inputs: Any) -> Any:
            time.sleep(PAUSE_SECONDS)
            return compiled(*inputs)

        return slowly

    with mock.patch.object(common, "aot_module_simplified", makes):
        yield


@contextmanager
def wrong_decomposition() -> Iterator[None]:
    """The gradient of relu is decomposed into the gradient of the identity."""
    select = compile_fx.select_decomp_table

    def selects(*arguments: Any) -> dict[Any, Any]:
        table = dict(select(*arguments))
        relu_backward = torch.ops.aten.threshold_backward.default
        table[relu_backward] = lambda gradient, x, threshold: gradient.clone()
        return table

    with mock.patch.object(compile_fx, "select_decomp_table", selects):
        yield


@contextmanager
def missing_lowering() -> Iterator[None]:
    """Inductor cannot lower a square root."""
    with _lowered(torch.ops.aten.rsqrt.default, lambda: True):
        yield


@contextmanager
def failing_autotuning() -> Iterator[None]:
    """Inductor cannot lower a matrix product once it is to choose among several kernels."""
    with _lowered(torch.ops.aten.mm.default, lambda: torch._inductor.config.max_autotune):
        yield


@contextmanager
def _lowered(operator: Any, fails: Callable[[], bool]) -> Iterator[None]:
    lower = lowering.lowerings[operator]

    def lowers(*arguments: Any, **named: Any) -> Any:
        if fails():
            raise NotImplementedError(f"planted: no lowering of {operator}")
        return lower(*arguments, **named)

    with mock.patch.dict(lowering.lowerings, {operator: lowers}):
        yield


FAULTS: dict[str, tuple[str, str, Callable[[], Any]]] = {
    "eager": ("differs", "Dynamo", wrong_capture),
    "aot_eager": ("loses", "AOTAutograd", slow_aot),
    "aot_eager_decomp_partition": ("differs", "decompositions", wrong_decomposition),
    "inductor": ("fails", "Inductor", missing_lowering),
    "inductor-max-autotune-no-cudagraphs": ("fails", "autotuning", failing_autotuning),
}
"""By the label of the lowest rung with the fault: how it shows, its stage, and what plants it."""
