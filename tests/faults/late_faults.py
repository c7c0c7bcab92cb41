"""Dynamo backends that are correct at first and become wrong at the step that `BEGINS` names.
Before that step each does what eager does. If a backend has one graph per step, such as a forward
and a backward graph, its calls count the steps."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule

BEGINS = "FAULT_BEGINS_AT_STEP"
"""Environment variable with the first step that goes wrong, counted from 0."""

Run = Callable[..., Any]
Wrong = Callable[[Sequence[Tensor]], list[Tensor]]
"""Changes the gradients of a step, in their order."""


def step_switch() -> Callable[[], bool]:
    """Returns at each call whether this is a wrong step."""
    begins = int(os.environ[BEGINS])
    num_calls = 0

    def has_begun() -> bool:
        nonlocal num_calls
        num_calls += 1
        return num_calls > begins

    return has_begun


def _faithful(graph: GraphModule, inputs: list[Any]) -> Run:
    run: Run = make_boxed_func(graph.forward)
    return run


def _with_gradients(wrong: Wrong) -> Callable[..., Any]:
    def compile_backward(graph: GraphModule, inputs: list[Any]) -> Run:
        has_begun = step_switch()

        def backward(*arguments: Any) -> list[Any]:
            outputs = list(graph(*arguments))
            if has_begun():
                places = [i for i, output in enumerate(outputs) if isinstance(output, Tensor)]
                changed = wrong([outputs[i] for i in places])
                for place, gradient in zip(places, changed, strict=True):
                    outputs[place] = gradient
            return outputs

        run: Run = make_boxed_func(backward)
        return run

    return aot_autograd(
        fw_compiler=_faithful,
        bw_compiler=compile_backward,
        partition_fn=min_cut_rematerialization_partition,  # as aot_eager: dropout draws alike
    )


def _noisy(gradients: Sequence[Tensor]) -> list[Tensor]:
    """With its own generator: dropout draws the same numbers as before."""
    noise = torch.Generator(gradients[0].device).manual_seed(len(gradients))
    return [
        g + g.std(correction=0) * torch.randn(g.shape, generator=noise, device=g.device).to(g)
        for g in gradients
    ]


late_negated_gradients = _with_gradients(lambda gradients: [-g for g in gradients])
"""Ascends instead of descending."""
late_zeroed_gradients = _with_gradients(lambda gradients: [0 * g for g in gradients])
"""Stands still, except for momentum and decay."""
late_half_dead = _with_gradients(
    lambda gradients: [0 * g if i % 2 else g for i, g in enumerate(gradients)]
)
"""Every other parameter stands still."""
late_frozen_head = _with_gradients(
    lambda gradients: [0 * g if g.shape[:1] == gradients[0].shape[:1] else g for g in gradients]
)
"""The last layer stands still."""
late_noisy_gradients = _with_gradients(_noisy)
"""The same noise, of each gradient's own size, is added in every step."""


def _with_batch(
    wrong: Callable[[dict[int, Tensor], dict[int, Tensor]], dict[int, Tensor]], name: str
) -> Callable[..., Run]:
    """`wrong` gets the named arguments of the first wrong step and of the present one."""

    def backend(graph: GraphModule, inputs: list[Any]) -> Run:
        placeholders = graph.graph.find_nodes(op="placeholder")
        places = [i for i, node in enumerate(placeholders) if name in node.name]
        has_begun = step_switch()
        first: dict[int, Tensor] = {}

        def run(*arguments: Any) -> Any:
            if not torch.is_grad_enabled() or not has_begun():
                return graph.forward(*arguments)
            now = {i: arguments[i] for i in places}
            first.update({} if first else {i: tensor.clone() for i, tensor in now.items()})
            given = wrong(first, now)
            return graph.forward(*(given.get(i, argument) for i, argument in enumerate(arguments)))

        return run

    return backend


late_shifted_labels = _with_batch(
    lambda first, now: {i: tensor.roll(1, 0) for i, tensor in now.items()}, "l_batch_labels_"
)
"""Each sample of a batch is given its neighbour's label."""
late_stuck_batch = _with_batch(lambda first, now: first, "l_batch_")
"""Trains on the same batch forever."""


def _with_gradients_of(share: float) -> Callable[..., Run]:
    """The loss is that of the whole batch; the gradients are those of the mean over a part of
    it."""

    def backend(graph: GraphModule, inputs: list[Any]) -> Run:
        placeholders = graph.graph.find_nodes(op="placeholder")
        places = [i for i, node in enumerate(placeholders) if "l_batch_labels_" in node.name]
        has_begun = step_switch()

        def run(*arguments: Any) -> Any:
            if not torch.is_grad_enabled() or not places or not has_begun():
                return graph.forward(*arguments)
            given = list(arguments)
            labels = given[places[0]].clone()
            labels[int(share * len(labels)) :] = -100
            given[places[0]] = labels
            state = torch.get_rng_state()
            outputs = graph.forward(*arguments)
            torch.set_rng_state(state)  # the same dropout
            part = graph.forward(*given)
            return [p + (w - p).detach() for w, p in zip(outputs, part, strict=True)]

        return run

    return backend


late_quarter_batch = _with_gradients_of(1 / 4)
late_half_batch = _with_gradients_of(1 / 2)
late_most_of_batch = _with_gradients_of(15 / 16)
WEAK_FAULTS = ("late_quarter_batch", "late_half_batch", "late_most_of_batch")
"""Faults that the check is known to miss (benchmarks/results/parity-trials.md)."""
LATE_FAULTS = (
    "late_negated_gradients",
    "late_zeroed_gradients",
    "late_half_dead",
    "late_noisy_gradients",
    "late_shifted_labels",
    "late_stuck_batch",
)
