"""Communication in a trace, by hand: what is under way, what computing hides, how many bytes."""

from typing import Any

import pytest

from breakeven.runner.worker.training.kernels import (
    DeviceWork,
    HostCall,
    Span,
    Trace,
    by_collective,
    collective_of,
    communication,
)


def event(name: str, category: str, start: float, seconds: float, **told: Any) -> dict[str, Any]:
    return {"name": name, "cat": category, "ts": start * 1e6, "dur": seconds * 1e6, "args": told}


GLOO = [
    event("gloo:all_reduce", "user_annotation", 1.0, 2.0,
          **{"Input type": ["float"], "Input Dims": [[10, 5]]}),
    event("gloo:all_reduce", "user_annotation", 2.0, 2.0,
          **{"Input type": ["c10::BFloat16"], "Input Dims": [[[4], [6]]]}),
    event("gloo:broadcast", "user_annotation", 6.0, 1.0, **{"Input type": ["ScalarList"],
                                                            "Input Dims": [[]]}),
]  # fmt: skip


def call(name: str, start: float, seconds: float) -> HostCall:
    return HostCall(
        name=name, category="cpu_op", thread=1, start=start, seconds=seconds, dtype=None,
        correlation=None,
    )  # fmt: skip


def work(name: str, start: float, seconds: float) -> DeviceWork:
    return DeviceWork(name=name, start=start, seconds=seconds, correlation=None, fills_device=True)


def test_on_cpus_what_operators_compute_hides_communication() -> None:
    calls = [
        call("aten::mm", 0.0, 1.5), call("aten::add", 1.2, 0.3), call("c10d::allreduce_", 1.6, 0.2),
        call("autograd::engine::evaluate_function: X", 1.0, 9.0), call("aten::mul", 3.5, 0.25),
    ]  # fmt: skip
    trace = Trace(calls, [], [one for one in map(collective_of, GLOO) if one])
    told = communication(trace, 2, device_works_by_itself=False)
    # Under way from 1 to 4 and from 6 to 7; computing from 0 to 1.5 and from 3.5 to 3.75.
    assert told == pytest.approx(
        {"compute_seconds": 1.75 / 2, "communication_seconds": 2.0, "exposed_seconds": 3.25 / 2}
    )
    reduced, sent = by_collective(trace, 2)
    assert reduced == {"name": "all_reduce", "calls": 1.0, "sent_bytes": (200 + 20) / 2,
                       "seconds": 1.5}  # fmt: skip
    assert (sent["name"], sent["sent_bytes"]) == ("broadcast", None)


def test_on_gpus_kernels_of_nccl_are_communication_and_others_hide_it() -> None:
    kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    told = {"Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float"}
    found = collective_of(event(kernel, "kernel", 0.0, 4.0, **told))
    assert found is not None
    assert (found.name, found.span, found.bytes) == ("allreduce", Span(0.0, 4.0), 400)
    trace = Trace([], [work(kernel, 0.0, 4.0), work("gemm", 1.0, 2.0)], [found])
    assert communication(trace, 1, device_works_by_itself=True) == {
        "compute_seconds": 2.0, "communication_seconds": 4.0, "exposed_seconds": 2.0,
    }  # fmt: skip
    assert collective_of(event("gemm", "kernel", 0.0, 1.0)) is None
