"""Reads a trace of torch's profiler, and sums up the time of its steps: by kernel on an
asynchronous device, by operator on the CPU; also the time that ranks communicated.
"""

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, prod
from typing import Any, Literal, NamedTuple

try:
    from orjson import loads
except ModuleNotFoundError:  # a Python other than Breakeven's own
    from json import loads  # type: ignore[assignment]

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
BOOKKEEPING = (
    "autograd::engine::",
    "torch::autograd::",
    "TorchDynamo",
    "Torch-Compiled Region",
    "Pregraph",
    "AOTDispatcher",
    "Optimizer.",
    "ProfilerStep",
)
"""Prefixes of calls that do not compute."""
COLLECTIVES = ("c10d::", "_c10d_functional::")
"""Prefixes of calls that communicate with other ranks."""
MAX_NAME = 1000
"""Characters of a name; names of C++ templates can be longer."""
MAX_KERNELS = 1000
"""Rows of a profile; the last row sums up all shorter kernels."""
HOST_CATEGORIES = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")
DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
FLOAT_TYPES = {
    "float": "float32",
    "double": "float64",
    "c10::BFloat16": "bf16",
    "c10::Half": "fp16",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
}
"""Names of floating-point types in a trace, and their usual names."""

ELEMENT_BYTES = {
    "double": 8,
    "long": 8,
    "long int": 8,
    "float": 4,
    "int": 4,
    "c10::bfloat16": 2,
    "bfloat16": 2,
    "c10::half": 2,
    "half": 2,
    "unsigned char": 1,
    "byte": 1,
    "char": 1,
    "bool": 1,
}
"""Bytes by element type, as gloo and NCCL name it, in lower case."""


class Span(NamedTuple):
    """A period, in seconds on the trace's own clock."""

    start: float
    end: float


@dataclass(slots=True, eq=False, kw_only=True)
class Timed:
    """Something that took time, on the host or on the device."""

    name: str
    start: float
    """Seconds on the trace's own clock."""
    seconds: float
    correlation: int | None

    @property
    def span(self) -> Span:
        return Span(self.start, self.start + self.seconds)


@dataclass(slots=True, eq=False, kw_only=True)
class HostCall(Timed):
    """An operator, an annotation or a call of the driver, on one thread of the host."""

    category: str
    thread: Any
    dtype: str | None
    """Element type of the first floating-point input."""
    parent: "HostCall | None" = None
    own: list[Span] = field(default_factory=list)
    """Times when it worked itself, outside of calls that it made."""

    def callers(self) -> Iterator["HostCall"]:
        """Yields the call itself, its caller, the caller's caller, and so on."""
        call: HostCall | None = self
        while call is not None:
            yield call
            call = call.parent


@dataclass(slots=True, eq=False, kw_only=True)
class DeviceWork(Timed):
    """A kernel or a transfer of the device."""

    fills_device: bool
    """Whether it is a transfer, or has at least as many blocks as the device has processors."""


def merged(spans: Iterable[Span]) -> list[Span]:
    """The union of spans, as ordered spans without overlap."""
    union: list[Span] = []
    for span in sorted(spans):
        if union and span.start <= union[-1].end:
            union[-1] = Span(union[-1].start, max(union[-1].end, span.end))
        else:
            union.append(span)
    return union


def length(spans: Iterable[Span]) -> float:
    return sum(span.end - span.start for span in spans)


@dataclass(frozen=True)
class Collective:
    """One call of a collective of torch.distributed."""

    name: str
    span: Span
    bytes: int | None
    """Bytes sent by this rank; None if the trace lacks them."""


@dataclass(frozen=True)
class Trace:
    """The calls of the host's threads, and the work of the device."""

    calls: list[HostCall] = field(default_factory=list)
    work: list[DeviceWork] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)


def read_trace(content: bytes) -> Trace:
    """Parses a trace; raises `ValueError` if it is not JSON."""
    events = loads(content)["traceEvents"]
    complete = [event for event in events if event.get("ph") == "X"]
    calls = [_call(event) for event in complete if event.get("cat") in HOST_CATEGORIES]
    work = [_work(event) for event in complete if event.get("cat") in DEVICE_CATEGORIES]
    _nest(calls)
    collectives = filter(None, map(read_collective, complete))
    return Trace(calls, sorted(work, key=lambda span: span.start), list(collectives))


def read_collective(event: Mapping[str, Any]) -> Collective | None:
    """The collective of a gloo event on the host or of an NCCL kernel; None for other events."""
    name, args = event["name"], event.get("args", {})
    span = Span(event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6)
    if event.get("cat") == "user_annotation" and name.startswith("gloo:"):
        types, sizes = args.get("Input type", []), args.get("Input Dims", [])
        known = [_bytes(kind, _elements(size)) for kind, size in zip(types, sizes, strict=False)]
        total = None if None in known or not known else sum(filter(None, known))
        return Collective(name.removeprefix("gloo:"), span, total)
    if event.get("cat") == "kernel" and "nccl" in name.lower():
        count = args.get("In msg nelems")
        size = None if count is None else _bytes(str(args.get("dtype")), int(count))
        return Collective(str(args.get("Collective name") or "not named"), span, size)
    return None


def _bytes(kind: str, elements: int) -> int | None:
    size = ELEMENT_BYTES.get(kind.lower())
    return None if size is None else size * elements


def _elements(size: Any) -> int:
    """Number of elements for a tensor's size or a list of sizes."""
    if size and isinstance(size[0], list):
        return sum(map(_elements, size))
    return prod(size)


def _call(event: Mapping[str, Any]) -> HostCall:
    dtypes = (FLOAT_TYPES.get(name) for name in event.get("args", {}).get("Input type", ()))
    return HostCall(
        **_timed(event),
        category=event["cat"],
        thread=event.get("tid"),
        dtype=next(filter(None, dtypes), None),
    )


def _work(event: Mapping[str, Any]) -> DeviceWork:
    blocks = event.get("args", {}).get("blocks per SM", 1.0)
    return DeviceWork(**_timed(event), fills_device=blocks >= 1.0)


def _timed(event: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": event["name"],
        "start": event["ts"] / 1e6,
        "seconds": event["dur"] / 1e6,
        "correlation": event.get("args", {}).get("correlation"),
    }


def _nest(calls: Iterable[HostCall]) -> None:
    """Sets each call's caller (the shortest call of its thread around it) and the times when it
    worked itself: of a thread's open calls, only the call that began last works."""
    by_thread: dict[Any, list[HostCall]] = defaultdict(list)
    for call in calls:
        by_thread[call.thread].append(call)
    for thread in by_thread.values():
        thread.sort(key=lambda call: (call.start, -call.seconds))
        open_calls: list[HostCall] = []
        known = -inf  # time up to which the working call is known
        for call in thread:
            known = _end_calls(open_calls, call.start, known)
            if open_calls:
                call.parent = open_calls[-1]
                known = _work_until(call.parent, known, call.start)
            open_calls.append(call)
        _end_calls(open_calls, inf, known)


def _end_calls(open_calls: list[HostCall], before: float, known: float) -> float:
    """Removes the calls that ended by `before`; returns the new `known`."""
    while open_calls and open_calls[-1].span.end <= before:
        ended = open_calls.pop()
        known = _work_until(ended, known, ended.span.end)
    return known


def _work_until(call: HostCall, known: float, end: float) -> float:
    """Adds to a call's own work the time from `known` to `end`; returns the later of the two."""
    if end > known:
        call.own.append(Span(max(known, call.start), end))
    return max(known, end)


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
    ordered = sorted(costs.items(), key=lambda row: -row[1].seconds)
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
    edges = sorted(
        [(span.start, 1, i) for i, span in enumerate(work)]
        + [(span.end, 0, i) for i, span in enumerate(work)]
    )
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
    return zip(work, shared_seconds([piece.span for piece in work]), strict=True)


def _computes(call: HostCall) -> bool:
    """Whether a call is an operator, or code that Inductor generated."""
    is_operator = call.category == "cpu_op" and "::" in call.name
    return call.name.startswith(COMPILED_CODE) or (
        is_operator and not call.name.startswith(BOOKKEEPING)
    )


def _kernel(name: str, launch: HostCall | None) -> Kernel:
    if launch is None or "GraphLaunch" in launch.name:
        return Kernel(name[:MAX_NAME], None, None, None)
    op = next(
        (
            call
            for call in launch.callers()
            if call.category == "cpu_op" and not call.name.startswith(BOOKKEEPING)
        ),
        None,
    )
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
        frame = _outermost_frame(call) if call.name.startswith(GRAPHS) else None
        if frame is not None:
            graphs[frame].append(call.span)
    return sum(
        after.start - before.end
        for spans in graphs.values()
        for before, after in pairwise(sorted(spans))
        if bisect(backward, before.end) == bisect(backward, after.start)
    )


def _outermost_frame(graph: HostCall) -> HostCall | None:
    """The outermost function of a graph; None for a graph within another graph or a backward
    pass."""
    above = list(graph.callers())[1:]
    if any(call.name.startswith((*GRAPHS, BACKWARD)) for call in above):
        return None
    return next((call for call in reversed(above) if call.name.startswith(COMPILED_FRAME)), None)


def _short(name: str) -> str:
    """Shortens `## Call CompiledFxGraph fso5z2… ##`; keeps enough of the hash to distinguish."""
    words = name.split()
    return f"CompiledFxGraph {words[3][:8]}" if len(words) > 3 else "CompiledFxGraph"


def communication(trace: Trace, steps: int, *, device_works_by_itself: bool) -> dict[str, float]:
    """Seconds per step of this rank: computation, communication, and communication during which it
    computed nothing (exposed)."""
    if device_works_by_itself:
        computing = [piece.span for piece in trace.work if "nccl" not in piece.name.lower()]
    else:
        calls = filter(_computes, trace.calls)
        computing = [call.span for call in calls if not call.name.startswith(COLLECTIVES)]
    sent = [collective.span for collective in trace.collectives]
    compute_seconds = length(merged(computing))
    return {
        "compute_seconds": compute_seconds / steps,
        "communication_seconds": length(merged(sent)) / steps,
        "exposed_seconds": (length(merged([*sent, *computing])) - compute_seconds) / steps,
    }


def by_collective(trace: Trace, steps: int) -> list[dict[str, Any]]:
    """Calls, bytes and seconds per step of each kind of collective."""
    kinds: dict[str, list[Collective]] = defaultdict(list)
    for collective in trace.collectives:
        kinds[collective.name].append(collective)
    rows = []
    for name, calls in sorted(kinds.items()):
        sizes = [call.bytes for call in calls]
        rows.append(
            {
                "name": name,
                "calls": len(calls) / steps,
                "sent_bytes": None if None in sizes else sum(filter(None, sizes)) / steps,
                "seconds": length(merged(call.span for call in calls)) / steps,
            }
        )
    return rows
