"""Reads a trace of torch's profiler: calls with their callers, and work of the device."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any, NamedTuple

try:
    from orjson import loads
except ModuleNotFoundError:  # a Python other than Breakeven's own
    from json import loads  # type: ignore[assignment]

HOST_CATEGORIES = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")
DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
FLOAT_TYPES = {
    "float": "float32", "double": "float64", "c10::BFloat16": "bf16", "c10::Half": "fp16",
    "c10::Float8_e4m3fn": "fp8", "c10::Float8_e5m2": "fp8",
}  # fmt: skip
"""Names of floating-point types in a trace, and their usual names."""

ELEMENT_BYTES = {
    "double": 8, "long": 8, "long int": 8, "float": 4, "int": 4, "c10::bfloat16": 2,
    "bfloat16": 2, "c10::half": 2, "half": 2, "unsigned char": 1, "byte": 1, "char": 1, "bool": 1,
}  # fmt: skip
"""Bytes by element type, as gloo and NCCL name it, in lower case."""


@dataclass(slots=True, eq=False)
class HostCall:
    """An operator, an annotation or a call of the driver, on one thread of the host."""

    name: str
    category: str
    thread: Any
    start: float
    """Seconds on the trace's own clock."""
    seconds: float
    dtype: str | None
    """Element type of the first floating-point input."""
    correlation: int | None
    parent: "HostCall | None" = None
    own: list["Span"] = field(default_factory=list)
    """Times when it worked itself, outside of calls that it made."""

    @property
    def span(self) -> "Span":
        return Span(self.start, self.start + self.seconds)

    def callers(self) -> Iterator["HostCall"]:
        """Yields the call itself, its caller, the caller's caller, and so on."""
        call: HostCall | None = self
        while call is not None:
            yield call
            call = call.parent


@dataclass(slots=True, eq=False)
class DeviceWork:
    """A kernel or a transfer of the device."""

    name: str
    start: float
    seconds: float
    correlation: int | None
    fills_device: bool
    """Whether it is a transfer, or has at least as many blocks as the device has processors."""

    @property
    def span(self) -> "Span":
        return Span(self.start, self.start + self.seconds)


class Span(NamedTuple):
    """A period, in seconds on the trace's own clock."""

    start: float
    end: float


def merged(spans: Iterable[Span]) -> list[Span]:
    """The union of spans, as ordered spans without overlap."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.start <= found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


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
    found = filter(None, map(collective_of, complete))
    return Trace(calls, sorted(work, key=lambda one: one.start), list(found))


def collective_of(event: Mapping[str, Any]) -> Collective | None:
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
    each = ELEMENT_BYTES.get(kind.lower())
    return None if each is None else each * elements


def _elements(size: Any) -> int:
    """Number of elements for a tensor's size or a list of sizes."""
    if size and isinstance(size[0], list):
        return sum(map(_elements, size))
    return prod(size)


def _call(event: Mapping[str, Any]) -> HostCall:
    args = event.get("args", {})
    dtypes = (FLOAT_TYPES.get(name) for name in args.get("Input type", ()))
    return HostCall(
        name=event["name"],
        category=event["cat"],
        thread=event.get("tid"),
        start=event["ts"] / 1e6,
        seconds=event["dur"] / 1e6,
        dtype=next(filter(None, dtypes), None),
        correlation=args.get("correlation"),
    )


def _work(event: Mapping[str, Any]) -> DeviceWork:
    args = event.get("args", {})
    return DeviceWork(
        name=event["name"],
        start=event["ts"] / 1e6,
        seconds=event["dur"] / 1e6,
        correlation=args.get("correlation"),
        fills_device=args.get("blocks per SM", 1.0) >= 1.0,
    )


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
