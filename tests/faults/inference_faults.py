"""Dynamo backends that train correctly and answer wrongly, each in a different way. The loss of an
inference graph stays correct; only its logits are wrong."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

Run = Callable[..., Any]
Wrong = Callable[[Tensor], Tensor]
When = Callable[[Tensor], bool]


def _with_logits(wrong: Wrong, when: When = lambda labels: True) -> Callable[..., Run]:
    """`wrong` gets logits (samples, ..., classes), `when` the labels of the batch."""

    def backend(graph: GraphModule, inputs: list[Any]) -> Run:
        placeholders = graph.graph.find_nodes(op="placeholder")
        places = [i for i, node in enumerate(placeholders) if "labels" in node.name]
        if not places:  # the optimizer's
            return graph.forward

        def run(*arguments: Any) -> Any:
            outputs = graph.forward(*arguments)
            if torch.is_grad_enabled() or not when(arguments[places[0]]):
                return outputs
            return [
                wrong(output.clone()) if torch.is_tensor(output) and output.ndim > 1 else output
                for output in outputs
            ]

        return run

    return backend


def _in_sample(row: int, change: Wrong) -> Wrong:
    def wrong(logits: Tensor) -> Tensor:
        logits[row] = change(logits[row])
        return logits

    return wrong


def _is_filled_up(labels: Tensor) -> bool:
    """Fillers of the last, smaller batch have the label -100."""
    return bool((labels == -100).any())


def _nudged(logits: Tensor) -> Tensor:
    """Changes logits by less than most answers need to change."""
    return logits * 1.01


def _of_last_call() -> Wrong:
    """As if an output's memory was reused before its numbers were read."""
    last: list[Tensor] = []

    def wrong(logits: Tensor) -> Tensor:
        last.append(logits)
        return last[max(0, len(last) - 2)]

    return wrong


def stale_weights(graph: GraphModule, inputs: list[Any]) -> Run:
    """Keeps the weights of the first inference, like compilers that take them for constants; the
    loss uses the real weights."""
    weights: dict[int, Tensor] = {}
    if not any("labels" in node.name for node in graph.graph.find_nodes(op="placeholder")):
        return graph.forward  # the optimizer's

    def run(*arguments: Any) -> Any:
        outputs = graph.forward(*arguments)
        if torch.is_grad_enabled():
            return outputs
        places = [
            i for i, argument in enumerate(arguments) if isinstance(argument, torch.nn.Parameter)
        ]
        weights.update({} if weights else {i: arguments[i].detach().clone() for i in places})
        stale = graph.forward(*(weights.get(i, argument) for i, argument in enumerate(arguments)))
        return [
            old if torch.is_tensor(old) and old.ndim > 1 else new
            for old, new in zip(stale, outputs, strict=True)
        ]

    return run


permuted_logits = _with_logits(lambda logits: logits.roll(1, -1))
"""The logits of the classes are exchanged."""
one_wrong_sample = _with_logits(_in_sample(1, lambda logits: logits.roll(1, -1)))
one_nudged_sample = _with_logits(_in_sample(2, _nudged))
wrong_last_batch = _with_logits(lambda logits: logits.roll(1, -1), _is_filled_up)
last_calls_answers = _with_logits(_of_last_call())

INFERENCE_FAULTS = {
    "permuted_logits": permuted_logits,
    "one_wrong_sample": one_wrong_sample,
    "one_nudged_sample": one_nudged_sample,
    "wrong_last_batch": wrong_last_batch,
    "last_calls_answers": last_calls_answers,
    "stale_weights": stale_weights,
}
