"""What only a GPU can show. Skipped without one; `make test-gpu` runs it."""

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import (
    CheckpointSpec,
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    StoppingSpec,
)
from breakeven.runner.worker.device import monitor as device_monitor
from breakeven.runner.worker.device import nvml
from breakeven.runner.worker.device.device_kinds import CudaClock, CudaDevice
from breakeven.runner.worker.device.nvml import THROTTLE_REASONS, NvidiaDriver
from breakeven.runner.worker.device.other_processes import ExperimentProcesses
from breakeven.runner.worker.process_end import is_out_of_memory
from tests.helpers.loop import TurnsOnPaper, experiment, of_kind, run
from tests.runner.worker.script.scripts import Ran
from tests.runner.worker.script.scripts import experiment as script_experiment
from tests.runner.worker.script.scripts import run as run_script

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("fresh_torch"),
]
# Not texts, because transformers itself waits for the device in every forward pass, to see whether
# a padding mask is all ones.
IMAGES: dict[str, Any] = {
    "task": "image_classification",
    "model": ModelSpec(source="builtin:vit-small"),
    "data": DataSpec(source="builtin:digits", num_train_samples=240, num_eval_samples=10),
}


class StrictClock(CudaClock):
    """Makes every wait for the device between the start and the end of a block an error."""

    def start(self) -> None:
        super().start()
        torch.cuda.set_sync_debug_mode("error")

    def read(self) -> list[float]:
        torch.cuda.set_sync_debug_mode("default")
        return super().read()


def on_gpu(**changes: Any) -> ExperimentSpec:
    return experiment(devices=("cuda:0",), **changes)


@pytest.fixture
def strict_clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(CudaDevice, "clock", lambda self: StrictClock(self.torch_device))
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("label", ["baseline", "eager", "cudagraphs"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_nothing_waits_for_the_device_inside_a_block(
    tmp_path: Path, strict_clock: None, label: str, precision: str
) -> None:
    spec = on_gpu(**IMAGES, backends=("eager", "cudagraphs"))
    settings = replace(
        spec.training,
        precision=precision,
        max_steps=12,
        clip_norm=1.0,
        scheduler="cosine",
        gradient_statistics_every=2,
        losses=("model", "0.5*CrossEntropyLoss:label_smoothing=0.1"),
    )
    events = run(replace(spec, training=settings), tmp_path / "e.jsonl", label)
    assert len(of_kind(events, "step")) == 12


def test_looking_at_every_loss_waits_for_the_device(tmp_path: Path, strict_clock: None) -> None:
    spec = on_gpu(**IMAGES, stopping=StoppingSpec(nonfinite=True))
    with pytest.raises(RuntimeError, match="synchroniz"):
        run(spec, tmp_path / "e.jsonl")


@pytest.mark.parametrize("label", ["baseline", "cudagraphs"])
@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_a_resumed_training_is_that_of_an_uninterrupted_one_bit_for_bit(
    tmp_path: Path, label: str, precision: str
) -> None:
    spec = on_gpu(
        backends=("cudagraphs",) if label == "cudagraphs" else (),
        checkpoints=CheckpointSpec(every=3, unit="steps"),
        evaluation=EvaluationSpec(when="end"),
    )
    spec = replace(spec, training=replace(spec.training, precision=precision, scheduler="linear"))
    uninterrupted = run(spec, tmp_path / "whole", label)
    run(spec, tmp_path / "parts", label, TurnsOnPaper(num_turns=3))
    torch._dynamo.reset()
    torch.cuda.manual_seed(99)
    parts = run(spec, tmp_path / "parts", label)
    assert len(of_kind(parts, "resumed")) == 1
    losses = [
        {s["step"]: s["loss"] for s in of_kind(events, "step")} for events in (uninterrupted, parts)
    ]
    assert losses[0] == losses[1] and len(losses[0]) == 12


@pytest.mark.parametrize(
    ("backend", "last_batch"),
    [
        ("inductor", "drop"),
        ("inductor", "dynamic"),
        ("inductor:mode=reduce-overhead", "drop"),
        ("cudagraphs", "drop"),
    ],
)
def test_batches_cut_from_an_epoch_at_any_byte_train_like_the_baselines(
    tmp_path: Path, backend: str, last_batch: Literal["drop", "dynamic"]
) -> None:
    """Labels of 7 samples take 56 bytes, so that every second batch begins between multiples of
    16; of 26 samples 5 are left over. Code is compiled in the first step, which also warms up what
    is captured in the second."""
    spec = on_gpu(backends=(backend,))
    spec = replace(spec, training=replace(spec.training, batch_size=7, last_batch=last_batch))
    baseline = of_kind(run(spec, tmp_path / "baseline"), "step")
    events = run(spec, tmp_path / "compiled", spec.arms[-1].label)
    steps = of_kind(events, "step")
    assert len(steps) == len(baseline) == (6 if last_batch == "drop" else 8)
    losses = [[step["loss"] for step in run_steps] for run_steps in (steps, baseline)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    compiled = {
        (event["step"], event["trigger"] == "CUDAGRAPH_RECORDING")
        for event in of_kind(events, "compile_started")
        if event["phase"] == "training"
    }
    captures = spec.arms[-1].captures_cuda_graphs
    assert compiled == ({(0, False), (1, True)} if captures else {(0, False)})


def test_memory_and_device_are_recorded(tmp_path: Path) -> None:
    events = run(on_gpu(), tmp_path / "e.jsonl")
    (environment,) = of_kind(events, "environment")
    assert environment["device_name"] == torch.cuda.get_device_name(0)
    blocks = of_kind(events, "block")
    assert all(0 < b["peak_memory_bytes"] <= b["reserved_memory_bytes"] for b in blocks)


needs_nvml = pytest.mark.skipif(nvml.pynvml is None, reason="needs nvidia-ml-py")
ONE_GIB = 2**30
STRANGER = f"""
import os, sys
if os.fork():  # Whoever started this process ends, so that it is nobody's child.
    sys.exit()
os.setsid()
import torch
held = torch.empty({ONE_GIB}, dtype=torch.uint8, device="cuda:0")
torch.cuda.synchronize()
print(os.getpid(), flush=True)
import time
time.sleep(120)
"""


@contextmanager
def stranger_on_the_device() -> Iterator[int]:
    """A process that is no descendant of ours and holds 1 GiB; gives its pid."""
    child = subprocess.Popen([sys.executable, "-c", STRANGER], stdout=subprocess.PIPE)
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    try:
        yield pid
    finally:
        os.kill(pid, 9)
        child.wait()


def watched() -> NvidiaDriver:
    """The device of torch, with a tensor of this process on it."""
    torch.ones(1, device="cuda:0")
    return NvidiaDriver(torch.device("cuda:0"), ExperimentProcesses("x"))


@needs_nvml
def test_the_device_that_torch_uses_tells_how_it_is() -> None:
    device = watched()
    uuid = nvml.pynvml.nvmlDeviceGetUUID(device._handle)
    assert str(torch.cuda.get_device_properties(0).uuid) in uuid
    work = torch.randn(4096, 4096, device="cuda:0")
    device.begin()
    for _ in range(200):
        work = torch.tanh(work @ work)
    torch.cuda.synchronize()
    fields = device.end()
    assert 100 <= fields["sm_clock_mhz"] <= device.limits["max_sm_clock_mhz"]
    assert 400 <= fields["memory_clock_mhz"] <= 20_000
    assert 10 <= fields["temperature_celsius"] <= 100
    assert 20 <= fields["power_watts"] <= 1.2 * device.limits["power_limit_watts"]
    assert 0 < fields["energy_joules"] < 60 * device.limits["power_limit_watts"]
    assert set(fields["throttle_reasons"]) <= set(THROTTLE_REASONS.values())
    assert "power cap" in fields["throttled_seconds"]
    assert all(0 <= seconds < 60 for seconds in fields["throttled_seconds"].values())
    assert fields["device_memory_used_bytes"] >= work.nbytes


MICRO_BATCHES = """
import torch
import breakeven

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
model = breakeven.compile(model.cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
{before}
for _ in range(8):
    {for_each}
    for _ in range(2):
        loss = model(torch.randn(32, 16, device="cuda")).square().mean()
        loss.backward()
    optimizer.step()
    optimizer.zero_grad({clear})
    breakeven.step(loss)
"""
REDUCED, REDUCED_LABEL = "inductor:mode=reduce-overhead", "inductor-reduce-overhead"


def micro_batches(
    folder: Path, label: str, *, before: str = "", for_each: str = "pass", clear: str = ""
) -> Ran:
    folder.mkdir(exist_ok=True)
    code = MICRO_BATCHES.format(before=before, for_each=for_each, clear=clear)
    return run_script(folder, code, label, devices=("cuda:0",), backends=(REDUCED,))


def cause(error: BaseException, backend: str = REDUCED) -> Any:
    """The known cause of an error under a backend, for a script whose baseline trained."""
    causes = pytest.importorskip("breakeven.storage.words.known_causes")
    spec = script_experiment(Path("/train.py"), devices=("cuda:0",), backends=(backend,))
    lacks_memory = is_out_of_memory(error)
    failure = causes.Failure(
        spec=spec,
        arm=spec.arms[-1],
        text=backend,
        state=RunState.OUT_OF_MEMORY if lacks_memory else RunState.FAILED,
        message=f"{type(error).__name__}: {error}",
        traceback="".join(traceback.format_exception(error)),
    )
    return causes.find_cause(spec.arms[-1].label, failure)


def test_gradients_that_the_next_micro_batch_overwrites_are_the_cause(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as raised:
        micro_batches(tmp_path, REDUCED_LABEL)
    known_cause = cause(raised.value)
    assert known_cause.kind == "gradients in CUDA graphs"
    assert [remedy.backend for remedy in known_cause.remedies] == ["inductor"]


def test_an_output_that_the_graphs_next_run_overwrites_is_the_cause() -> None:
    model = torch.compile(torch.nn.Linear(8, 8).cuda(), mode="reduce-overhead")
    batch = torch.ones(4, 8, device="cuda")
    with torch.no_grad(), pytest.raises(RuntimeError) as raised:
        for _ in range(4):
            first = model(batch)
            model(batch)
            first.sum()
    assert cause(raised.value).kind == "CUDA graph overwritten"


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Limits this process to 768 MiB more of the device's memory than it uses now."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    allowed = torch.cuda.memory_reserved() + 768 * 2**20
    torch.cuda.set_per_process_memory_fraction(allowed / total)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize(
    ("mode", "kind", "remedy"),
    [
        ("max-autotune-no-cudagraphs", "out of memory while autotuning", "inductor"),
        ("reduce-overhead", "out of memory with CUDA graphs", "inductor"),
    ],
)
def test_memory_that_only_a_mode_needs_is_the_cause(
    little_memory: None, mode: Any, kind: str, remedy: str
) -> None:
    """A matrix of 450 MiB: its product fits into 768 MiB. Autotuning makes a second matrix to time
    kernels, and a graph copies the one that it is called with."""
    wide = torch.empty(15_360, 15_360, device="cuda", dtype=torch.bfloat16).normal_(0, 0.01)
    batch = torch.ones(64, 15_360, device="cuda", dtype=torch.bfloat16)

    def multiply(batch: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
        return torch.tanh(batch @ wide)

    with torch.no_grad():
        multiply(batch, wide)
        with pytest.raises(Exception, match="out of memory") as raised:
            for _ in range(4):
                torch.compile(multiply, mode=mode)(batch, wide)
    known_cause = cause(raised.value, f"inductor:mode={mode}")
    assert known_cause.kind == kind
    assert known_cause.remedies[0].backend == remedy


def test_shared_memory_that_a_kernel_exceeds_is_the_cause() -> None:
    from tests.faults.greedy_kernel import fail

    with pytest.raises(Exception, match="shared memory") as raised:
        fail()
    assert cause(raised.value, "inductor").kind == "shared memory exceeded"


def test_code_for_another_gpu_is_the_cause() -> None:
    other = "90" if torch.cuda.get_device_capability()[0] > 9 else "100"
    nothing = 'extern "C" __global__ void nothing() {}'
    with pytest.raises(RuntimeError, match="no kernel image") as raised:
        torch.cuda._compile_kernel(nothing, "nothing", compute_capability=other)
    assert cause(raised.value, "inductor").kind == "GPU not supported"


WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
import torch
torch.compile(lambda x: x + 1)(torch.ones(2, device="cuda"))
"""


def test_a_missing_triton_is_the_cause(tmp_path: Path) -> None:
    causes = pytest.importorskip("breakeven.storage.words.known_causes")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TRITON], capture_output=True, text=True, cwd=tmp_path
    )
    lines = done.stderr.strip().splitlines()
    (last,) = [line for line in lines if line.startswith("torch._inductor.exc.")][-1:]
    spec = script_experiment(Path("/train.py"), devices=("cuda:0",), backends=("inductor",))
    failure = causes.Failure(
        spec=spec,
        arm=spec.arms[-1],
        text="inductor",
        state=RunState.FAILED,
        message=last.removeprefix("torch._inductor.exc."),
        traceback=done.stderr,
    )
    assert causes.find_cause("inductor", failure).kind == "no Triton"


@pytest.mark.parametrize(
    "remedy",
    [
        {"for_each": "torch.compiler.cudagraph_mark_step_begin()"},
        {
            "before": "for p in model.parameters(): p.grad = torch.zeros_like(p)",
            "clear": "set_to_none=False",
        },
    ],
    ids=["one mark per step", "gradients of zeros"],
)
def test_each_advice_trains_what_the_training_without_a_compiler_learns(
    remedy: dict[str, str], tmp_path: Path
) -> None:
    plain = micro_batches(tmp_path / "plain", "baseline", **remedy)
    compiled = micro_batches(tmp_path / "compiled", REDUCED_LABEL, **remedy)
    assert compiled.losses == pytest.approx(plain.losses, rel=1e-4)
    assert len(compiled.losses) == 8


@needs_nvml
def test_another_process_on_the_device_is_noticed() -> None:
    """By its pid, if the driver's pids are those of this system; its memory in any case."""
    device = watched()
    before = {**device.end(), "processes": device.other_processes()}
    with stranger_on_the_device() as pid:
        during = {**device.end(), "processes": device.other_processes()}
    grown = during["device_memory_used_bytes"] - before["device_memory_used_bytes"]
    assert grown >= ONE_GIB
    if during["processes"] is None:
        pytest.skip("the driver does not list this process under its own pid (a container)")
    (seen,) = [process for process in during["processes"] if process["pid"] == pid]
    assert seen["memory_bytes"] is None or seen["memory_bytes"] >= ONE_GIB
    assert pid not in [process["pid"] for process in before["processes"]]


@needs_nvml
def test_every_block_has_a_sample_of_the_device_and_looking_is_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_monitor, "FIRST_FREE", 1000)
    events = run(on_gpu(), tmp_path / "e.jsonl")
    before, *samples = of_kind(events, "device")
    assert "round" not in before and before["sm_clock_mhz"] > 0
    blocks = of_kind(events, "block")
    assert [sample["first_step"] for sample in samples] == [b["first_step"] for b in blocks]
    assert all(sample["power_watts"] > 0 and sample["wall_seconds"] > 0 for sample in samples)
    device = watched()
    device.begin()
    started = time.perf_counter()
    for _ in range(20):
        device.begin()
        device.end()
    seconds = (time.perf_counter() - started) / 20
    assert seconds < 0.1


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@needs_nvml
def test_a_run_on_two_devices_has_the_energy_of_both() -> None:
    """The second works, the first does not."""
    places = [torch.device("cuda:0"), torch.device("cuda:1")]
    alone = watched()
    both = NvidiaDriver(places[0], ExperimentProcesses("x"), places)
    work = torch.randn(8192, 8192, device=places[1])
    alone.begin()
    both.begin()
    for _ in range(400):
        work = torch.tanh(work @ work)
    torch.cuda.synchronize(places[1])
    first, sum_of_both = alone.end()["energy_joules"], both.end()["energy_joules"]
    assert sum_of_both > 2 * first > 0


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@needs_nvml
def test_a_device_is_found_whatever_is_hidden_from_torch() -> None:
    last = torch.cuda.device_count() - 1
    code = (
        "import torch; from breakeven.runner.worker.device.nvml import NvidiaDriver, pynvml; "
        "from breakeven.runner.worker.device.other_processes import ExperimentProcesses; "
        "found = NvidiaDriver(torch.device('cuda:0'), ExperimentProcesses('x')); "
        "print(pynvml.nvmlDeviceGetUUID(found._handle))"
    )
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": str(last)}
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PROJECT_ROOT,
        env=hidden,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(torch.cuda.get_device_properties(last).uuid) in answer.stdout
