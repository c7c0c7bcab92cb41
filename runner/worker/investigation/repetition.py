"""Repeats the first steps of the investigated run in this process, as the run made them."""

import os
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch._dynamo

from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import CheckpointSpec, EvaluationSpec, RunSpec
from breakeven.runner.supervision.turns import Turn
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.investigation.graphs import Recorder
from breakeven.runner.worker.script.running import run_script
from breakeven.runner.worker.session import run_session

RECORDER = "breakeven_recorder"


class _FewTurns:
    """Turns that end with a number of steps."""

    stop_requested = False

    def __init__(self, number: int) -> None:
        self._left = number

    def ready(self) -> None:
        pass

    def wait(self) -> Turn | None:
        self._left -= 1
        return Turn(round=0, position=0) if self._left >= 0 else None

    def done(self, *, finished: bool) -> None:
        pass


def repeat_run(spec: RunSpec, backend: str | None, steps: int) -> None:
    """Makes the first steps under a backend, as written on the command line, or without a compiler,
    in a folder of its own. Raises the errors of the run."""
    experiment = replace(
        spec.experiment, scenario="speed" if spec.experiment.is_inference else "train",
        speed=replace(spec.experiment.speed, part="inference"), investigates=None, controls=0,
        block_steps=1,
        backends=spec.experiment.backends if backend is None else (backend,), profile_steps=0,
        evaluation=EvaluationSpec(when="never"), checkpoints=CheckpointSpec(),
    )  # fmt: skip
    role = "baseline" if backend is None else "backend"
    variant = next(one for one in experiment.variants if one.role == role)
    repeated = replace(spec, experiment=experiment, variant=variant)
    place, work = os.getcwd(), run_script if experiment.is_script else run_session
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = RunDir(Path(folder) / repeated.run_id)
        run.write_spec(repeated)
        log = EventLog(run.events_file)
        try:
            work(run, repeated, log, _FewTurns(steps))
        finally:
            log.close()
            os.chdir(place)


def record_script(spec: RunSpec, recorder: Recorder, steps: int) -> None:
    """Runs the script for some steps; `recorder` compiles what the run's backend compiled."""
    torch._dynamo.register_backend(recorder, name=RECORDER)
    # The graphs that came before an error of the script are worth trying.
    with suppress(Exception):
        repeat_run(spec, RECORDER, steps)
