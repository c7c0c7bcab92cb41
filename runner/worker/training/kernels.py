"""Sums up the time of steps in a trace: by kernel on an asynchronous device, by operator on the
CPU; also the time that ranks communicated.
"""

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from breakeven.runner.worker.training.trace import (
    Collective,
    DeviceWork,
    HostCall,
    Span,
    Trace,
    length,
    merged,
)

Phase = Literal["forward", "backward", "optimizer"]
BACKWARD = "autograd::engine::evaluate_function"
OPTIMIZER = "Optimizer.step#"
GUARDS = "TorchDynamo Cache Lookup"
COMPILED_CODE = "## Call CompiledFxGraph"
"""Prefix of code that Inductor generated, which calls only operators."""
COMPILED_FRAME = "Torch-Compiled Region"
"""Prefix of a compiled function: its graph, and after a graph break the frame of the rest."""
GRAPHS = (COMPILED_CODE, "CompiledFunction")
"""Prefixes of a running graph, including the calls that its backend and autograd add."""
BOOKKEEPING = ("autograd::engine::", "torch::autograd::", "TorchDynamo", "Torch-Compiled Region",
               "Pregraph", "AOTDispatcher", "Optimizer.", "ProfilerStep")  # fmt: skip
"""Prefixes of calls that do not compute."""
COLLECTIVES = ("c10d::", "_c10d_functional::")
"""Prefixes of calls that communicate with other ranks."""
MAX_NAME = 1000
"""Characters of a name; names of C++ templates can be longer."""
MAX_KERNELS = 1000
"""Rows of a profile; the last row sums up all shorter kernels."""


class Kernel(NamedTuple):
    """Work of one kind."""

    name: str
    op: str | None
    """The operator that started it; None if unknown, as in replayed CUDA graphs."""
    phase: Phase | None
    dtype: str | None
    """Element type of the operator's first floating-point input."""


@dataclass
class Cost:
    calls: int = 0
    seconds: float = 0.0

    def add(self, seconds: float, calls: int = 1) -> None:
        self.seconds += seconds
        self.calls += calls


Costs = dict[Kernel, Cost]


def device_costs(trace: Trace) -> Costs:
    """Seconds of the device by kernel. Kernels that run at once share the time, so that the sum is
    the time in which any kernel ran."""
    launches = {call.correlation: call for call in trace.calls if call.correlation is not None}
    costs: Costs = defaultdict(Cost)
    for work, seconds in _shared(trace.work):
        launch = launches.get(work.correlation) if work.correlation is not None else None
        costs[_kernel(work.name, launch)].add(seconds)
    return costs


def cpu_costs(trace: Trace) -> Costs:
    """Seconds of the host by operator, without the operators that it calls, and without bookkeeping
    of autograd and the compiler. Threads that compute at once share the time, so that the sum is
    the time in which any thread computed."""
    costs: Costs = defaultdict(Cost)
    work: list[tuple[Span, Kernel]] = []
    for call in filter(_computes, trace.calls):
        if call.name.startswith(COMPILED_CODE):
            kernel = Kernel(_short(call.name), None, _phase(call), None)
        else:
            kernel = Kernel(call.name[:MAX_NAME], call.name, _phase(call), call.dtype)
        costs[kernel].add(0.0)
        work += [(span, kernel) for span in call.own]
    shares = shared_seconds([span for span, _ in work])
    for (_, kernel), seconds in zip(work, shares, strict=True):
        costs[kernel].add(seconds, calls=0)
    return costs


def host_seconds(trace: Trace) -> dict[str, float]:
    """Seconds of the host in backward passes, in uncompiled optimizers, in guard checks of compiled
    code, and between the graphs of functions with graph breaks."""
    return {
        "backward": _outermost(trace.calls, BACKWARD),
        "optimizer": _outermost(trace.calls, OPTIMIZER),
        "guards": _outermost(trace.calls, GUARDS),
        "between_graphs": _between_graphs(trace.calls),
    }


def underfilled_seconds(trace: Trace) -> float:
    """Seconds of the device in kernels with fewer blocks than the device has processors."""
    return sum(seconds for work, seconds in _shared(trace.work) if not work.fills_device)


def num_launches(trace: Trace) -> int:
    """Number of kernels and graphs that the host started."""
    kinds = ("cuda_runtime", "cuda_driver")
    return sum(call.category in kinds and "Launch" in call.name for call in trace.calls)


def most_costly(costs: Costs) -> Iterable[tuple[Kernel, Cost]]:
    """Yields at most `MAX_KERNELS` rows; the last may sum up all others."""
    ordered = sorted(costs.items(), key=lambda item: -item[1].seconds)
    yield from ordered[: MAX_KERNELS - 1]
    rest = ordered[MAX_KERNELS - 1 :]
    if rest:
        together = Cost()
        for _, cost in rest:
            together.add(cost.seconds, cost.calls)
        yield Kernel(f"{len(rest)} others", None, None, None), together


def shared_seconds(work: Sequence[Span]) -> list[float]:
    """The seconds of each span; n simultaneous spans get an n-th of the time each."""
    seconds = [0.0] * len(work)
    edges = sorted([(one.start, 1, i) for i, one in enumerate(work)]
                   + [(one.end, 0, i) for i, one in enumerate(work)])  # fmt: skip
    running: set[int] = set()
    before = 0.0
    for now, begins, i in edges:
        for other in running:
            seconds[other] += (now - before) / len(running)
        if begins:
            running.add(i)
        else:
            running.discard(i)
        before = now
    return seconds


def _shared(work: Sequence[DeviceWork]) -> Iterable[tuple[DeviceWork, float]]:
    return zip(work, shared_seconds([one.span for one in work]), strict=True)


def _computes(call: HostCall) -> bool:
    """Whether a call is an operator, or code that Inductor generated."""
    is_operator = call.category == "cpu_op" and "::" in call.name
    return call.name.startswith(COMPILED_CODE) or (
        is_operator and not call.name.startswith(BOOKKEEPING)
    )


def _kernel(name: str, launch: HostCall | None) -> Kernel:
    if launch is None or "GraphLaunch" in launch.name:
        return Kernel(name[:MAX_NAME], None, None, None)
    op = next((call for call in launch.callers() if call.category == "cpu_op"
               and not call.name.startswith(BOOKKEEPING)), None)  # fmt: skip
    op_name, dtype = (None, None) if op is None else (op.name[:MAX_NAME], op.dtype)
    return Kernel(name[:MAX_NAME], op_name, _phase(launch), dtype)


def _phase(call: HostCall) -> Phase:
    for caller in call.callers():
        if caller.name.startswith(OPTIMIZER):
            return "optimizer"
        if caller.name.startswith(BACKWARD):
            return "backward"
    return "forward"


def _outermost(calls: Iterable[HostCall], name: str) -> float:
    """Seconds in which a call with the prefix `name` ran."""
    return length(merged(call.span for call in calls if call.name.startswith(name)))


def _between_graphs(calls: Sequence[HostCall]) -> float:
    """Seconds between the graphs of one function, when Python runs the code between them and enters
    the next graph. Excludes the time between graphs that a backward pass separates. 0 if the trace
    has no graphs, as under the backend eager."""
    backward = sorted(call.start for call in calls if call.name.startswith(BACKWARD))
    graphs: dict[HostCall, list[Span]] = defaultdict(list)
    for call in calls:
        frame = _frame_of(call) if call.name.startswith(GRAPHS) else None
        if frame is not None:
            graphs[frame].append(call.span)
    return sum(
        after.start - before.end
        for spans in graphs.values()
        for before, after in pairwise(sorted(spans))
        if bisect(backward, before.end) == bisect(backward, after.start)
    )


def _frame_of(graph: HostCall) -> HostCall | None:
    """The outermost function of a graph; None for a graph within another graph or a backward
    pass."""
    above = list(graph.callers())[1:]
    if any(one.name.startswith((*GRAPHS, BACKWARD)) for one in above):
        return None
    return next((one for one in reversed(above) if one.name.startswith(COMPILED_FRAME)), None)


def _short(name: str) -> str:
    """Shortens `## Call CompiledFxGraph fso5z2… ##`; keeps enough of the hash to distinguish."""
    words = name.split()
    return f"CompiledFxGraph {words[3][:8]}" if len(words) > 3 else "CompiledFxGraph"


def communication(trace: Trace, steps: int, *, device_works_by_itself: bool) -> dict[str, float]:
    """Seconds per step of this rank: computation, communication, and communication during which it
    computed nothing (exposed)."""
    if device_works_by_itself:
        computing = [one.span for one in trace.work if "nccl" not in one.name.lower()]
    else:
        calls = filter(_computes, trace.calls)
        computing = [call.span for call in calls if not call.name.startswith(COLLECTIVES)]
    sent = [one.span for one in trace.collectives]
    compute_seconds = length(merged(computing))
    return {
        "compute_seconds": compute_seconds / steps,
        "communication_seconds": length(merged(sent)) / steps,
        "exposed_seconds": (length(merged([*sent, *computing])) - compute_seconds) / steps,
    }


def by_collective(trace: Trace, steps: int) -> list[dict[str, Any]]:
    """Calls, bytes and seconds per step of each kind of collective."""
    kinds: dict[str, list[Collective]] = defaultdict(list)
    for one in trace.collectives:
        kinds[one.name].append(one)
    rows = []
    for name, calls in sorted(kinds.items()):
        sizes = [one.bytes for one in calls]
        rows.append({
            "name": name,
            "calls": len(calls) / steps,
            "sent_bytes": None if None in sizes else sum(filter(None, sizes)) / steps,
            "seconds": length(merged(one.span for one in calls)) / steps,
        })  # fmt: skip
    return rows
