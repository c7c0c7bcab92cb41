"""What a trace of the profiler says: who called whom, what the device did for whom, what ranks sent
each other; by hand."""

import json
from typing import Any

import pytest

from breakeven.runner.worker.training import kernel_times
from breakeven.runner.worker.training.kernel_times import Kernel, Span


def event(
    category: str, name: str, start: float, duration: float, thread: int = 1, **arguments: Any
) -> dict[str, Any]:
    """Times in microseconds, as traces have them."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": start,
        "dur": duration,
        "tid": thread,
        "args": arguments,
    }


def trace_of(*events: dict[str, Any]) -> kernel_times.Trace:
    named = [{"ph": "M", "name": "process_name"}, *events]
    return kernel_times.read_trace(json.dumps({"traceEvents": named}).encode())


def test_what_runs_at_once_shares_its_time() -> None:
    """0 to 4 and 2 to 6: of the two seconds together each has one, so 3 and 3, 6 in all. A third
    kernel of 1 s comes after a gap."""
    spans = [Span(0, 4), Span(2, 6), Span(10, 11)]
    assert kernel_times.shared_seconds(spans) == pytest.approx([3, 3, 1])


def test_a_kernel_belongs_to_the_operator_that_started_it() -> None:
    trace = trace_of(
        event("cpu_op", "aten::linear", 0, 50),
        event("cpu_op", "aten::addmm", 10, 30, **{"Input type": ["c10::BFloat16", "Scalar"]}),
        event("cuda_runtime", "cudaLaunchKernel", 20, 5, correlation=7),
        event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 60, 30, thread=2),
        event("cpu_op", "aten::mm", 65, 20, thread=2, **{"Input type": ["float", "float"]}),
        event("cuda_runtime", "cudaLaunchKernel", 70, 5, thread=2, correlation=8),
        event("user_annotation", "Optimizer.step#Adam.step", 100, 20),
        event("cuda_runtime", "cudaLaunchKernel", 105, 5, correlation=9),
        event("kernel", "gemm", 200, 40, correlation=7),
        event("kernel", "gemm", 250, 60, correlation=8),
        event("kernel", "adam", 320, 10, correlation=9, **{"blocks per SM": 0.2}),
        event("gpu_memset", "Memset (Device)", 340, 1, correlation=99),
    )
    costs = kernel_times.device_costs(trace)
    assert costs[Kernel("gemm", "aten::addmm", "forward", "bf16")].seconds == pytest.approx(40e-6)
    assert costs[Kernel("gemm", "aten::mm", "backward", "float32")].seconds == pytest.approx(60e-6)
    assert costs[Kernel("adam", None, "optimizer", None)].calls == 1
    assert costs[Kernel("Memset (Device)", None, None, None)].calls == 1
    assert kernel_times.num_launches(trace) == 3
    assert kernel_times.underfilled_seconds(trace) == pytest.approx(10e-6)
    assert kernel_times.host_seconds(trace) == pytest.approx(
        {"backward": 30e-6, "optimizer": 20e-6, "guards": 0.0, "between_graphs": 0.0}
    )


def test_of_kernels_in_a_replayed_graph_nobody_says_who_started_them() -> None:
    trace = trace_of(
        event("cpu_op", "CompiledFunction", 0, 50),
        event("cuda_runtime", "cudaGraphLaunch", 10, 5, correlation=7),
        event("kernel", "gemm", 20, 4, correlation=7),
        event("kernel", "add", 30, 6, correlation=7),
    )
    assert set(kernel_times.device_costs(trace)) == {
        Kernel("gemm", None, None, None),
        Kernel("add", None, None, None),
    }
    assert kernel_times.num_launches(trace) == 1


def test_on_the_cpu_an_operator_counts_without_those_it_called() -> None:
    """linear 50 us, of which addmm 30, of which copy_ 10; Inductor's code 40 us around an mm of
    15; autograd's own work is no operator's."""
    graph = "## Call CompiledFxGraph foihcyjnxfllcavvc6mmbkb5 ##"
    trace = trace_of(
        event("cpu_op", "aten::linear", 0, 50),
        event("cpu_op", "aten::addmm", 10, 30, **{"Input type": ["float"]}),
        event("cpu_op", "aten::copy_", 15, 10),
        event("user_annotation", graph, 100, 40),
        event("cpu_op", "aten::mm", 110, 15, **{"Input type": ["float"]}),
        event("cpu_op", "autograd::engine::evaluate_function: MulBackward0", 200, 30),
        event("cpu_op", "torch::autograd::AccumulateGrad", 205, 10),
    )
    seconds = {kernel.name: cost.seconds for kernel, cost in kernel_times.cpu_costs(trace).items()}
    assert seconds == pytest.approx(
        {
            "aten::linear": 20e-6,
            "aten::addmm": 20e-6,
            "aten::copy_": 10e-6,
            "CompiledFxGraph foihcyjn": 25e-6,
            "aten::mm": 15e-6,
        }
    )


def test_operators_of_threads_that_run_at_once_share_the_time() -> None:
    """Thread 1: 0 to 40, in which another operator works from 10 to 20. Thread 2: 15 to 55. Both
    run from 15 to 40, each for half of it: 10 + 10, 5 + 2.5 and 12.5 + 15; together 55 us, not 80.
    """
    trace = trace_of(
        event("cpu_op", "aten::linear", 0, 40),
        event("cpu_op", "aten::addmm", 10, 10),
        event("cpu_op", "aten::mul", 15, 40, thread=2),
        event("cpu_op", "autograd::engine::evaluate_function: X", 12, 50, thread=2),
    )
    seconds = {kernel.name: cost.seconds for kernel, cost in kernel_times.cpu_costs(trace).items()}
    assert seconds == pytest.approx(
        {"aten::linear": 20e-6, "aten::addmm": 7.5e-6, "aten::mul": 27.5e-6}
    )
    assert {cost.calls for cost in kernel_times.cpu_costs(trace).values()} == {1}


def test_a_call_that_outlasts_its_caller_is_counted_once() -> None:
    """0 to 50 and 40 to 100: clocks of two recorders. 100 us, not 110, nor 60."""
    trace = trace_of(event("cpu_op", "aten::mm", 0, 50), event("cpu_op", "aten::add", 40, 60))
    seconds = {kernel.name: cost.seconds for kernel, cost in kernel_times.cpu_costs(trace).items()}
    assert seconds == pytest.approx({"aten::mm": 40e-6, "aten::add": 60e-6})


def test_what_the_host_does_twice_at_once_or_within_itself_is_counted_once() -> None:
    backward, guards = "autograd::engine::evaluate_function: X", "TorchDynamo Cache Lookup"
    trace = trace_of(
        event("cpu_op", backward, 0, 30, thread=2),
        event("cpu_op", backward, 5, 35, thread=3),
        event("cpu_op", guards, 0, 50),
        event("cpu_op", guards, 10, 20),
        event("cpu_op", guards, 80, 5),
    )
    seconds = kernel_times.host_seconds(trace)
    assert (seconds["backward"], seconds["guards"]) == pytest.approx((40e-6, 55e-6))


def test_time_between_graphs_of_one_function_is_what_its_breaks_cost() -> None:
    """A function of three graphs, 10 to 30, 50 to 60 and 65 to 90: 25 us between them. Another of
    one graph, and the graphs of two functions beside each other, need none."""
    trace = trace_of(
        event("cpu_op", "Torch-Compiled Region: 0/0", 0, 100),
        event("cpu_op", "CompiledFunction", 10, 20),
        event("user_annotation", "## Call CompiledFxGraph fabc ##", 12, 10),
        event("cpu_op", "Torch-Compiled Region: 1/0", 40, 58),
        event("cpu_op", "CompiledFunction", 50, 10),
        event("cpu_op", "CompiledFunction", 65, 25),
        event("cpu_op", "Torch-Compiled Region: 2/0", 200, 50),
        event("cpu_op", "CompiledFunction", 210, 20),
    )
    assert kernel_times.host_seconds(trace)["between_graphs"] == pytest.approx(25e-6)


def test_a_backward_pass_between_graphs_is_no_break() -> None:
    """A whole iteration: forward, backward on another thread, as on a GPU, and the optimizer."""
    trace = trace_of(
        event("cpu_op", "Torch-Compiled Region: 0/0", 0, 100),
        event("cpu_op", "CompiledFunction", 10, 20),
        event("cpu_op", "autograd::engine::evaluate_function: X", 35, 30, thread=2),
        event("cpu_op", "CompiledFunctionBackward", 40, 20, thread=2),
        event("user_annotation", "## Call CompiledFxGraph fabc ##", 70, 20),
    )
    assert kernel_times.host_seconds(trace)["between_graphs"] == 0.0


def test_of_very_many_kernels_the_least_are_one_row() -> None:
    costs = {
        Kernel(f"k{i}", None, None, None): kernel_times.Cost(1, float(i))
        for i in range(kernel_times.MAX_KERNELS + 5)
    }
    rows = list(kernel_times.most_costly(costs))
    assert len(rows) == kernel_times.MAX_KERNELS
    assert rows[0][1].seconds == kernel_times.MAX_KERNELS + 4
    # 0 to 5 are left: six of them, 15 s together.
    assert rows[-1][0].name == "6 others" and rows[-1][1].seconds == 15


def gloo(name: str, start: float, duration: float, kinds: list[str], sizes: Any) -> Any:
    arguments = {"Input type": kinds, "Input Dims": sizes}
    return event("user_annotation", f"gloo:{name}", start, duration, thread=2, **arguments)


def test_on_cpus_what_operators_compute_hides_communication() -> None:
    trace = trace_of(
        event("cpu_op", "aten::mm", 0, 15),
        event("cpu_op", "aten::add", 12, 3),
        event("cpu_op", "c10d::allreduce_", 16, 2),
        event("cpu_op", "autograd::engine::evaluate_function: X", 10, 90, thread=3),
        event("cpu_op", "aten::mul", 35, 2.5),
        gloo("all_reduce", 10, 20, ["float"], [[10, 5]]),
        gloo("all_reduce", 20, 20, ["c10::BFloat16"], [[[4], [6]]]),
        gloo("broadcast", 60, 10, ["ScalarList"], [[]]),
    )
    seconds = kernel_times.communication(trace, 2, device_works_by_itself=False)
    # Under way from 10 to 40 and from 60 to 70; computing from 0 to 15 and from 35 to 37.5.
    assert seconds == pytest.approx(
        {
            "compute_seconds": 17.5e-6 / 2,
            "communication_seconds": 20e-6,
            "exposed_seconds": 32.5e-6 / 2,
        }
    )
    reduced, sent = kernel_times.by_collective(trace, 2)
    assert reduced == {
        "name": "all_reduce",
        "calls": 1.0,
        "sent_bytes": (200 + 20) / 2,
        "seconds": pytest.approx(15e-6),
    }
    assert (sent["name"], sent["sent_bytes"]) == ("broadcast", None)


def test_on_gpus_kernels_of_nccl_are_communication_and_others_hide_it() -> None:
    arguments = {"Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float"}
    trace = trace_of(
        event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, 40, **arguments),
        event("kernel", "gemm", 10, 20),
    )
    (collective,) = trace.collectives
    assert (collective.name, collective.bytes) == ("allreduce", 400)
    assert kernel_times.communication(trace, 1, device_works_by_itself=True) == pytest.approx(
        {"compute_seconds": 20e-6, "communication_seconds": 40e-6, "exposed_seconds": 20e-6}
    )


def test_what_is_no_trace_is_refused() -> None:
    with pytest.raises(ValueError):
        kernel_times.read_trace(b"{")
