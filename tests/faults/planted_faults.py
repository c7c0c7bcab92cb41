"""Dynamo backends with known faults. With this folder on PYTHONPATH torch finds them by name. Each
does what eager does except for one fault, of a kind that compilers and their authors make. Names
that Dynamo gives distinguish placeholders; they tell where a tensor comes from."""

from collections.abc import Callable
from typing import Any, cast

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule

Run = Callable[..., Any]
RARELY = 20
"""The period in steps of an intermittent fault, which first occurs at this step."""
WRONG_EPSILON = 1e-3
"""The number that another framework adds to a variance; BERT's is 1e-12, and torch's default
1e-5."""


def _faithful(graph: GraphModule, inputs: list[Any]) -> Run:
    return cast(Run, make_boxed_func(graph.forward))


def _zeroed(graph: GraphModule, inputs: list[Any]) -> Run:
    def backward(*arguments: Any) -> tuple[Any, ...]:
        gradients = graph(*arguments)
        return tuple(
            torch.zeros_like(gradient) if isinstance(gradient, torch.Tensor) else gradient
            for gradient in gradients
        )

    return cast(Run, make_boxed_func(backward))


zeroed_gradients = aot_autograd(fw_compiler=_faithful, bw_compiler=_zeroed)
"""Runs the model as it is, and tells the optimizer that nothing has to change."""


def _scaled(graph: GraphModule, inputs: list[Any]) -> Run:
    def backward(*arguments: Any) -> tuple[Any, ...]:
        return tuple(
            1.05 * gradient if isinstance(gradient, torch.Tensor) else gradient
            for gradient in graph(*arguments)
        )

    return cast(Run, make_boxed_func(backward))


scaled_gradients = aot_autograd(fw_compiler=_faithful, bw_compiler=_scaled)
"""Makes every gradient 5 % too large; Adam, which divides by their size, hides it."""


def negated_inference(graph: GraphModule, inputs: list[Any]) -> Run:
    """Correct while gradients are computed; otherwise every answer has the wrong sign."""

    def run(*arguments: Any) -> Any:
        outputs = graph.forward(*arguments)
        if torch.is_grad_enabled():
            return outputs
        return [-o if torch.is_tensor(o) and o.is_floating_point() else o for o in outputs]

    return run


def dead_layer(graph: GraphModule, inputs: list[Any]) -> Run:
    """The weights of the first of the repeated blocks get no gradients."""
    dead = _places(graph, "modules_0_")

    def run(*arguments: Any) -> Any:
        return graph.forward(*(a.detach() if i in dead else a for i, a in enumerate(arguments)))

    return run


def stale_batch(graph: GraphModule, inputs: list[Any]) -> Run:
    """Trains now and then on the previous batch again."""
    fed = _places(graph, "l_batch_")
    before: list[Any] = []
    num_calls = 0

    def run(*arguments: Any) -> Any:
        nonlocal before, num_calls
        given = list(arguments)
        if num_calls and num_calls % RARELY == 0 and torch.is_grad_enabled():
            given = [before[i] if i in fed else a for i, a in enumerate(given)]
        before = [a.clone() if i in fed else None for i, a in enumerate(arguments)]
        num_calls += 1
        return graph.forward(*given)

    return run


def skipped_update(graph: GraphModule, inputs: list[Any]) -> Run:
    """Leaves weights and the optimizer's state unchanged now and then."""
    if not _places(graph, "param_groups"):
        return graph.forward
    state = [*graph.parameters(), *graph.buffers()]
    num_calls = 0

    def run(*arguments: Any) -> Any:
        nonlocal num_calls
        skips = num_calls and num_calls % RARELY == 0
        num_calls += 1
        kept = [tensor.detach().clone() for tensor in state]
        outputs = graph.forward(*arguments)
        if skips:
            with torch.no_grad():
                for tensor, old in zip(state, kept, strict=True):
                    tensor.copy_(old)
        return outputs

    return run


def silent_bfloat16(graph: GraphModule, inputs: list[Any]) -> Run:
    """Rounds the inputs of every linear layer to bfloat16, like a compiler that assumes a lower
    precision is allowed."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.nn.functional.linear):
        with graph.graph.inserting_before(node):
            halves = [graph.graph.call_method("bfloat16", (given,)) for given in node.args[:2]]
            rounded = [graph.graph.call_method("float", (half,)) for half in halves]
        node.args = (*rounded, *node.args[2:])
    graph.recompile()
    return graph.forward


def wrong_epsilon(graph: GraphModule, inputs: list[Any]) -> Run:
    """Adds too much to the variance in every layer norm."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.nn.functional.layer_norm):
        node.args = (*node.args[:4], WRONG_EPSILON)
    graph.recompile()
    return graph.forward


def _places(graph: GraphModule, name: str) -> set[int]:
    """The arguments of a graph whose names contain `name`."""
    placeholders = graph.graph.find_nodes(op="placeholder")
    return {index for index, node in enumerate(placeholders) if name in node.name}


def wrong_in_one_layer(graph: GraphModule, inputs: list[Any]) -> Run:
    """Makes the outputs of GELU 5 % too large in the second of the repeated blocks."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.nn.functional.gelu):
        if ".1." not in str(node.meta["nn_module_stack"]):
            continue
        with graph.graph.inserting_after(node):
            wrong = graph.graph.call_function(torch.mul, (node, 1.05))
        node.replace_all_uses_with(wrong, delete_user_cb=lambda user, new=wrong: user is not new)
    graph.recompile()
    return graph.forward
