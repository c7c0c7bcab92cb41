"""Backends of Dynamo with a fault each, registered by the names of their functions."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd

Run = Callable[..., Any]
Graph = Any
LATE = 8
"""Calls of `fails_late` that are right."""


def _is_fraction(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _first(outputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    first, *others = outputs
    return (change(first), *others)


def _with_backward(graph: Graph, inputs: Sequence[Any], backward: Callable[[Graph], Run]) -> Any:
    def boxed(run: Run) -> Run:
        def call(arguments: list[Any]) -> Any:
            return run(*arguments)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    compiler = aot_autograd(
        fw_compiler=lambda part, _: boxed(part), bw_compiler=lambda part, _: boxed(backward(part))
    )
    return compiler(graph, inputs)


@register_backend
def right(graph: Graph, inputs: Any) -> Run:
    return graph.forward


@register_backend
def wrong_value(graph: Graph, inputs: Any) -> Run:
    return lambda *args: _first(graph(*args), lambda output: output * 1.001)


@register_backend
def wrong_dtype(graph: Graph, inputs: Any) -> Run:
    return lambda *args: _first(graph(*args), lambda output: output.double())


@register_backend
def not_a_number(graph: Graph, inputs: Any) -> Run:
    return lambda *args: _first(graph(*args), lambda output: output * float("nan"))


@register_backend
def wrong_gradient(graph: Graph, inputs: Any) -> Run:
    def scaled(part: Graph) -> Run:
        return lambda *args: [
            gradient * 1.001 if _is_fraction(gradient) else gradient for gradient in part(*args)
        ]

    return _with_backward(graph, inputs, scaled)


@register_backend
def wrong_at_third_call(graph: Graph, inputs: Any) -> Run:
    calls = []

    def run(*args: Any) -> Any:
        calls.append(1)
        return _first(graph(*args), lambda output: output + 0.01 * (len(calls) > 2))

    return run


@register_backend
def raises_while_compiling(graph: Graph, inputs: Any) -> Run:
    raise RuntimeError("planted")


@register_backend
def hangs_while_compiling(graph: Graph, inputs: Any) -> Run:
    time.sleep(1_000)
    raise AssertionError


@register_backend
def stopped_while_compiling(graph: Graph, inputs: Any) -> Run:
    raise KeyboardInterrupt


@register_backend
def raises_at_run(graph: Graph, inputs: Any) -> Run:
    def run(*args: Any) -> Any:
        raise RuntimeError("planted")

    return run


@register_backend
def lacks_memory(graph: Graph, inputs: Any) -> Run:
    def run(*args: Any) -> Any:
        graph(*args)
        raise torch.OutOfMemoryError("planted")

    return run


@register_backend
def raises_in_backward(graph: Graph, inputs: Any) -> Run:
    return _with_backward(graph, inputs, lambda part: raises_at_run(part, None))


@register_backend
def fails_late(graph: Graph, inputs: Any) -> Run:
    calls = []

    def run(*args: Any) -> Any:
        outputs = graph(*args)
        calls.append(1)
        if len(calls) > LATE:
            raise RuntimeError("planted")
        return outputs

    return run


@register_backend
def forgets_buffers(graph: Graph, inputs: Any) -> Run:
    def run(*args: Any) -> Any:
        buffers = [arg for arg in args if isinstance(arg, Tensor) and not arg.requires_grad]
        kept = [buffer.clone() for buffer in buffers]
        outputs = graph(*args)
        for buffer, before in zip(buffers, kept, strict=True):
            buffer.data.copy_(before)
        return outputs

    return run


@register_backend
def writes_weights(graph: Graph, inputs: Any) -> Run:
    def run(*args: Any) -> Any:
        outputs = graph(*args)
        for arg in args:
            if isinstance(arg, nn.Parameter):
                arg.data.mul_(1.5)
        return outputs

    return run


@register_backend
def keeps_first_weights(graph: Graph, inputs: Any) -> Run:
    kept: dict[int, Tensor] = {}

    def old(place: int, arg: Any) -> Any:
        if not isinstance(arg, nn.Parameter):
            return arg
        before = kept.setdefault(place, arg.detach().clone())
        return arg + (before - arg).detach()

    return lambda *args: graph(*[old(place, arg) for place, arg in enumerate(args)])


@register_backend
def draws_once_more(graph: Graph, inputs: Any) -> Run:
    def run(*args: Any) -> Any:
        outputs = graph(*args)
        torch.rand(1)
        return outputs

    return run


@register_backend
def drops_others(graph: Graph, inputs: Any) -> Run:
    def run(*args: Any) -> Any:
        with torch.random.fork_rng():
            torch.manual_seed(7)
            outputs = graph(*args)
        # Moves the generator on as the model does, and nothing else.
        graph(*[arg.clone() if isinstance(arg, Tensor) else arg for arg in args])
        return outputs

    return run
