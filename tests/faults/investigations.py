"""Journals of investigations, and of the runs that they investigate, as the workers write them."""

from typing import Any

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.follow_ups import investigation
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses

INVESTIGATION_ID = "20261122-101500-123456-7f3a"
SPEC = experiment_spec(40, 10, name="nightly")
"""Baseline, control and inductor; 4 blocks of 10 steps."""
RELU = {
    "cause": "stage",
    "compiler_stage": "Inductor",
    "subsystem": "lowerings",
    "subsystem_number": 12,
    "operation": "aten.relu.default",
    "labels": ["inductor:epilogue_fusion=false"],
    "problem": "differs",
    "step": 3,
    "quantity": "gradient",
    "tensor": "encoder.weight",
    "max_error": 0.3125,
    "allowed_error": 1.5e-6,
    "error": None,
    "traceback": None,
    "graph": 2,
    "num_graphs": 5,
    "program": "import torch\nprint('```')\n",
    "num_nodes": 3,
    "program_tries": 3,
    "program_fails": 3,
    "program_passes": 2,
    "program_note": None,
    "environment": "PyTorch version: 2.13.0\nOS: Linux, /home/somebody/venv",
    "generated_code": "kernel = 1\n",
}
"""A wrong lowering, which a program of three operations shows."""
TRIALS: list[dict[str, Any]] = [
    {
        "number": 1,
        "stage": "reproduction",
        "what": "no compiler",
        "outcome": "passes",
        "detail": None,
        "step": None,
        "trial_seconds": 1.0,
    },
    {
        "number": 2,
        "stage": "reproduction",
        "what": "inductor",
        "outcome": "differs",
        "detail": "gradient encoder.weight: differs by up to 0.312",
        "step": 3,
        "trial_seconds": 8.0,
    },
    {
        "number": 3,
        "stage": "stages",
        "what": "aot_eager",
        "outcome": "passes",
        "detail": None,
        "step": None,
        "trial_seconds": 2.5,
    },
]


def record_broken(folder: DataDir, spec: ExperimentSpec = SPEC) -> str:
    """An experiment whose inductor learns something else from the first step on; returns the id of
    its run."""
    return _record(folder, spec, {"inductor": 0.5})


def record_failed(
    folder: DataDir, *labels: str, spec: ExperimentSpec = SPEC, state: RunState = RunState.FAILED
) -> str:
    """An experiment whose runs of these labels end with an error after 10 steps."""
    return _record(folder, spec, {}, labels, state)


def _record(
    folder: DataDir,
    spec: ExperimentSpec,
    offsets: dict[str, float],
    failed: tuple[str, ...] = (),
    state: RunState = RunState.FAILED,
) -> str:
    losses = falling_losses(spec.num_steps)
    for arm in spec.arms:
        offset = offsets.get(arm.label, 1e-5 if arm.role == "control" else 0.0)
        run = Recording(folder.runs, arm.label, spec).claim().start()
        compiling = 3.0 if arm.role == "backend" else 0.0
        if arm.label in failed:
            run.blocks([0.1], losses, compiling)
            run.log.append(
                "error",
                error="InductorError",
                message="no kernel for rsqrt",
                traceback="in convert_frame.py",
                out_of_memory=False,
            )
            run.end(state, "InductorError: no kernel for rsqrt")
            continue
        run.blocks([0.2] * 4, [loss + offset for loss in losses], compiling)
        run.evaluation(0.8).end()
    return f"{EXPERIMENT_ID}.inductor"


def record_investigation(
    folder: DataDir,
    finding: dict[str, Any] | None = None,
    trials: list[dict[str, Any]] = TRIALS,
    state: RunState | None = RunState.FINISHED,
    spec: ExperimentSpec = SPEC,
    id: str = INVESTIGATION_ID,
) -> str:
    """An investigation of the run inductor; returns its experiment's id. `finding` replaces fields
    of `RELU`; `state` None: it goes on."""
    searched = investigation(spec, EXPERIMENT_ID, "inductor", "differs", 3)
    run = Recording(folder.runs, "inductor", searched, id).claim().start()
    run.log.append("phase", phase="checking")
    run.log.append("investigation_finding", cause="searching", labels=[])
    run.log.extend("investigation_trial", trials)
    run.log.append("investigation_finding", **{**RELU, **(finding or {})})
    run.log.flush()
    if state is not None:
        run.end(state, "all trials done" if state is RunState.FINISHED else "stopped by a person")
    return id
