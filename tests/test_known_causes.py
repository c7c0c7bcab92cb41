"""The cause of a failure is named by a rule, of errors that trainings in this process provoke.

Of what only a GPU can provoke, the messages of torch and Triton are given: CUDA graphs that were
overwritten, memory with CUDA graphs and while autotuning, no Triton, a GPU that torch does not
support, shared memory.
"""

import builtins
import math
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch._dynamo.backends.registry import list_backends, register_backend
from torch._inductor import scheduler
from torch.utils.data import DataLoader, Dataset

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.exit_status import explain
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.specs.experiment import (
    DataSpec,
    ExperimentSpec,
    ModelSpec,
    RunSpec,
    TrainingSpec,
)
from breakeven.runner.specs.ladder import ladder_on
from breakeven.runner.specs.place import Parallel
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.process_end import describe_failure, status_after
from breakeven.runner.worker.session import run_session
from breakeven.storage.index.store import Store
from breakeven.storage.terminal.report import causes_report
from breakeven.storage.words.known_causes import (
    RULES,
    Failure,
    KnownCause,
    find_cause,
    known_causes,
    remedy_text,
)
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec
from tests.helpers.loop import FAULTS, TurnsOnPaper

pytestmark = pytest.mark.heavy
trains = pytest.mark.usefixtures("fresh_torch", "backends")
TRAINING = TrainingSpec(losses=("CrossEntropyLoss",), batch_size=8, max_steps=2, epochs=2)


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(FAULTS))
    from tests.faults.failing_models import BACKENDS

    for backend in BACKENDS:
        if backend.__name__ not in list_backends(exclude_tags=None):
            register_backend(backend, name=backend.__name__)
    yield


def spec_of(model: str = "relu_net.py:ReluNet", backend: str = "eager", **changes: Any) -> Any:
    """Two steps of a small network."""
    training = replace(TRAINING, **changes)
    return ExperimentSpec(
        name="failing",
        task="custom",
        backends=(backend,),
        controls=0,
        block_steps=2,
        model=ModelSpec(source=f"{FAULTS / model}"),
        training=training,
        profile_steps=0,
        data=DataSpec(
            source=f"{FAULTS / 'relu_net.py'}:samples", num_train_samples=320, num_eval_samples=10
        ),
    )


def causes(folder: Path, spec: ExperimentSpec) -> dict[str, KnownCause]:
    """Trains every run as its worker and its supervisor would; returns the failures."""
    data_dir = DataDir(folder)
    for arm in spec.arms:
        run_spec = RunSpec(experiment_id="failing", experiment=spec, arm=arm)
        run = RunDir(data_dir.runs / run_spec.run_id)
        run.write_spec(run_spec)
        log, status = EventLog(run.events_file), 0
        try:
            with mock.patch.dict(os.environ, {CODE_VARIABLE: str(FAULTS)}):
                run_session(run, run_spec, log, TurnsOnPaper())
        except Exception as error:
            log.append("error", **describe_failure(error))
            status = status_after(error)
        log.close()
        run.write_exit(Exit.now(*explain(status), status))
        torch._dynamo.reset()
    with Store.in_memory(data_dir) as store:
        return {cause.label: cause for cause in known_causes(store, "failing")}


def only(causes_by_label: dict[str, KnownCause]) -> tuple[str, list[str]]:
    """Kind and remedies of the only cause, which is not the baseline's."""
    ((label, cause),) = causes_by_label.items()
    assert label != "baseline"
    return cause.kind, [remedy_text(remedy) for remedy in cause.remedies]


LADDER = ["--ladder"]
HALF = "--batch-size=4 --set=training.gradient_accumulation=2"


FULL = "eager:scope=forward+fullgraph=true"
FAILING = [
    ("failing_models.py:Branching", {FULL: ("data-dependent operation", ["eager:scope=forward"])}),
    ("failing_models.py:Printing", {FULL: ("graph break", ["eager:scope=forward"])}),
    (
        "failing_models.py:Counting",
        {FULL: ("recompile limit", [f"{FULL}+dynamic=true", "eager:scope=forward"])},
    ),
    (
        "relu_net.py:ReluNet",
        {
            "hungry_compiler": (
                "out of memory while compiling",
                ["hungry_compiler:scope=blocks", HALF],
            ),
            "ignorant_compiler:scope=forward": ("unknown operator", LADDER),
            "broken_compiler:scope=forward": ("unknown", LADDER),
            "without_gradients:scope=forward": (
                "inference only",
                ["--scenario=speed --speed-part=inference"],
            ),
            "not_a_number:scope=forward": ("loss not finite", LADDER),
            "indcutor": ("backend missing", []),
        },
    ),
    ("relu_net.py:ReluNet", {"tvm:scope=forward": ("backend missing", [])}),
]


@trains
@pytest.mark.parametrize(("model", "failing"), FAILING)
def test_a_failure_under_a_backend_has_its_cause_and_what_to_try(
    tmp_path: Path, model: str, failing: dict[str, tuple[str, list[str]]]
) -> None:
    spec = replace(spec_of(model, max_steps=4), backends=tuple(failing))
    with torch._dynamo.config.patch(recompile_limit=2):
        known = causes(tmp_path, spec)
    kinds = {
        arm.text: only({arm.label: known.pop(arm.label)})
        for arm in spec.arms
        if arm.role == "backend"
    }
    assert (kinds, known) == (failing, {})


@pytest.mark.slow
@trains
def test_without_a_cpp_compiler_that_is_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    with torch._inductor.config.patch({"cpp.cxx": ("/bin/false",)}):
        known = causes(tmp_path, spec_of(backend="inductor:scope=forward"))
    assert only(known) == ("no C++ compiler", [])


@trains
def test_without_triton_that_is_the_cause_although_torch_takes_its_frames_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor takes the CPU for a GPU, and raises when it begins to generate code for it."""
    create = scheduler.Scheduler.create_backend
    monkeypatch.setattr(scheduler, "has_triton", lambda: False)
    monkeypatch.setattr(scheduler, "is_gpu", lambda kind: True)
    monkeypatch.setattr(
        scheduler.Scheduler,
        "create_backend",
        lambda self, device: create(self, torch.device("cpu", 0)),
    )
    known = causes(tmp_path, spec_of(backend="inductor:scope=forward"))
    assert only(known) == ("no Triton", ["aot_eager:scope=forward"])


@trains
@pytest.mark.parametrize(
    ("model", "changes", "kind", "remedies"),
    [
        ("failing_models.py:Misshaped", {}, "fault of the code", []),
        ("failing_models.py:Hungry", {}, "out of memory", [HALF, "--schedule=sequential"]),
        (
            "relu_net.py:ReluNet",
            {"learning_rate": 1e4, "optimizer": "SGD", "max_steps": 8},
            "loss not finite, as the baseline's",
            ["--learning-rate=1000.0", "--set=training.clip_norm=1.0"],
        ),
    ],
)
def test_what_the_baseline_has_as_well_is_never_blamed_on_a_compiler(
    tmp_path: Path, model: str, changes: dict[str, Any], kind: str, remedies: list[str]
) -> None:
    known = causes(tmp_path, spec_of(model, "eager:scope=forward", **changes))
    (cause, *others) = known.values()
    assert {cause.kind, *(other.kind for other in others)} == {kind}
    assert [remedy_text(remedy) for remedy in cause.remedies] == remedies


@trains
def test_a_hub_name_without_a_network_is_the_cause_of_every_run(tmp_path: Path) -> None:
    """`HF_HUB_OFFLINE` is set in all tests."""
    spec = replace(
        spec_of(),
        task="text_classification",
        model=ModelSpec(source="nobody/nothing"),
        data=DataSpec(num_train_samples=320, num_eval_samples=10),
    )
    spec = replace(spec, training=replace(TRAINING, losses=("model",)))
    assert {cause.kind for cause in causes(tmp_path, spec).values()} == {"hub unreachable"}


def failure(message: str, backend: str = "inductor", **facts: Any) -> Failure:
    text, trace = facts.pop("text", backend), facts.pop("traceback", "")
    state, baseline = facts.pop("state", RunState.FAILED), facts.pop("baseline", None)
    arm = parse_backend(backend)
    spec = replace(spec_of(backend=backend, **facts), devices=("cuda:0",))
    return Failure(
        spec=spec,
        arm=arm,
        text=text,
        state=state,
        message=message,
        traceback=trace,
        baseline=baseline,
    )


def kind_and_remedies(failed: Failure) -> tuple[str, list[str]]:
    return only({"inductor": find_cause("inductor", failed)})  # type: ignore[dict-item]


def test_a_process_that_the_system_kills_is_said_to_have_been_killed() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process.send_signal(signal.SIGKILL)
    _, reason = explain(process.wait())
    assert kind_and_remedies(failure(reason)) == ("killed", [HALF, "--schedule=sequential"])


OVERWRITTEN = (
    "RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten by a "
    "subsequent run. Stack trace: None. To prevent overwriting, clone the tensor outside of "
    "torch.compile() or call torch.compiler.cudagraph_mark_step_begin() before each model "
    "invocation."
)
BACKWARD = '  File "/torch/autograd/graph.py", line 869, in _engine_run_backward'
CUDA_MEMORY = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
SHARED_MEMORY = (
    "InductorError: RuntimeError: No valid triton configs. OutOfResources: out of resource: shared "
    "memory, Required: 262144, Hardware limit: 232448. Reducing block sizes or `num_stages` may "
    "help."
)
AUTOTUNING = '  File "/torch/_inductor/select_algorithm.py", line 3290, in benchmark_choice'
MAX, NO_GRAPHS = "inductor:mode=max-autotune", "inductor:mode=max-autotune-no-cudagraphs"
REDUCED, WITHOUT = "inductor:mode=reduce-overhead", "inductor"


@pytest.mark.parametrize(
    ("failed", "kind", "remedies"),
    [
        (
            failure(OVERWRITTEN, MAX, traceback=BACKWARD, gradient_accumulation=2),
            "gradients in CUDA graphs",
            [NO_GRAPHS],
        ),
        (failure(OVERWRITTEN, MAX, traceback=BACKWARD), "CUDA graph overwritten", [NO_GRAPHS]),
        (failure(OVERWRITTEN, REDUCED), "CUDA graph overwritten", [WITHOUT]),
        (
            failure(OVERWRITTEN, "inductor:triton.cudagraphs=true+scope=forward"),
            "CUDA graph overwritten",
            ["inductor:scope=forward"],
        ),
        (failure(OVERWRITTEN, "cudagraphs"), "CUDA graph overwritten", [WITHOUT]),
        (failure(OVERWRITTEN, REDUCED, text=None), "CUDA graph overwritten", []),
        (
            failure(CUDA_MEMORY, MAX, traceback=AUTOTUNING, state=RunState.OUT_OF_MEMORY),
            "out of memory while autotuning",
            [REDUCED, HALF],
        ),
        (
            failure(CUDA_MEMORY, REDUCED, state=RunState.OUT_OF_MEMORY),
            "out of memory with CUDA graphs",
            [WITHOUT, HALF],
        ),
        (
            failure(CUDA_MEMORY, batch_size=1, state=RunState.OUT_OF_MEMORY),
            "out of memory",
            ["--schedule=sequential"],
        ),
        (
            failure(CUDA_MEMORY, "eager:batch_times=2", state=RunState.OUT_OF_MEMORY),
            "out of memory",
            ["--schedule=sequential"],
        ),
        (failure(SHARED_MEMORY, MAX), "shared memory exceeded", [REDUCED, *LADDER]),
        (
            failure("InductorError: TritonMissing: Cannot find a working triton installation."),
            "no Triton",
            ["aot_eager"],
        ),
        (
            failure(
                "InductorError: GPUTooOldForTriton: Found Tesla P100 which is too old to be "
                "supported by the triton GPU compiler"
            ),
            "no Triton",
            ["aot_eager"],
        ),
        (
            failure(
                "AcceleratorError: CUDA error: no kernel image is available for execution on the "
                "device"
            ),
            "GPU not supported",
            [],
        ),
    ],
)
def test_what_only_a_gpu_can_provoke_is_known_by_its_words(
    failed: Failure, kind: str, remedies: list[str]
) -> None:
    assert kind_and_remedies(failed) == (kind, remedies)


@pytest.mark.parametrize(
    ("own", "kind"),
    [
        ("1.10 GiB", "memory held by others"),
        ("930.50 MiB", "memory held by others"),
        ("19.77 GiB", "memory held by others"),
        ("19.78 GiB", "out of memory with CUDA graphs"),
    ],
)
def test_memory_that_other_processes_hold_is_not_blamed_on_the_model(own: str, kind: str) -> None:
    """The message of torch 2.11.0 on an H100 of 79.18 GiB, of which 79.162 GiB are not free; three
    quarters of the whole are 59.385 GiB, which leaves 19.777 GiB."""
    message = (
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total "
        "capacity of 79.18 GiB of which 18.25 MiB is free. Process 888 has 10.72 GiB memory in "
        f"use. Including non-PyTorch memory, this process has {own} memory in use. Of the "
        "allocated memory 119.73 MiB is allocated by PyTorch, and 22.27 MiB is reserved by PyTorch "
        "but unallocated."
    )
    failed = failure(message, REDUCED, state=RunState.OUT_OF_MEMORY)
    assert kind_and_remedies(failed)[0] == kind


def test_memory_that_a_limit_withholds_is_not_held_by_others() -> None:
    """The message of torch 2.11.0 on an H200 where the process may use 768 MiB."""
    message = (
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 450.00 MiB. GPU 0 has a total "
        "capacity of 139.80 GiB of which 137.96 GiB is free. Including non-PyTorch memory, this "
        "process has 1.26 GiB memory in use. 768.00 MiB allowed; Of the allocated memory 451.88 "
        "MiB is allocated by PyTorch, and 10.12 MiB is reserved by PyTorch but unallocated."
    )
    failed = failure(message, REDUCED, state=RunState.OUT_OF_MEMORY)
    assert kind_and_remedies(failed)[0] == "out of memory with CUDA graphs"


@pytest.mark.parametrize("parallel", ["fsdp", "ddp"])
def test_cuda_graphs_beside_sharded_gradients_are_named(parallel: Parallel) -> None:
    """The message of torch 2.11.0 on two H200, of a compiled optimizer with CUDA graphs."""
    failed = failure(
        "InternalTorchDynamoError: RuntimeError: Attempted to access the data pointer on an "
        "invalid python storage.",
        "inductor:mode=reduce-overhead+optimizer=fused",
        traceback='File "torch/_inductor/cudagraph_trees.py", line 786, in '
        "_is_cuda_graph_recorded_tensor",
    )
    failed = replace(
        failed, spec=replace(failed.spec, devices=("cuda:0", "cuda:1"), parallel=parallel)
    )
    known = find_cause("inductor", failed)
    assert (known is not None) == (parallel == "fsdp")
    if known is not None:
        assert known.kind == "sharded gradients beside CUDA graphs"
        assert [remedy_text(remedy) for remedy in known.remedies] == ["inductor:optimizer=fused"]


def test_memory_that_the_baseline_lacks_as_well_is_not_that_of_cuda_graphs() -> None:
    baseline = failure(CUDA_MEMORY, "none:optimizer=fused", state=RunState.OUT_OF_MEMORY)
    failed = failure(
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB.",
        REDUCED,
        state=RunState.OUT_OF_MEMORY,
        baseline=baseline,
    )
    assert kind_and_remedies(failed)[0] == "out of memory"


@pytest.mark.parametrize(
    "message",
    [
        "MemoryError: Unable to allocate 7 GiB",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 7 bytes.",
    ],
)
def test_memory_of_the_machine_is_not_that_of_cuda_graphs(message: str) -> None:
    failed = failure(message, REDUCED, state=RunState.OUT_OF_MEMORY)
    failed = replace(failed, spec=replace(failed.spec, devices=("cuda:0",)))
    assert kind_and_remedies(failed) == ("out of the machine's memory", ["--schedule=sequential"])
    on_cpu = replace(failed, spec=replace(failed.spec, devices=("cpu",)))
    assert kind_and_remedies(on_cpu)[0] == "out of memory"


@pytest.mark.parametrize(
    ("message", "state"),
    [
        ("", RunState.LOST),
        ("its process and supervisor vanished", RunState.LOST),
        ("worked longer than its limit of 60 s", RunState.TIMEOUT),
        ("OSError: [Errno 28] No space left on device: 'x'", RunState.FAILED),
        ("the disk was full; free some space", RunState.FAILED),
        ("ended by signal SIGTERM", RunState.FAILED),
    ],
)
def test_an_end_that_the_baseline_shares_without_an_error_is_no_fault_of_the_code(
    message: str, state: RunState
) -> None:
    baseline = failure(message, "none:optimizer=fused", state=state)
    assert find_cause("inductor", failure(message, state=state, baseline=baseline)) is None


@pytest.mark.parametrize(
    ("message", "facts"),
    [
        (CUDA_MEMORY, {"state": RunState.OUT_OF_MEMORY, "backend": REDUCED}),
        ("InductorError: LoweringException: no", {}),
        ("InductorError: no", {}),
        ("the loss is not finite", {}),
    ],
)
def test_without_a_baseline_that_trained_no_cause_says_what_the_baseline_does(
    message: str, facts: dict[str, Any]
) -> None:
    failed = failure(message, **facts)
    alone = find_cause("inductor", replace(failed, has_baseline=False))
    assert find_cause("inductor", failed) != alone
    assert alone is None or "baseline" not in alone.words


def recorded_causes(data_dir: DataDir, spec: ExperimentSpec, **errors: str) -> dict[str, str]:
    """Kinds of causes of a run that fails with its error in its first step, or that never began."""
    for arm in spec.arms:
        message = errors.get(arm.label.replace("@", "_"))
        run = Recording(data_dir.runs, arm.label, spec)
        if message is None:
            continue
        run.claim().start()
        if message:
            kind, _, text = message.partition(": ")
            run.log.append("error", error=kind, message=text, traceback="")
            run.end(RunState.FAILED, "exit status 1")
        else:
            run.blocks([0.1] * 2, [1.0] * 20).end()
    with Store.in_memory(data_dir) as store:
        return {cause.label: cause.kind for cause in known_causes(store, EXPERIMENT_ID)}


def test_a_baseline_that_waits_shows_nothing_about_an_error(tmp_path: Path) -> None:
    message, spec = "InductorError: AssertionError: 7", experiment_spec(20, 10)
    assert recorded_causes(DataDir(tmp_path / "1"), spec, inductor=message) == {}
    trained = recorded_causes(DataDir(tmp_path / "2"), spec, inductor=message, baseline="")
    assert trained == {"inductor": "unknown"}


def test_each_environment_has_a_baseline_of_its_own(tmp_path: Path) -> None:
    spec = experiment_spec(20, 10, environments=("old=/a/python", "new=/b/python"))
    message = "InductorError: KeyError: 'fused_moments'"
    kinds = recorded_causes(
        DataDir(tmp_path),
        spec,
        baseline_old=message,
        inductor_old=message,
        baseline_new="",
        inductor_new=message,
    )
    assert kinds == {"inductor@old": "fault of the code", "inductor@new": "unknown"}


OWN = """
{own}

def forward(x):
    if x: raise {kind}({text!r})

forward(1)
"""


def own_error(folder: Path, kind: str, text: str) -> dict[str, Any]:
    """The event of an error that a person's own file raised."""
    file = folder / "train.py"
    own = "" if kind in vars(builtins) else f"class {kind}(Exception): pass"
    file.write_text(OWN.format(own=own, kind=kind, text=text))
    try:
        runpy.run_path(str(file))
    except Exception as error:
        return describe_failure(error)
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("kind", "text", "backend"),
    [
        ("RuntimeError", OVERWRITTEN.partition(": ")[2], REDUCED),
        ("RuntimeError", "out of memory for the cache of tokens", "inductor"),
        ("RuntimeError", "CUDA out of memory, said a person", REDUCED),
        ("ValueError", "out of memory budget of 3 samples", REDUCED),
        ("RuntimeError", "worker 3 is killed by signal: Killed", "inductor"),
        ("FailOnRecompileLimitHit", "recompile_limit is 8", "inductor"),
        ("Unsupported", "data-dependent prior", "inductor:scope=forward+fullgraph=true"),
        ("Unsupported", "file format 7", "inductor:scope=forward+fullgraph=true"),
        ("InvalidCxxCompiler", "Compiler: nvcc is not found", "inductor"),
        ("TritonMissing", "Cannot find a working triton for own kernels", "inductor"),
        ("RuntimeError", "CUDA error: no kernel image is available for own kernels", "inductor"),
        ("OutOfResources", "out of resource: shared memory of own kernels", "inductor"),
        ("WorkloadError", "backend 'own' is for inference alone", "eager"),
        ("WorkloadError", "backend 'own' is not registered here", "eager"),
        ("BackendCompilerFailed", "backend='own' raised:\nImportError: no plugin", "eager"),
        ("NotLoaded", "the hub does not offer it", "inductor"),
        ("RuntimeError", "the loss is not finite", "inductor"),
        ("NotImplementedError", "no loss for this task", "inductor"),
        ("InductorError", "LoweringException: said a person", "inductor"),
        ("AssertionError", "7 labels, expected 8", "inductor"),
    ],
)
def test_an_error_that_a_persons_code_raised_is_blamed_on_nothing_whatever_its_words(
    tmp_path: Path, kind: str, text: str, backend: str
) -> None:
    event = own_error(tmp_path, kind, text)
    assert not (kind == "ValueError" and event["out_of_memory"])
    memory = RunState.OUT_OF_MEMORY if event["out_of_memory"] else RunState.FAILED
    failed = failure(
        f"{event['error']}: {event['message']}",
        backend,
        state=memory,
        traceback=event["traceback"],
        gradient_accumulation=2,
    )
    assert find_cause("run", failed) is None


class Hungry(Dataset[int]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, number: int) -> int:
        if number == 0:
            raise RuntimeError("out of memory for the cache of tokens")
        return number


def test_a_process_that_loads_data_with_a_persons_code_is_not_taken_for_the_device() -> None:
    samples = iter(DataLoader(Hungry(), num_workers=1))
    with pytest.raises(RuntimeError) as raised:
        next(samples)
    # Otherwise the process lives as long as the error, and keeps inherited pipes open, also a
    # browser's, so that the browser would never end.
    samples._shutdown_workers()
    event = describe_failure(raised.value)
    assert event["message"].startswith("Caught RuntimeError in DataLoader worker")
    failed = failure(f"RuntimeError: {event['message']}", traceback=event["traceback"])
    assert find_cause("inductor", failed) is None
    # An error of torch in such a process remains one.
    of_torch = event["traceback"].replace(__file__, "/venv/site-packages/torch/storage.py")
    assert (
        kind_and_remedies(replace(failed, traceback=of_torch))[0] == "out of the machine's memory"
    )


@pytest.mark.parametrize(
    "message",
    [
        "ValueError: data-dependent prior",
        "ValueError: recompile_limit must be positive",
        "ValueError: out of memory budget of 3 samples",
        "KeyError: 'Killed'",
        "RuntimeError: Compiler: nvcc is not found",
        "ValueError: Cannot find a working triton server",
        "NotImplementedError: this tokenizer cannot pad",
        "OSError: the hub does not offer it",
        "ValueError: this checkpoint is not compatible with the current PyTorch",
        "ValueError: OutOfResources",
    ],
)
def test_the_words_of_a_rule_in_an_error_of_another_class_are_not_enough(message: str) -> None:
    assert find_cause("inductor", failure(message, "inductor:scope=forward+fullgraph=true")) is None


def test_a_person_who_raises_while_dynamo_traces_is_not_taken_for_a_compiler(
    tmp_path: Path,
) -> None:
    event = own_error(tmp_path, "ValueError", "no label 11")
    frame = '  File "/venv/site-packages/torch/_dynamo/convert_frame.py", line 7, in _compile\n'
    begin = "Traceback (most recent call last):\n"
    traced = event["traceback"].replace(begin, f"{begin}{frame}    result = transform()\n")
    of_torch = failure("ValueError: no label 11", traceback=f"{begin}{frame}    raise error\n")
    assert kind_and_remedies(of_torch) == ("unknown", LADDER)
    assert find_cause("inductor", replace(of_torch, traceback=traced)) is None
    # An error of torch that a person's code wraps in its own error remains one of torch.
    wrapped = f"{begin}{frame}    raise error\n\n{traced}"
    assert kind_and_remedies(replace(of_torch, traceback=wrapped)) == ("unknown", LADDER)


def test_a_script_that_raises_at_a_loss_that_is_not_finite_has_such_a_loss(tmp_path: Path) -> None:
    data_dir, spec = DataDir(tmp_path / "data"), experiment_spec(20, 10)
    event = own_error(tmp_path, "ValueError", "the loss is bad")
    for arm in spec.arms:
        run = Recording(data_dir.runs, arm.label, spec).claim().start()
        if arm.role == "backend":
            run.block([0.1], [math.nan])
            run.log.append("error", **event)
            run.end(RunState.FAILED, "exit status 1")
        else:
            run.blocks([0.1] * 2, [1.0] * 20).end()
    with Store.in_memory(data_dir) as store:
        (cause,) = known_causes(store, EXPERIMENT_ID)
    assert (cause.label, cause.kind) == ("inductor", "loss not finite")


def test_a_script_changes_its_batch_only_by_its_author() -> None:
    failed = failure(CUDA_MEMORY, REDUCED, state=RunState.OUT_OF_MEMORY)
    script = ExperimentSpec(
        name="mine",
        task="script",
        model=ModelSpec(source="script:/home/me/train.py"),
        data=DataSpec(source="script"),
        backends=(REDUCED,),
    )
    assert kind_and_remedies(replace(failed, spec=script))[1] == [WITHOUT]


def test_the_terminal_has_a_command_for_each_remedy() -> None:
    lacking = failure(
        CUDA_MEMORY,
        MAX,
        traceback=AUTOTUNING,
        state=RunState.OUT_OF_MEMORY,
        gradient_accumulation=2,
    )
    known = find_cause("max", lacking)
    assert known is not None
    first, *commands = causes_report([known]).splitlines()
    assert first.startswith("cause of max: Memory ran out while kernels were timed")
    assert commands[0].startswith(f"  to try {REDUCED}: breakeven compare ")
    assert (
        f"--backends={REDUCED}" in commands[0]
        and "--set=training.gradient_accumulation=2" in commands[0]
    )
    assert (
        "--batch-size=4" in commands[1] and "--set=training.gradient_accumulation=4" in commands[1]
    )


def test_the_ladder_is_a_remedy_only_where_it_was_not_climbed() -> None:
    failed = failure("BackendCompilerFailed: backend='inductor' raised:\nAssertionError: 7")
    assert kind_and_remedies(failed) == ("unknown", LADDER)
    climbed = replace(failed.spec, backends=ladder_on("cuda:0"))
    assert kind_and_remedies(replace(failed, spec=climbed)) == ("unknown", [])


def test_pages_show_causes_as_plain_text_so_that_none_has_marks_of_code() -> None:
    assert RULES
    assert not [rule.kind for rule in RULES if "`" in rule.cause + rule.advice]


SCRIPT = ExperimentSpec(
    name="mine",
    task="script",
    model=ModelSpec(source="script:/home/me/train.py"),
    data=DataSpec(source="script"),
    backends=("inductor",),
)
TWICE = {
    "a gradient penalty": """
x = torch.randn(3, 4, requires_grad=True)
gradient, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
(gradient.norm() - 1).square().backward()
""",
    "a second derivative of an input": """
x = torch.randn(3, 4, requires_grad=True)
first, = torch.autograd.grad(net(x).tanh().sum(), x, create_graph=True)
torch.autograd.grad(first.sum(), x)
""",
    "an inner step of a meta learner": """
weights = list(net.parameters())
inner = torch.autograd.grad(net(torch.randn(3, 4)).square().mean(), weights, create_graph=True)
sum(one.square().sum() for one in inner).backward()
""",
}
NET = """
import torch
net = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()), {arguments})
"""


def raised_by(folder: Path, text: str, **arguments: Any) -> dict[str, Any]:
    """The event of the error that a script raises under a run's copy of its folder."""
    work = folder / "runs" / "20261128-101112-131415-0a1b.inductor" / "work"
    work.mkdir(parents=True)
    given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    (work / "train.py").write_text(NET.format(arguments=given) + text)
    try:
        runpy.run_path(str(work / "train.py"))
    except Exception as error:
        return describe_failure(error)
    raise AssertionError("nothing was raised")


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.parametrize("what", TWICE)
def test_a_gradient_of_a_gradient_names_its_line_and_the_backend_that_can_do_it(
    tmp_path: Path, what: str
) -> None:
    event = raised_by(tmp_path, TWICE[what], backend="aot_eager")
    failed = failure(f"{event['error']}: {event['message']}", traceback=event["traceback"])
    known = find_cause("inductor", replace(failed, spec=SCRIPT))
    assert known is not None and known.kind == "double backward"
    assert "It does so at train.py:" in known.words and "_orig_mod" in known.words
    assert [remedy_text(remedy) for remedy in known.remedies] == ["eager"]
    modes = replace(failed, spec=replace(SCRIPT, backends=(MAX,)), text=MAX, arm=parse_backend(MAX))
    known = find_cause("inductor", modes)
    assert known is not None and [remedy_text(remedy) for remedy in known.remedies] == ["eager"]


@pytest.mark.usefixtures("fresh_torch")
def test_numpy_that_fails_only_in_compiled_code_names_its_line_and_a_setting(
    tmp_path: Path,
) -> None:
    text = (
        "import numpy as np\n\n@torch.compile(backend='eager')\ndef scaled(x):\n"
        "    y = net(x)\n    return y / float(np.percentile(y.detach().numpy(), 95))\n\n"
        "scaled(torch.randn(3, 4))\n"
    )
    event = raised_by(tmp_path, text, backend="eager")
    failed = failure(f"{event['error']}: {event['message']}", traceback=event["traceback"])
    known = find_cause("inductor", replace(failed, spec=SCRIPT))
    assert known is not None and known.kind == "numpy in compiled code"
    assert "It failed at train.py:9." in known.words and "trace_numpy = False" in known.words
    shared = replace(failed, spec=SCRIPT, baseline=failed)
    other = find_cause("inductor", shared)
    assert other is None or other.kind != "numpy in compiled code"


WHOLE_GRAPHS = {
    "x = net(torch.randn(3, 4))\n\n@torch.compile(backend='eager', fullgraph=True)\n"
    "def loss(x):\n    if x.sum().item() > 0:\n        return x.sum()\n    return -x.sum()\n\n"
    "loss(x)\n": ("data-dependent operation", "train.py:8"),
    "@torch.compile(backend='eager', fullgraph=True)\ndef same(x):\n"
    "    return x * 2 if torch.equal(x, x + 1) else x\n\nsame(torch.randn(3))\n": (
        "data-dependent operation",
        "train.py:6",
    ),
    "@torch.compile(backend='eager', fullgraph=True)\ndef said(x):\n    x = x * 2\n"
    "    print('step')\n    return x\n\nsaid(torch.randn(3))\n": ("graph break", "train.py:7"),
}


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.parametrize("text", WHOLE_GRAPHS)
def test_a_script_that_insists_on_one_graph_gets_the_line_and_a_setting_that_lifts_it(
    tmp_path: Path, text: str
) -> None:
    event = raised_by(tmp_path, text, backend="eager")
    failed = failure(f"{event['error']}: {event['message']}", traceback=event["traceback"])
    failed = replace(failed, spec=SCRIPT, asks_for_whole=("train.py:25",))
    known = find_cause("inductor", failed)
    kind, line = WHOLE_GRAPHS[text]
    assert known is not None and known.kind == kind
    assert f"It ends at {line}." in known.words
    assert "calls torch.compile with fullgraph=True at train.py:25" in known.words
    assert [remedy_text(remedy) for remedy in known.remedies] == ["inductor:fullgraph=false"]


@pytest.mark.parametrize(
    ("guard", "words", "remedies"),
    [
        (
            "3/7: self.param_groups[0]['lr'] == 0.001",
            "Make lr a tensor",
            ["inductor:fullgraph=false"],
        ),
        ("0/7: len(self._forward_hooks) == 7", "Register hooks once", ["inductor:fullgraph=false"]),
        (
            "0/7: tensor 'x' size mismatch at index 0. expected 4, actual 5",
            "dynamic=true",
            ["inductor:dynamic=true", "inductor:fullgraph=false"],
        ),
    ],
)
def test_at_the_recompile_limit_the_advice_is_about_the_value_that_changes(
    guard: str, words: str, remedies: list[str]
) -> None:
    failed = failure("FailOnRecompileLimitHit: Hard failure due to fullgraph=True", "inductor")
    known = find_cause("inductor", replace(failed, spec=SCRIPT, guard=guard))
    assert known is not None and known.kind == "recompile limit" and words in known.words
    assert [remedy_text(remedy) for remedy in known.remedies] == remedies


@pytest.mark.parametrize(
    ("schedule", "kind", "remedies"),
    [
        ("turns", "held by another run", ["--schedule=sequential"]),
        ("sequential", "held by another program", []),
    ],
)
def test_a_port_in_use_is_blamed_on_the_other_runs_or_if_there_were_none_on_another_program(
    schedule: Any, kind: str, remedies: list[str]
) -> None:
    message = "DistNetworkError: port: 29511, name: EADDRINUSE, message: address already in use"
    failed = failure(message, "inductor", baseline=failure(message, "none:optimizer=fused"))
    spec = replace(SCRIPT, schedule=schedule)
    assert kind_and_remedies(replace(failed, spec=spec)) == (kind, remedies)
