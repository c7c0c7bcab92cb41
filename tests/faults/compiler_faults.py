"""More faults of torch's compiler, and backends that go wrong in one place or at one time.

Faults of a stage are contexts, as in `stage_faults.py`; backends are functions.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch._inductor.config as inductor
from torch._dynamo.backends import common, registry
from torch._inductor import lowering
from torch.fx import GraphModule
from torch.optim import sgd

from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.device.device_kinds import CudaDevice
from tests.faults.late_faults import step_switch

aten = torch.ops.aten
Run = Callable[..., Any]


@contextmanager
def wrong_autograd() -> Iterator[None]:
    """AOTAutograd's code returns outputs of forward and backward pass that are 5 % too large."""
    make = common.aot_module_simplified

    def makes(module: Any, inputs: Any, fw_compiler: Any = None, **named: Any) -> Any:
        def wrong(graph: GraphModule, example: Any) -> Any:
            run = fw_compiler(graph, example)

            def larger(*arguments: Any) -> list[Any]:
                outputs = run(*arguments)
                return [_larger(outputs[0]), *outputs[1:]]

            larger._boxed_call = getattr(run, "_boxed_call", False)  # type: ignore[attr-defined]
            return larger

        return make(module, inputs, fw_compiler=wrong, **named)

    with mock.patch.object(common, "aot_module_simplified", makes):
        yield


def _larger(value: Any) -> Any:
    is_number = isinstance(value, torch.Tensor) and value.is_floating_point()
    return 1.05 * value if is_number else value


@contextmanager
def _injected(bug: str) -> Iterator[None]:
    kinds = ("cpp", "triton")
    with inductor.patch({f"{kind}.inject_relu_bug_TESTING_ONLY": bug for kind in kinds}):
        yield


@contextmanager
def greedy_autotuning() -> Iterator[None]:
    """Choosing among kernels of a matrix product takes more memory than any machine has."""
    operator = aten.mm.default
    lower = lowering.lowerings[operator]

    def lowers(*arguments: Any, **named: Any) -> Any:
        if inductor.max_autotune:
            torch.empty(2**50)
        return lower(*arguments, **named)

    with mock.patch.dict(lowering.lowerings, {operator: lowers}):
        yield


def relu_compile_error() -> Any:
    return _injected("compile_error")


def relu_runtime_error() -> Any:
    return _injected("runtime_error")


def relu_wrong() -> Any:
    return _injected("accuracy")


def _wrong_pass(graph: torch.fx.Graph) -> None:
    """Leaves out the bias of every product that has one."""
    for node in graph.find_nodes(op="call_function", target=aten.addmm.default):
        with graph.inserting_before(node):
            product = graph.call_function(aten.mm.default, node.args[1:3])
        product.meta.update(node.meta)
        node.replace_all_uses_with(product)
        graph.erase_node(node)


class _Pass(torch._inductor.custom_graph_pass.CustomGraphPass):
    def __call__(self, graph: torch.fx.Graph) -> None:
        _wrong_pass(graph)

    def uuid(self) -> None:
        return None


@contextmanager
def wrong_post_grad_pass() -> Iterator[None]:
    with inductor.patch({"post_grad_custom_post_pass": _Pass()}):
        yield


@contextmanager
def wrong_joint_pass() -> Iterator[None]:
    with inductor.patch({"joint_custom_post_pass": _Pass()}):
        yield


@contextmanager
def dropped_term() -> Iterator[None]:
    """Inductor's lowering of a sum of two tensors drops the second one."""
    lower = lowering.lowerings[aten.add.Tensor]

    def lowers(a: Any, b: Any, **named: Any) -> Any:
        both = all(hasattr(operand, "get_size") for operand in (a, b))
        same = both and list(a.get_size()) == list(b.get_size())
        return lower(a, 0.0, **named) if same else lower(a, b, **named)

    with mock.patch.dict(lowering.lowerings, {aten.add.Tensor: lowers}):
        yield


@contextmanager
def raising_lowering() -> Iterator[None]:
    """Inductor cannot lower the backward pass of relu."""

    def lowers(*arguments: Any, **named: Any) -> Any:
        raise NotImplementedError("planted: no lowering of le")

    with mock.patch.dict(lowering.lowerings, {aten.le.Scalar: lowers}):
        yield


def late_error(graph: GraphModule, inputs: list[Any]) -> Run:
    """Raises in the step that `BEGINS` names."""
    has_begun = step_switch()

    def run(*arguments: Any) -> Any:
        if has_begun():
            raise RuntimeError("planted: no more workspace")
        return graph.forward(*arguments)

    return run


def late_greed(graph: GraphModule, inputs: list[Any]) -> Run:
    """Takes more memory than any machine has in the step that `BEGINS` names."""
    has_begun = step_switch()

    def run(*arguments: Any) -> Any:
        if has_begun():
            torch.empty(2**50)
        return graph.forward(*arguments)

    return run


def aborting(graph: GraphModule, inputs: list[Any]) -> Run:
    """Ends the process while the graph with relu runs."""
    if not graph.graph.find_nodes(op="call_function", target=torch.relu):
        return graph.forward
    return lambda *arguments: os.abort()


def wrong_relu(graph: GraphModule, inputs: list[Any]) -> Run:
    """Computes gelu instead of relu, in one graph of several."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.relu):
        node.target = torch.nn.functional.gelu
    graph.recompile()
    return graph.forward


def wrong_from_the_13th_call(graph: GraphModule, inputs: list[Any]) -> Run:
    """Returns larger values than the graph computes after 12 calls; a single graph that is tried
    alone is never called so often."""
    calls = itertools.count(1)

    def run(*arguments: Any) -> Any:
        results = graph.forward(*arguments)
        return results if next(calls) <= 12 else tuple(_larger(result) for result in results)

    return run


def rejecting(graph: GraphModule, inputs: list[Any]) -> Run:
    """Has no rule for layer norms."""
    target = torch.nn.functional.layer_norm
    if graph.graph.find_nodes(op="call_function", target=target):
        raise NotImplementedError("planted: layer_norm is not supported")
    return graph.forward


def wrong_with_symbols(graph: GraphModule, inputs: list[Any]) -> Run:
    """Computes something else if a size is a symbol."""
    if not any(isinstance(tensor, torch.SymInt) for tensor in inputs):
        return graph.forward
    return lambda *arguments: tuple(_larger(tensor) for tensor in graph.forward(*arguments))


@contextmanager
def wrong_fused_sgd() -> Iterator[None]:
    """The fused form of SGD takes steps that are 5 % too long, with and without a compiler."""
    update = sgd._fused_sgd

    def updates(*arguments: Any, lr: Any, **named: Any) -> None:
        update(*arguments, lr=1.05 * lr, **named)

    with mock.patch.object(sgd, "_fused_sgd", updates):
        yield


def wrong_foreach(graph: GraphModule, inputs: list[Any]) -> Run:
    """Takes steps that are 5 % too long where an operation updates many weights."""
    for node in graph.graph.find_nodes(op="call_function", target=torch._foreach_add_):
        node.kwargs = {**node.kwargs, "alpha": 1.05 * node.kwargs.get("alpha", 1.0)}
    graph.recompile()
    return graph.forward


def wrong_in_blocks(graph: GraphModule, inputs: list[Any]) -> Run:
    """Computes gelu instead of relu, in a graph with a single layer norm."""
    norms = graph.graph.find_nodes(op="call_function", target=torch.nn.functional.layer_norm)
    return wrong_relu(graph, inputs) if len(norms) == 1 else graph.forward


def _wrong_under(is_set: Callable[[], bool]) -> Callable[[GraphModule, list[Any]], Run]:
    def backend(graph: GraphModule, inputs: list[Any]) -> Run:
        return wrong_relu(graph, inputs) if is_set() else graph.forward

    return backend


wrong_with_tf32 = _wrong_under(lambda: torch.backends.cuda.matmul.allow_tf32)
wrong_with_coarse_attention = _wrong_under(torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed)


@contextmanager
def coarse_device() -> Iterator[None]:
    """Every device has the switches for reduced precision of a GPU."""
    names = ("allow_tf32", "reduce_math_attention")
    switches = {name: getattr(CudaDevice, name) for name in names}
    with mock.patch.multiple(Device, **switches):
        yield


@contextmanager
def wrong_relu_behind_another_error() -> Iterator[None]:
    """Inductor computes relu wrongly, and the stage before has another fault."""

    def rejects(*arguments: Any, **named: Any) -> Any:
        raise ValueError("planted: no backend of this kind today")

    rejects._tags = ()  # type: ignore[attr-defined]
    known = registry._COMPILER_FNS
    with mock.patch.dict(known, {"aot_eager": rejects}), relu_wrong():
        yield
