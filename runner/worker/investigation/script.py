"""Captures the graphs of a user's script, which makes its steps itself."""

import os
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch._dynamo

from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.supervision.turns import Turn
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.investigation.graphs import Recorder
from breakeven.runner.worker.script.running import run_script

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


def record_script(spec: RunSpec, recorder: Recorder, steps: int) -> None:
    """Runs the script for some steps in a folder of its own; `recorder` compiles what the run's
    backend compiled."""
    torch._dynamo.register_backend(recorder, name=RECORDER)
    experiment = replace(
        spec.experiment, scenario="train", investigates=None, backends=(RECORDER,), controls=0,
        block_steps=1, profile_steps=0,
    )  # fmt: skip
    variant = next(one for one in experiment.variants if one.role == "backend")
    recorded = replace(spec, experiment=experiment, variant=variant)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = RunDir(Path(folder) / recorded.run_id)
        run.write_spec(recorded)
        log, place = EventLog(run.events_file), os.getcwd()
        # The graphs that came before an error of the script are worth trying.
        with suppress(Exception):
            run_script(run, recorded, log, _FewTurns(steps))
        log.close()
        os.chdir(place)
