"""Dynamo backends that draw random numbers of their own, right ones and wrong ones.

`own_numbers` is right: each of its steps draws one number more than eager's, so that every mask of
dropout is another one. `own_numbers_decomposed` is right, too, and rounds otherwise: it computes by
simpler operations. The others are wrong in what they make of dropout, or are a fault of
`planted_faults` or `late_faults` under other numbers.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor
from torch._dynamo.backends.registry import lookup_backend
from torch.fx import GraphModule, Node

from tests.faults import late_faults, planted_faults
from tests.faults.late_faults import LATE_FAULTS, step_switch

Run = Callable[..., Any]
Backend = Callable[[GraphModule, list[Any]], Run]
WRONG_LAYER = 2
"""Position of the only wrong dropout, if only one is wrong."""
DROPOUTS = (torch.nn.functional.dropout, torch.dropout)
P_ARGUMENTS: dict[Any, tuple[int, str]] = {
    **dict.fromkeys(DROPOUTS, (1, "p")),
    torch.nn.functional.scaled_dot_product_attention: (4, "dropout_p"),
}
"""Position and name of the argument with the share of dropped values."""


def with_own_numbers(backend: Backend) -> Backend:
    """The same backend, with a number drawn before each of its graphs runs."""

    def compile(graph: GraphModule, inputs: list[Any]) -> Run:
        run = backend(graph, inputs)

        def draw_first(*arguments: Any) -> Any:
            tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
            if tensors:
                torch.rand((), device=tensors[0].device)
            return run(*arguments)

        return draw_first

    return compile


def _eager(graph: GraphModule, inputs: list[Any]) -> Run:
    return graph.forward


Change = Callable[[Node], None]


def _changed(graph: GraphModule, change: Change, only: int | None = None) -> GraphModule:
    """A copy with changed dropouts: all of them, or the one at a position. A graph without dropout
    stays unchanged: the optimizer's graph holds the weights themselves."""
    if not any(map(_p_of, graph.graph.nodes)):
        return graph
    copy = deepcopy(graph)
    dropouts = [node for node in copy.graph.nodes if _p_of(node)]
    for place, node in enumerate(dropouts):
        if only is None or place == only:
            change(node)
    copy.recompile()
    return copy


def _p_of(node: Node) -> float:
    """The share that a node drops; 0 if it is no dropout."""
    if node.op != "call_function":
        return 0.0
    if node.target not in P_ARGUMENTS:
        return 0.0
    place, name = P_ARGUMENTS[node.target]
    given = node.args[place] if len(node.args) > place else node.kwargs.get(name, 0.0)
    return float(cast(float, given))


def _set_p(node: Node, p: float) -> None:
    place, name = P_ARGUMENTS[node.target]
    if len(node.args) > place:
        node.args = (*node.args[:place], p, *node.args[place + 1 :])
    else:
        node.kwargs = {**node.kwargs, name: p}


def _double(node: Node) -> None:
    _set_p(node, 2 * _p_of(node))


def _unscale(node: Node) -> None:
    graph = node.graph
    with graph.inserting_after(node):
        scaled = graph.call_function(torch.mul, (node, 1 - _p_of(node)))
    node.replace_all_uses_with(scaled, lambda user: user is not scaled)


def _leave_out(node: Node) -> None:
    _set_p(node, 0.0)


def _keep_in_inference(node: Node) -> None:
    if node.target in DROPOUTS:
        node.args = (node.args[0], _p_of(node), True)
        node.kwargs = {}


def _always(change: Change, only: int | None = None) -> Backend:
    def backend(graph: GraphModule, inputs: list[Any]) -> Run:
        return _changed(graph, change, only).forward

    return with_own_numbers(backend)


def _from_some_step_on(change: Change) -> Backend:
    def backend(graph: GraphModule, inputs: list[Any]) -> Run:
        wrong, has_begun = _changed(graph, change), step_switch()

        def run(*arguments: Any) -> Any:
            return (wrong if has_begun() else graph).forward(*arguments)

        return run

    return with_own_numbers(backend)


def _in_inference(graph: GraphModule, inputs: list[Any]) -> Run:
    wrong = _changed(graph, _keep_in_inference)

    def run(*arguments: Any) -> Any:
        return (graph if torch.is_grad_enabled() else wrong).forward(*arguments)

    return run


class _OtherMask(torch.autograd.Function):
    """Dropout whose backward drops other numbers than forward dropped."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        ctx.p = p
        return torch.dropout(x, p, True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return torch.dropout(gradients[0], ctx.p, True), None


def drop_with_two_masks(x: Tensor, p: float) -> Tensor:
    """A function, because generated code finds no method by its name."""
    return cast(Tensor, _OtherMask.apply(x, p))  # type: ignore[no-untyped-call]


def _other_mask(node: Node) -> None:
    if node.target in DROPOUTS:
        node.target, node.args, node.kwargs = drop_with_two_masks, (node.args[0], _p_of(node)), {}


own_numbers = with_own_numbers(_eager)
own_numbers_decomposed = with_own_numbers(lookup_backend("aot_eager_decomp_partition"))
dropout_wrong_rate = _always(_double)
dropout_unscaled = _always(_unscale)
dropout_left_out = _always(_leave_out)
dropout_other_mask = _always(_other_mask)
dropout_one_layer = _always(_double, only=WRONG_LAYER)
dropout_late = _from_some_step_on(_double)
dropout_in_inference = with_own_numbers(_in_inference)

DROPOUT_FAULTS = (
    "dropout_wrong_rate",
    "dropout_unscaled",
    "dropout_left_out",
    "dropout_other_mask",
    "dropout_one_layer",
    "dropout_late",
    "dropout_in_inference",
)
"""Wrong everywhere from the first step on, except the last three: in one dropout of several, from a
step in the middle of training on, and in inference only."""
OTHER_FAULTS = (
    "zeroed_gradients",
    "dead_layer",
    "stale_batch",
    "skipped_update",
    "wrong_epsilon",
    *LATE_FAULTS,
)
"""Faults that have nothing to do with dropout."""
SUFFIX = "_own_numbers"
OWN_NUMBERS: dict[str, Backend] = {
    "own_numbers": own_numbers,
    "own_numbers_decomposed": own_numbers_decomposed,
    **{name: cast(Backend, globals()[name]) for name in DROPOUT_FAULTS},
    **{
        name + SUFFIX: with_own_numbers(
            getattr(late_faults if name in LATE_FAULTS else planted_faults, name)
        )
        for name in OTHER_FAULTS
    },
}
"""All backends here, by name."""
