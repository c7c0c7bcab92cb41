"""Trains the investigated run once more from its beginning, with the same settings, and judges its
losses by the band that a new baseline and a new control give."""

import math
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from breakeven.runner.errors import WorkloadError
from breakeven.runner.loss_band import LEAD_STEPS, Losses, broken_limit, half_widths
from breakeven.runner.protocol.events import each_event
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.specs.arm_fields import Role
from breakeven.runner.specs.experiment import CheckpointSpec, EvaluationSpec, RunSpec
from breakeven.runner.specs.training import Precision
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.investigation.trial_outcomes import PASSES, Outcome
from breakeven.runner.worker.script.run_script import run_script
from breakeven.runner.worker.session import run_session
from breakeven.runner.worker.turn_source import Turns


class Repetition:
    """Trains the first steps of a run again: twice without a compiler, as baseline and as control,
    and under backends."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._baseline_and_control: list[Losses] = []
        """Losses of the baseline and of the control."""
        self._precision: Precision = spec.experiment.training.precision

    def can_judge(self, step: int) -> bool:
        """Whether the band includes the step. Later, rounding alone decides single losses.

        The first call trains the baseline and the control; raises the errors of these trainings.
        """
        return step in self._measure_half_widths(step)

    def outcome(self, backend: str, step: int) -> Outcome:
        """Whether a loss up to `step` differs from the baseline's by more than rounding explains.
        Raises the errors of the run, and `WorkloadError` if it ends before this step."""
        half_width_by_step = self._measure_half_widths(step)
        losses, _ = repeat_run(self._spec, "backend", backend, step + 1)
        limit = broken_limit(self._precision, num_controls=1)
        for judged_step in sorted(step for step in half_width_by_step if step in losses):
            distance = abs(losses[judged_step] - self._baseline_and_control[0][judged_step])
            half_width = half_width_by_step[judged_step]
            if not distance <= limit * half_width:  # `not <=` also catches NaN.
                return Outcome(
                    kind="differs",
                    step=judged_step,
                    quantity="loss",
                    max_error=distance if math.isfinite(distance) else math.inf,
                    allowed_error=half_width,
                )
        if step not in losses:  # A training that ended earlier proves nothing.
            raise WorkloadError(f"the repeated training has no loss at step {step}")
        return PASSES

    def _measure_half_widths(self, step: int) -> dict[int, float]:
        """Half width of the band by step; the first call trains the baseline and the control."""
        if not self._baseline_and_control:
            for role in ("baseline", "control"):
                losses, precision = repeat_run(self._spec, role, None, step + 1 + LEAD_STEPS)
                self._baseline_and_control.append(losses)
                self._precision = precision or self._precision
        baseline, control = self._baseline_and_control
        return half_widths(baseline, [control], self._precision)


class _LimitedTurns(Turns):
    """Turns that end with a number of steps."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._turns_left = number

    def _next(self) -> Turn | None:
        self._turns_left -= 1
        return super()._next() if self._turns_left >= 0 else None


def repeat_run(
    spec: RunSpec, role: Role, backend: str | None, steps: int
) -> tuple[Losses, Precision | None]:
    """Makes the first steps as baseline, as control or under a backend, as written on the command
    line, in a folder of its own. Returns their losses, and the precision that a script found out.
    Raises the errors of the run."""
    experiment = replace(
        spec.experiment,
        scenario="speed" if spec.experiment.is_inference else "train",
        speed=replace(spec.experiment.speed, part="inference"),
        investigates=None,
        controls=1 if role == "control" else 0,
        block_steps=1,
        backends=spec.experiment.backends if backend is None else (backend,),
        profile_steps=0,
        evaluation=EvaluationSpec(when="never"),
        checkpoints=CheckpointSpec(),
    )
    arm = next(arm for arm in experiment.arms if arm.role == role)
    repeated = replace(spec, experiment=experiment, arm=arm)
    previous_folder = os.getcwd()
    execute = run_script if experiment.workload.is_own_program else run_session
    torch._dynamo.reset()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = RunDir(Path(folder) / repeated.run_id)
        run.write_spec(repeated)
        log = EventLog(run.events_file)
        try:
            execute(run, repeated, log, _LimitedTurns(steps))
        finally:
            log.close()
            os.chdir(previous_folder)
        return _losses_and_precision(run)


def _losses_and_precision(run: RunDir) -> tuple[Losses, Precision | None]:
    losses: dict[int, float] = {}
    precision = None
    for event in each_event(run.events_file):
        if event["kind"] == "step" and event.get("loss") is not None:
            losses[int(event["step"])] = float(event["loss"])
        elif event["kind"] == "workload":
            precision = event.get("precision")
    return losses, precision
