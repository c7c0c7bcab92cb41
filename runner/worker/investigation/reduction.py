"""Makes a failing graph small, with torch's minifier, and finds the guilty part of torch's
compiler, with torch's bisector."""

import contextlib
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._functorch.fx_minifier import minifier
from torch._inductor.compiler_bisector import CompilerBisector
from torch.fx import GraphModule

from breakeven.runner.specs.variants import Variant
from breakeven.runner.worker.investigation.graphs import Graph, GraphTrials
from breakeven.runner.worker.investigation.outcomes import Outcome

SAME_CHARACTERS = 40
"""Later parts of a message name shapes and nodes, which change as a graph shrinks."""
AROUND = re.compile(r"^(\w+: )+(?=\w*(Error|Exception)\b)")
"""Names of errors that a stage of the compiler puts around another error."""


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """The part of torch's compiler that a bisection names."""

    backend: str
    """The first of torch's debugging backends that fails: `eager`, `aot_eager`, ..."""
    subsystem: str | None = None
    number: int | None = None
    operation: str | None = None
    """The node or pass, in torch's words."""


def is_same(one: Outcome, other: Outcome) -> bool:
    """Whether two failures are of one kind. Errors must begin alike, apart from numbers and from
    what a stage of the compiler puts around them."""
    if (one.out_of_memory and other.out_of_memory) or (one.kills and other.kills):
        return True
    if one.kind != other.kind or not one.fails:
        return False
    return one.kind != "raises" or _beginning(one) == _beginning(other)


def is_alike(error: str, recorded: str) -> bool:
    """Whether an error may be the recorded one: it has the same class, and for torch's most general
    class the same beginning. Nothing recorded is like every error."""
    kind, other = (text.partition(":")[0] for text in (error, recorded))
    if not recorded:
        return True
    return kind == other and (kind != "RuntimeError" or _stripped(error) == _stripped(recorded))


def _beginning(outcome: Outcome) -> str:
    return _stripped(AROUND.sub("", (outcome.error or "").rpartition("raised:\n")[2]))


def _stripped(error: str) -> str:
    return re.sub(r"\d+", "", error)[:SAME_CHARACTERS]


def minify(
    graph: Graph, variant: Variant, outcome: Outcome, tolerance: float, until: float
) -> Graph:
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
            found = GraphTrials(part, tolerance).outcome(variant)
        except Exception:  # A part that fails without a compiler shows nothing.
            return False
        if not is_same(found, outcome):
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


def bisect(graph: Graph, variant: Variant, outcome: Outcome, tolerance: float) -> Culprit | None:
    """The culprit of a graph that fails under Inductor; None if the bisector finds none."""
    trials = GraphTrials(graph, tolerance)

    def passes() -> bool:
        return not is_same(trials.outcome(variant), outcome)

    with contextlib.redirect_stdout(sys.stderr):
        try:
            found = CompilerBisector.do_bisect(passes)
        except RuntimeError:  # The bisector's own: a fault that its switches hide and show.
            return None
        finally:
            torch._dynamo.reset()
    if found is None:
        return None
    return Culprit(
        backend=found.backend, subsystem=found.subsystem, number=found.bisect_number,
        operation=found.debug_info,
    )  # fmt: skip
