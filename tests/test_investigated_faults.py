"""An investigation names the planted fault, and no fault that was not planted."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import each_event
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.experiment import (
    DataSpec,
    ExperimentSpec,
    ModelSpec,
    RunSpec,
    TrainingSpec,
)
from breakeven.runner.specs.scenario_fields import InvestigationSpec
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.device.device_kinds import open_device
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.investigation.investigator import Investigation
from tests.faults import (
    compiler_faults,
    late_faults,
    planted_faults,
    rounding_backends,
    stage_faults,
)
from tests.helpers.loop import FAULTS, TurnsOnPaper

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_torch")]
DEVICE = "cuda:0" if torch.cuda.is_available() else "cpu"
BEGINS = 6
COMPILERS = FAULTS / "compiler_faults.py"
CORRECT = tuple(f"{FAULTS / 'rounding_backends.py'}:{name}" for name in rounding_backends.ROUNDING)
TRAINING = TrainingSpec(
    losses=("CrossEntropyLoss",), batch_size=16, epochs=4, max_steps=60, learning_rate=1e-3
)


CHILDREN_IMPORT = f"{FAULTS.parents[1]}:{FAULTS}:{FAULTS / 'everywhere'}"


@pytest.fixture(autouse=True)
def backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials and programs are separate processes, which find backends by name or by path."""
    monkeypatch.setenv(CODE_VARIABLE, str(FAULTS))
    monkeypatch.setenv(late_faults.BEGINS, str(BEGINS))
    monkeypatch.setenv("PYTHONPATH", CHILDREN_IMPORT)


def plant(monkeypatch: pytest.MonkeyPatch, fault: Callable[[], Any]) -> None:
    monkeypatch.setenv("PLANTED_FAULT", f"{fault.__module__}:{fault.__name__}")


def investigate(
    folder: Path,
    backend: str,
    step: int = 0,
    model: str = "relu_net.py:ReluNet",
    problem: Any = "differs",
    error: str = "",
    part: Any = "training",
    **training: Any,
) -> dict[str, Any]:
    """The finding about a backend on a small network."""
    spec = ExperimentSpec(
        name="investigation",
        task="custom",
        scenario="investigate",
        backends=(backend,),
        model=ModelSpec(source=f"{FAULTS / model}", dropout="off"),
        data=DataSpec(
            source=f"{FAULTS / 'relu_net.py'}:samples", num_train_samples=320, num_eval_samples=10
        ),
        training=replace(TRAINING, **training),
        time_limit_seconds=600.0,
        devices=(DEVICE,),
        investigates="experiment.run",
        investigation=InvestigationSpec(step=step, problem=problem, error=error, part=part),
    )
    return finding(folder, spec)


def problem_of(fault: str) -> str:
    """The kind of problem of a run with the planted fault."""
    raising = ("lowering", "compile_error", "runtime_error", "rejecting", "aborting", "late_error")
    return "raises" if any(word in fault for word in raising) else "differs"


def finding(folder: Path, spec: ExperimentSpec) -> dict[str, Any]:
    """The last finding of an investigation that runs in this process, with its trials."""
    (arm,) = spec.arms
    run_spec = RunSpec(experiment_id="investigation", experiment=spec, arm=arm)
    run = RunDir(DataDir(folder).runs / run_spec.run_id)
    run.path.mkdir(parents=True)
    log = EventLog(run.events_file)
    context = RunContext(run_spec, run, open_device(DEVICE), log)
    assert Investigation(context).run(TurnsOnPaper())
    log.close()
    events = [*each_event(run.events_file)]
    for event in events:
        if event["kind"] == "investigation_trial":
            sys.stderr.write(
                f"{event['stage']:13}{event['what']:45}{event['outcome']:9}"
                f"{event['trial_seconds']:5.1f} s  {event['detail']}\n"
            )
    return [event for event in events if event["kind"] == "investigation_finding"][-1]


STAGES = {
    "wrong_capture": (stage_faults.wrong_capture, "Dynamo"),
    "wrong_autograd": (compiler_faults.wrong_autograd, "AOTAutograd"),
    "wrong_decomposition": (stage_faults.wrong_decomposition, "decompositions"),
    "missing_lowering": (stage_faults.missing_lowering, "Inductor"),
    "raising_lowering": (compiler_faults.raising_lowering, "Inductor"),
    "dropped_term": (compiler_faults.dropped_term, "Inductor"),
    "wrong_post_grad_pass": (compiler_faults.wrong_post_grad_pass, "Inductor"),
    "wrong_joint_pass": (compiler_faults.wrong_joint_pass, "Inductor"),
    "relu_compile_error": (compiler_faults.relu_compile_error, "Inductor"),
    "relu_runtime_error": (compiler_faults.relu_runtime_error, "Inductor"),
    "relu_wrong": (compiler_faults.relu_wrong, "Inductor"),
}


@pytest.mark.parametrize("fault", STAGES)
def test_a_fault_of_a_stage_is_named_and_a_small_program_fails_by_itself(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    context, stage = STAGES[fault]
    plant(monkeypatch, context)
    result = investigate(tmp_path, "inductor", problem=problem_of(fault))
    assert (result["cause"], result["compiler_stage"]) == ("stage", stage), result
    if stage != "Dynamo":
        # An assertion on a GPU ends the process that could reduce the graph.
        is_small = result["program"].count("\n") <= 80
        assert is_small or (DEVICE != "cpu" and fault == "relu_runtime_error")
        assert (result["program_fails"], result["program_passes"]) == (3, 2)


@pytest.mark.parametrize(
    "backend, has_program",
    [
        ("zeroed_gradients", True),
        ("scaled_gradients", True),
        ("dead_layer", False),
        ("wrong_epsilon", True),
        (f"{COMPILERS}:wrong_relu", True),
        (f"{COMPILERS}:rejecting", True),
        (f"{COMPILERS}:aborting", True),
        (f"{COMPILERS}:wrong_relu:scope=blocks", True),
        ("relu_accuracy_error_TESTING_ONLY", True),
        ("relu_runtime_error_TESTING_ONLY", True),
        ("relu_compile_error_TESTING_ONLY", True),
    ],
)
def test_a_backend_that_computes_wrongly_is_named(backend: str, has_program: bool, tmp_path: Path):
    result = investigate(tmp_path, backend, problem=problem_of(backend), optimizer="SGD")
    name = backend.removesuffix(":scope=blocks")
    assert (result["cause"], result["compiler_stage"]) == ("backend", name), result
    assert bool(result["program"]) == has_program, result


@pytest.mark.parametrize(
    "backend, step",
    [
        (f"{COMPILERS}:late_error", BEGINS),
        (f"{FAULTS / 'late_faults.py'}:late_negated_gradients", BEGINS),
        ("stale_batch", planted_faults.RARELY),
        ("skipped_update", planted_faults.RARELY),
    ],
)
def test_a_backend_that_goes_wrong_late_is_named_without_a_program(
    backend: str, step: int, tmp_path: Path
):
    result = investigate(tmp_path, backend, step, problem=problem_of(backend))
    assert (result["cause"], result["compiler_stage"]) == ("training only", backend), result
    assert result["program"] is None


def test_a_fault_that_one_setting_brings_is_named_with_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plant(monkeypatch, stage_faults.failing_autotuning)
    result = investigate(tmp_path, "inductor:mode=max-autotune-no-cudagraphs", problem="raises")
    assert (result["cause"], result["compiler_stage"]) == ("setting", "autotuning"), result


@pytest.mark.parametrize(
    "fault, backend, named, without, training",
    [
        (
            compiler_faults.wrong_fused_sgd,
            "inductor:optimizer=fused",
            "optimizer=fused, with and without a compiler",
            "inductor",
            {},
        ),
        # On a GPU torch chooses this form itself.
        pytest.param(
            None,
            f"{COMPILERS}:wrong_foreach:optimizer=foreach",
            "optimizer=foreach",
            f"{COMPILERS}:wrong_foreach",
            {},
            marks=pytest.mark.skipif(DEVICE != "cpu", reason="foreach is the usual form"),
        ),
        (
            None,
            f"{COMPILERS}:wrong_in_blocks:scope=blocks",
            "scope=blocks",
            f"{COMPILERS}:wrong_in_blocks",
            {},
        ),
        # The step as a whole cannot be `fullgraph`, so both settings are removed.
        (
            None,
            f"{COMPILERS}:wrong_in_blocks:fullgraph=true+scope=blocks",
            "scope=blocks",
            f"{COMPILERS}:wrong_in_blocks",
            {},
        ),
        (
            None,
            f"{COMPILERS}:wrong_with_symbols:dynamic=true+scope=forward",
            "dynamic=true",
            f"{COMPILERS}:wrong_with_symbols:scope=forward",
            {},
        ),
        (
            None,
            f"{COMPILERS}:wrong_with_symbols",
            "last_batch=dynamic",
            f"{COMPILERS}:wrong_with_symbols:dynamic=false",
            {"last_batch": "dynamic"},
        ),
        (
            compiler_faults.coarse_device,
            f"{COMPILERS}:wrong_with_tf32:tf32=true",
            "tf32=true",
            f"{COMPILERS}:wrong_with_tf32",
            {},
        ),
        # TF32 also rounds without a compiler, but by less.
        (
            compiler_faults.coarse_device,
            f"{COMPILERS}:wrong_with_tf32:tf32=true",
            "tf32=true",
            f"{COMPILERS}:wrong_with_tf32",
            {"model": "failing_models.py:Coarse"},
        ),
        (
            compiler_faults.coarse_device,
            "aot_eager:tf32=true",
            "tf32=true, with and without a compiler",
            "aot_eager",
            {"model": "failing_models.py:Coarse"},
        ),
        (
            compiler_faults.coarse_device,
            f"{COMPILERS}:wrong_with_coarse_attention:math_attention=reduced",
            "math_attention=reduced",
            f"{COMPILERS}:wrong_with_coarse_attention",
            {},
        ),
        (
            None,
            "eager:fullgraph=true+scope=forward",
            "fullgraph=true",
            "eager:scope=forward",
            {"model": "failing_models.py:Branching", "problem": "raises"},
        ),
    ],
)
def test_a_fault_that_one_setting_of_the_arm_brings_is_named_as_this_setting(
    fault: Callable[[], Any] | None,
    backend: str,
    named: str,
    without: str,
    training: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    if fault is not None:
        plant(monkeypatch, fault)
    result = investigate(tmp_path, backend, **{"optimizer": "SGD", **training})
    assert (result["cause"], result["compiler_stage"]) == ("setting", named), result
    assert result["labels"] == [without], result
    needs_step = named.startswith("optimizer=") or named == "fullgraph=true" or "without" in named
    assert bool(result["program"]) != needs_step, result


@pytest.mark.parametrize(
    "backend",
    [
        f"{COMPILERS}:wrong_relu:dynamic=true+math_attention=reduced+optimizer=foreach+scope=forward",
        f"{COMPILERS}:wrong_relu:scope=blocks+tf32=true",
    ],
)
def test_a_setting_is_not_blamed_for_a_fault_that_is_there_without_it(backend: str, tmp_path: Path):
    result = investigate(tmp_path, backend, optimizer="SGD")
    assert (result["cause"], result["compiler_stage"]) == ("backend", f"{COMPILERS}:wrong_relu")
    assert (result["program_fails"], result["program_passes"]) == (3, 2), result


def test_another_fault_of_a_lower_stage_is_not_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plant(monkeypatch, compiler_faults.wrong_relu_behind_another_error)
    result = investigate(tmp_path, "inductor")
    assert (result["cause"], result["compiler_stage"]) == ("stage", "Inductor"), result


@pytest.mark.parametrize(
    "backend, problem, cause",
    [
        ("wrong_relu", "differs", "backend"),
        ("rejecting", "raises", "backend"),
        ("late_greed", "memory", "backend"),
        ("wrong_in_blocks", "differs", "not reproduced"),
    ],
)
def test_a_fault_of_forward_passes_alone_is_named(
    backend: str, problem: str, cause: str, tmp_path: Path
):
    result = investigate(tmp_path, f"{COMPILERS}:{backend}", problem=problem, part="inference")
    assert result["cause"] == cause, result
    if backend in ("wrong_relu", "rejecting"):
        assert result["program_fails"] == 3 and "set_grad_enabled(False)" in result["program"]


MODE = "mode=max-autotune-no-cudagraphs"
AUTOTUNED = f"inductor:{MODE}"


def test_memory_that_autotuning_alone_needs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plant(monkeypatch, compiler_faults.greedy_autotuning)
    result = investigate(tmp_path, AUTOTUNED, problem="memory")
    assert (result["cause"], result["compiler_stage"]) == ("setting", "autotuning"), result
    assert result["labels"] == [f"inductor:max_autotune=false+{MODE}"], result
    assert "allocate" in result["error"]


def test_memory_that_runs_out_behind_the_recorded_steps_of_a_block_is_found(tmp_path: Path):
    """The memory runs out at step 6 of the first block of 10, of which no step was recorded."""
    result = investigate(tmp_path, f"{COMPILERS}:late_greed", problem="memory")
    assert (result["cause"], result["compiler_stage"]) == ("backend", f"{COMPILERS}:late_greed")


@pytest.mark.parametrize("backend, cause", [(AUTOTUNED, "setting"), ("inductor", "not reproduced")])
def test_memory_that_a_script_lacks_is_named_with_the_setting(
    backend: str, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plant(monkeypatch, compiler_faults.greedy_autotuning)
    result = finding(tmp_path, script_spec(tmp_path, monkeypatch, backend, "memory"))
    assert result["cause"] == cause, result


@pytest.mark.parametrize("backend", ["aot_eager", "inductor", *CORRECT])
def test_a_correct_backend_is_blamed_for_nothing(backend: str, tmp_path: Path):
    result = investigate(tmp_path, backend, step=20)
    assert result["num_graphs"] is None
    assert result["cause"] == "not reproduced", result


@pytest.mark.parametrize(
    "model, training, place",
    [
        ("failing_models.py:Misshaped", {}, None),
        ("failing_models.py:Logarithmic", {}, "layer scale (Logarithm)"),
        (
            "relu_net.py:ReluNet",
            {"learning_rate": 1e4, "optimizer": "SGD"},
            "layer blocks.1.norm (LayerNorm)",
        ),
    ],
)
def test_a_fault_of_the_training_is_not_blamed_on_a_compiler(
    model: str, training: dict[str, Any], place: str | None, tmp_path: Path
):
    result = investigate(tmp_path, "inductor", step=5, model=model, **training)
    assert (result["cause"], result["tensor"]) == ("own code", place), result


SCRIPT = """
import torch
import breakeven

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(8, 16), torch.nn.Linear(16, 1)

    def forward(self, x):
        return self.outer(torch.relu(self.inner(x)))


model = breakeven.compile(Net().to("{device}"))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(8):
    for _ in range(2):
        loss = model(torch.randn(32, 8, device="{device}")).square().mean()
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    breakeven.step(loss)
"""


def script_spec(
    folder: Path, monkeypatch: pytest.MonkeyPatch, backend: str, problem: Any
) -> ExperimentSpec:
    """An investigation of `SCRIPT`, which is written into the folder."""
    script = folder / "project" / "train.py"
    script.parent.mkdir()
    script.write_text(SCRIPT.format(device=DEVICE))
    monkeypatch.setenv(CODE_VARIABLE, f"{FAULTS}:{script.parent}")
    return ExperimentSpec(
        name="investigation",
        task="script",
        scenario="investigate",
        backends=(backend,),
        model=ModelSpec(source=f"script:{script}"),
        data=DataSpec(source="script"),
        devices=(DEVICE,),
        time_limit_seconds=600.0,
        investigates="experiment.run",
        investigation=InvestigationSpec(problem=problem),
    )


@pytest.mark.parametrize(
    "backend, problem, cause, stage",
    [
        (f"{COMPILERS}:wrong_relu", "differs", "backend", f"{COMPILERS}:wrong_relu"),
        pytest.param(
            "inductor:mode=reduce-overhead",
            "raises",
            "setting",
            "CUDA graphs",
            marks=pytest.mark.skipif(DEVICE == "cpu", reason="needs CUDA graphs"),
        ),
    ],
)
def test_a_fault_in_a_script_is_named_and_a_small_program_fails_by_itself(
    backend: str,
    problem: Any,
    cause: str,
    stage: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    result = finding(tmp_path, script_spec(tmp_path, monkeypatch, backend, problem))
    assert (result["cause"], result["compiler_stage"]) == (cause, stage), result
    assert (result["program_fails"], result["program_passes"]) == (3, 2)


ROUNDED = """
@torch.compiler.allow_in_graph
def rounded(x):
    return x.bfloat16().float() if torch.backends.cuda.matmul.allow_tf32 else x


"""


@pytest.mark.parametrize(
    "backend, cause, stage",
    [
        (f"{COMPILERS}:wrong_relu", "backend", f"{COMPILERS}:wrong_relu"),
        ("aot_eager", "setting", "tf32=true, with and without a compiler"),
    ],
)
def test_what_tf32_rounds_in_a_script_is_not_the_compilers_fault(
    backend: str, cause: str, stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plant(monkeypatch, compiler_faults.coarse_device)
    coarse = SCRIPT.replace("self.inner(x)", "self.inner(rounded(x))")
    monkeypatch.setattr(f"{__name__}.SCRIPT", coarse.replace("class Net", f"{ROUNDED}class Net"))
    spec = script_spec(tmp_path, monkeypatch, f"{backend}:tf32=true", "differs")
    result = finding(tmp_path, spec)
    assert (result["cause"], result["compiler_stage"]) == (cause, stage), result


@pytest.mark.parametrize(
    "backend, outcome, cause, stage",
    [
        ("aot_eager", "passes", "not reproduced", None),
        (
            f"{COMPILERS}:wrong_from_the_13th_call",
            "differs",
            "backend",
            f"{COMPILERS}:wrong_from_the_13th_call",
        ),
    ],
)
def test_a_script_is_made_again_from_its_beginning_where_no_graph_fails_alone(
    backend: str,
    outcome: str,
    cause: str,
    stage: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(f"{__name__}.SCRIPT", SCRIPT.replace("range(8)", "range(40)"))
    spec = script_spec(tmp_path, monkeypatch, backend, "differs")
    spec = replace(spec, investigation=InvestigationSpec(problem="differs", step=9))
    result = finding(tmp_path, spec)
    assert (result["cause"], result["compiler_stage"]) == (cause, stage), result
    (journal,) = tmp_path.rglob("events.jsonl")
    outcomes = [
        event["outcome"] for event in each_event(journal) if event.get("stage") == "reproduction"
    ]
    assert outcomes == [outcome]


def test_another_fault_than_that_of_the_run_is_not_named_as_its_cause(tmp_path: Path):
    result = investigate(tmp_path, f"{COMPILERS}:wrong_relu", problem="raises")
    assert result["cause"] == "not reproduced", result


@pytest.mark.parametrize(
    "error, cause",
    [
        ("IndexError: list index out of range", "not reproduced"),
        ("NotImplementedError: planted: layer_norm is not supported", "not reproduced"),
        ("BackendCompilerFailed: backend='rejecting' raised:", "backend"),
    ],
)
def test_an_error_of_another_class_is_not_the_one_whose_cause_is_searched(
    error: str, cause: str, tmp_path: Path
):
    result = investigate(tmp_path, f"{COMPILERS}:rejecting", problem="raises", error=error)
    assert result["cause"] == cause, result
