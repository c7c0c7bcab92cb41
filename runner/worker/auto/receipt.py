"""The run folders of a training that decides itself: blocks of both ways, and what was decided.

The uncompiled blocks are the baseline's, the compiled ones those of the backend, paired by round,
as if two runs had taken turns. The training is its own supervisor: nothing starts, stops or resumes
it.
"""

import os
import platform
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from breakeven.runner.experiments.queue import new_experiment_id
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir, default_data_folder
from breakeven.runner.protocol.records import Claim, Exit
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.specs.scenario_fields import PlanSpec
from breakeven.runner.specs.workload import (
    SCRIPT_DATA,
    SCRIPT_PREFIX,
    SCRIPT_TASK,
    DataSpec,
    ModelSpec,
)
from breakeven.runner.worker.auto.trial import Way
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.event_log import EventLog

NO_SCRIPT = "interactive.py"
"""Stands for the script of a program that is none."""


class Receipt:
    """Writes the run folders while the training goes on."""

    def __init__(self, model: nn.Module, backend: str, steps: int | None, device: Device) -> None:
        """Raises `RunnerError` or `OSError` if the folders cannot be written."""
        spec = _specification(model, backend, steps, device)
        data_dir = DataDir(default_data_folder())
        data_dir.make()
        data_dir.runs.mkdir(exist_ok=True)
        self.experiment_id = new_experiment_id()
        self._runs: dict[Way, RunDir] = {}
        self._logs: dict[Way, EventLog] = {}
        me = ProcessIdentity.from_pid(os.getpid())
        ways: tuple[Way, Way] = ("uncompiled", "compiled")
        for way, arm in zip(ways, spec.arms, strict=True):
            run_spec = RunSpec(experiment_id=self.experiment_id, experiment=spec, arm=arm)
            run = self._runs[way] = data_dir.run_dir(run_spec.run_id)
            run.write_spec(run_spec)
            run.write_claim(replace(Claim.by(me, spec.devices), is_own_supervisor=True))
            log = self._logs[way] = EventLog(run.events_file)
            log.append("environment", **_environment(device, self.experiment_id))
            parameters = sum(parameter.numel() for parameter in model.parameters())
            log.append("workload", task=SCRIPT_TASK, num_parameters=parameters, num_steps=steps)
            log.enter("training")

    def block(
        self,
        way: Way,
        number: int,
        first_step: int,
        steps: int,
        seconds: float,
        *,
        compiled: bool = False,
    ) -> None:
        """Records a block of so many seconds; `number`: of its round. `compiled`: whether it is
        the comparison that compiled, in place of a step."""
        shared = {"round": number, "compiled": compiled}
        for step in range(first_step, first_step + steps):
            fields = {"step": step, "epoch": 0, "loss": None, "seconds": seconds / steps}
            self._write(way, "step", **shared, **fields)
        fields = {"first_step": first_step, "num_steps": steps, "seconds": seconds}
        self._write(way, "block", **shared, **fields)
        self._flush()

    def compiled(self, step: int, seconds: float) -> None:
        """Records that compiling, with the first comparison, has taken so long."""
        fields = {"step": step, "phase": "training", "compile_id": "0/0"}
        self._write("compiled", "compile_started", **fields)
        self._write("compiled", "compile_ended", seconds=seconds, **fields)
        self.block("compiled", 0, step, 1, seconds, compiled=True)

    def decided(self, **fields: Any) -> None:
        """Records a decision and what it rests on (docs/events.md)."""
        self._write("compiled", "auto_decision", **fields)
        self._flush()

    def close(self, state: RunState, reason: str) -> None:
        """Records how the training ended."""
        for way, run in self._runs.items():
            self._write(way, "phase", phase="done")
            self._logs[way].close_as_it_is()
            with suppress(OSError):
                run.write_exit(Exit.now(state, reason, 0 if state is RunState.FINISHED else 1))

    def _write(self, way: Way, kind: str, /, **fields: Any) -> None:
        """A full disk ends the receipt, never the training."""
        with suppress(OSError):
            self._logs[way].append(kind, **fields)

    def _flush(self) -> None:
        for log in self._logs.values():
            with suppress(OSError):
                log.flush()


def try_receipt(
    model: nn.Module, arm: Arm, steps: int | None, device: Device, say: Callable[[str], None]
) -> Receipt | None:
    """The receipt; None, after a sentence, if none can be written."""
    try:
        return Receipt(model, arm.label, steps, device)
    except Exception as error:  # The training does not need it.
        say(f"no run folder can be written: {error}")
        return None


def _specification(
    model: nn.Module, backend: str, steps: int | None, device: Device
) -> ExperimentSpec:
    script = Path(sys.argv[0] or NO_SCRIPT).resolve()
    named = script if script.suffix == ".py" else Path.cwd() / NO_SCRIPT
    kind = device.torch_device
    return ExperimentSpec(
        name=f"auto: {type(model).__name__} in {named.name}"[:120],
        task=SCRIPT_TASK,
        model=ModelSpec(source=f"{SCRIPT_PREFIX}{named}"),
        data=DataSpec(source=SCRIPT_DATA),
        backends=(backend,),
        controls=0,
        plan=PlanSpec(steps=steps),
        devices=(str(kind),),
    )


def _environment(device: Device, experiment_id: str) -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "python": sys.version.split()[0],
        "versions": {"torch": torch.__version__},
        "num_cpus": os.cpu_count(),
        "cpu_threads": torch.get_num_threads(),
        **device.describe(experiment_id),
    }
