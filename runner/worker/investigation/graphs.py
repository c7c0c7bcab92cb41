"""Captures the graphs of a training step, and runs each alone, under a compiler and without one;
makes a failing graph small, with torch's minifier, and finds the guilty part of torch's compiler,
with torch's bisector."""

import contextlib
import copy
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch._dynamo
from torch import Tensor
from torch._functorch.fx_minifier import minifier
from torch._inductor.compiler_bisector import BisectionResult, CompilerBisector
from torch.fx import GraphModule

from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.worker.compiler.compile_with_backend import compile_arguments
from breakeven.runner.worker.correctness.batch_tensors import BASELINE, uncompiled
from breakeven.runner.worker.investigation.trial_outcomes import (
    PASSES,
    ROUNDING,
    Outcome,
    Tensors,
    are_close,
    first_difference,
    is_plausible,
    is_same,
    raised,
)

SEED = 0
Value = Any
"""An input of a graph: a tensor or a number."""
Call = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A graph that Dynamo captured, with the inputs of one call."""

    module: GraphModule
    inputs: tuple[Value, ...]
    num_calls: int = 1
    """Forward and backward passes; captured CUDA graphs need several until they are replayed."""
    accumulates: bool = False
    """Whether the passes add up their gradients, as micro-batches do."""
    trains: bool = True
    """Whether there are backward passes."""
    apply_precision: Callable[[Arm], None] = lambda arm: None
    """Sets what products and attention may round to under an arm."""

    @property
    def num_nodes(self) -> int:
        """Operations, without inputs and outputs."""
        return sum(node.op not in ("placeholder", "output") for node in self.module.graph.nodes)


class Recorder:
    """A backend that keeps each graph with the inputs of its first call, and runs it as it is."""

    def __init__(self) -> None:
        self._modules: list[GraphModule] = []
        self._inputs: list[tuple[Value, ...]] = []

    def __call__(self, module: GraphModule, inputs: Sequence[Value]) -> Call:
        place = len(self._modules)
        self._modules.append(copy.deepcopy(module))
        self._inputs.append(())

        def run(*arguments: Value) -> Any:
            if not self._inputs[place]:
                self._inputs[place] = tuple(map(_kept, arguments))
            return module.forward(*arguments)

        return run

    def graphs(self, **settings: Any) -> list[Graph]:
        """The graphs that were called, with settings of `Graph`."""
        return [
            Graph(module=module, inputs=inputs, **settings)
            for module, inputs in zip(self._modules, self._inputs, strict=True)
            if inputs
        ]


def _kept(value: Value) -> Value:
    if not isinstance(value, Tensor):
        return value
    copied = value.detach().clone(memory_format=torch.preserve_format)
    return copied.requires_grad_(value.requires_grad)


def compile_graph(module: GraphModule, arm: Arm) -> Call:
    """The graph under the arm's backend, if it has one."""
    if arm.backend is None:
        return module
    arguments = {**compile_arguments(arm), "fullgraph": False}
    return torch.compile(module, **arguments)


def run_graph(call: Call, graph: Graph, inputs: Sequence[Value]) -> Tensors:
    """Outputs, changed inputs and gradients of a graph; always with the same random numbers."""
    with torch.set_grad_enabled(graph.trains):
        return _run_graph(call, graph, inputs)


def _run_graph(call: Call, graph: Graph, inputs: Sequence[Value]) -> Tensors:
    arguments = [*map(_kept, inputs)]
    tensors: Tensors = {}
    for _ in range(graph.num_calls):
        torch.manual_seed(SEED)
        if not graph.accumulates:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            _clear(arguments)
        outputs = _flat(call(*arguments))
        torch.manual_seed(SEED)
        # Drawn in one precision on one device, so that a reference has the same numbers.
        terms = [
            (output * torch.randn(output.shape).to(output)).sum()
            for output in outputs
            if output.requires_grad and output.grad_fn is not None
        ]
        tensors = {
            ("output", str(place)): output.detach().clone() for place, output in enumerate(outputs)
        }
        if terms:
            torch.stack([term.to(terms[0].dtype) for term in terms]).sum().backward()  # type: ignore[no-untyped-call]
    for place, value in enumerate(arguments):
        if isinstance(value, Tensor) and value.is_floating_point():
            tensors["input", str(place)] = value.detach().clone()
            if value.grad is not None:
                tensors["gradient", str(place)] = value.grad.detach().clone()
    return tensors


def _clear(values: Sequence[Value]) -> None:
    for value in values:
        if isinstance(value, Tensor):
            value.grad = None


def _flat(outputs: Any) -> list[Tensor]:
    flat = torch.utils._pytree.tree_leaves(outputs)
    return [value for value in flat if isinstance(value, Tensor) and value.is_floating_point()]


class GraphTrials:
    """Runs one graph under compilers, against itself without one in the same precision."""

    def __init__(self, graph: Graph, tolerance: float) -> None:
        """Raises if the graph fails without a compiler."""
        self._graph, self._tolerance = graph, tolerance
        self._plain: dict[str, Tensors] = {}
        self._expected(BASELINE)
        self._reference: Tensors | None = None

    def outcome(self, arm: Arm) -> Outcome:
        """The outcome of the graph under the arm."""
        torch._dynamo.reset()
        graph = self._graph
        try:
            expected = self._expected(BASELINE if arm.backend is None else uncompiled(arm))
            graph.apply_precision(arm)
            call = compile_graph(copy.deepcopy(graph.module), arm)
            result = run_graph(call, graph, graph.inputs)
            if are_close(result, expected, self._tolerance):
                return PASSES
        except Exception as error:  # Any error of a backend is a result here.
            return raised(error, traceback.format_exc())
        return first_difference(result, expected, self.reference, self._tolerance) or PASSES

    def _expected(self, plain: Arm) -> Tensors:
        """The tensors without a compiler, in the precision of the arm."""
        if plain.text not in self._plain:
            graph = self._graph
            graph.apply_precision(plain)
            # A copy: the graph of an optimizer changes weights that it holds itself.
            module = copy.deepcopy(graph.module)
            self._plain[plain.text] = run_graph(module, graph, graph.inputs)
        return self._plain[plain.text]

    @property
    def reference(self) -> Tensors:
        """The tensors in double precision, or else those of inputs that rounding changed."""
        if self._reference is None:
            graph, expected = self._graph, self._expected(BASELINE)
            graph.apply_precision(BASELINE)
            self._reference = _tried(copy.deepcopy(graph.module).double(), graph, Tensor.double)
            if not is_plausible(self._reference, expected):
                self._reference = _tried(copy.deepcopy(graph.module), graph, _rounded)
        return self._reference


def _tried(call: Call, graph: Graph, change: Callable[[Tensor], Tensor]) -> Tensors:
    """The tensors with changed inputs; empty if a kernel or a type in the graph forbids them."""
    inputs = [
        change(value.detach()).requires_grad_(value.requires_grad)
        if isinstance(value, Tensor) and value.is_floating_point()
        else value
        for value in graph.inputs
    ]
    try:
        return run_graph(call, graph, inputs)
    except Exception:  # Any error only means that there is no reference.
        return {}


def _rounded(value: Tensor) -> Tensor:
    torch.manual_seed(SEED)
    return value * (1 + ROUNDING * torch.randn(value.shape).to(value))


def minify(graph: Graph, arm: Arm, outcome: Outcome, tolerance: float, until: float) -> Graph:
    """The smallest part of the graph that fails as the graph does.

    `until`: time of `time.monotonic` after which the smallest part so far is returned.
    """
    smallest = graph

    def fails(module: GraphModule, inputs: Sequence[Any]) -> bool:
        nonlocal smallest
        if time.monotonic() > until:
            return False
        part = replace(graph, module=module, inputs=tuple(map(_own, inputs)))
        try:
            result = GraphTrials(part, tolerance).outcome(arm)
        except Exception:  # A part that fails without a compiler shows nothing.
            return False
        if not is_same(result, outcome):
            return False
        if part.num_nodes <= smallest.num_nodes:
            smallest = part
        return True

    # The minifier raises once nothing fails any more after the deadline.
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(RuntimeError):
        minifier(graph.module, list(graph.inputs), fails, dump_state=lambda module, inputs: None)
    return smallest


def _own(value: Any) -> Any:
    """An input that is a leaf: results of other nodes replace nodes that the minifier removes."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def bisect(graph: Graph, arm: Arm, outcome: Outcome, tolerance: float) -> BisectionResult | None:
    """The part of torch's compiler that is to blame for a graph that fails under Inductor; None if
    the bisector finds none."""
    trials = GraphTrials(graph, tolerance)

    def passes() -> bool:
        return not is_same(trials.outcome(arm), outcome)

    with contextlib.redirect_stdout(sys.stderr):
        try:
            return CompilerBisector.do_bisect(passes)
        except RuntimeError:  # The bisector's own: a fault that its switches hide and show.
            return None
        finally:
            torch._dynamo.reset()
