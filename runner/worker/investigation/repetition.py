"""Repeats the investigated run from its beginning, as the run made its steps, and judges the losses
by the band of another baseline and control."""

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
from breakeven.runner.specs.arms import Role
from breakeven.runner.specs.experiment import CheckpointSpec, EvaluationSpec, RunSpec
from breakeven.runner.specs.training import Precision
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.investigation.trial_outcomes import PASSES, Outcome
from breakeven.runner.worker.script.run_script import run_script
from breakeven.runner.worker.session import run_session
from breakeven.runner.worker.turn_source import Turns


class Repetition:
    """The first steps of a run made again: without a compiler twice, and under backends."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._equals: list[Losses] = []
        """Losses of the baseline and of the control."""
        self._precision: Precision = spec.experiment.training.precision

    def can_judge(self, step: int) -> bool:
        """Whether the band includes the step. Later, rounding alone decides single losses."""
        return step in self._half_widths(step)

    def outcome(self, backend: str, step: int) -> Outcome:
        """Whether a loss up to `step` differs from the baseline's as no rounding explains. Raises
        the errors of the run, and `WorkloadError` if it ends before this step."""
        half = self._half_widths(step)
        losses, _ = repeat_run(self._spec, "backend", backend, step + 1)
        limit = broken_limit(self._precision, num_controls=1)
        for judged in sorted(step for step in half if step in losses):
            distance = abs(losses[judged] - self._equals[0][judged])
            if not distance <= limit * half[judged]:  # not a number, too
                return Outcome(
                    kind="differs",
                    step=judged,
                    quantity="loss",
                    max_error=distance if math.isfinite(distance) else math.inf,
                    allowed_error=half[judged],
                )
        if step not in losses:  # what was not made again shows nothing
            raise WorkloadError(f"the repeated training has no loss at step {step}")
        return PASSES

    def _half_widths(self, step: int) -> dict[int, float]:
        if not self._equals:
            for role in ("baseline", "control"):
                losses, precision = repeat_run(self._spec, role, None, step + 1 + LEAD_STEPS)
                self._equals.append(losses)
                self._precision = precision or self._precision
        return half_widths(self._equals[0], self._equals[1:], self._precision)


class _FewTurns(Turns):
    """Turns that end with a number of steps."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    def _next(self) -> Turn | None:
        self._left -= 1
        return super()._next() if self._left >= 0 else None


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
    place = os.getcwd()
    work = run_script if experiment.workload.is_own_program else run_session
    torch._dynamo.reset()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = RunDir(Path(folder) / repeated.run_id)
        run.write_spec(repeated)
        log = EventLog(run.events_file)
        try:
            work(run, repeated, log, _FewTurns(steps))
        finally:
            log.close()
            os.chdir(place)
        return _recorded(run)


def _recorded(run: RunDir) -> tuple[Losses, Precision | None]:
    losses: dict[int, float] = {}
    precision = None
    for event in each_event(run.events_file):
        if event["kind"] == "step" and event.get("loss") is not None:
            losses[int(event["step"])] = float(event["loss"])
        elif event["kind"] == "workload":
            precision = event.get("precision")
    return losses, precision
