"""Runs a script as `python train.py` would, with `breakeven` attached to a session."""

import os
import random
import runpy
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import torch

import breakeven
from breakeven.runner.checks.user_code import allowed, locate
from breakeven.runner.errors import WorkloadError
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.worker.compiler.gradients import explained
from breakeven.runner.worker.compiler.kept import keep_outputs
from breakeven.runner.worker.device.finding import open_device
from breakeven.runner.worker.device.visible import name_of_visible
from breakeven.runner.worker.environment import describe_environment
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.script.checkpoints import ScriptCheckpoints
from breakeven.runner.worker.script.earlier import read_earlier
from breakeven.runner.worker.script.importing import after_import
from breakeven.runner.worker.script.session import EndOfScript, ScriptSession
from breakeven.runner.worker.script.trainers import TRAINERS
from breakeven.runner.worker.script.watchdog import Watchdog
from breakeven.runner.worker.script.workplace import make_workplace, tidy
from breakeven.runner.worker.turn_source import AnnouncedTurns, TurnSource
from breakeven.runner.worker.user_code import copy_sources

NO_INPUT = "A run has no standard input: give the script its answers as arguments"
NOT_INSTALLED = (
    f"Runs use the Python of Breakeven, {sys.executable}: install what the script needs there, or "
    "install Breakeven's requirements where the script runs, and start it from there"
)


def run_script(run: RunDir, spec: RunSpec, log: EventLog, turns: TurnSource) -> bool:
    """From the specification to the last event; False if it was stopped."""
    experiment = spec.experiment
    earlier = read_earlier(run)
    log.append("phase", phase="preparing")
    log.flush(durable=True)
    device = open_device(name_of_visible(spec.device))
    if experiment.settings == "harness":
        device.allow_tf32(True)
    device.reduce_math_attention(spec.variant.math_attention == "reduced")
    environment = describe_environment(spec.experiment_id, device, experiment.cpu_threads)
    log.append("environment", **environment)
    for source, file, sha256 in copy_sources(experiment.user_code, run.artifacts / "source"):
        log.append("source", source=source, file=f"artifacts/source/{file}", sha256=sha256)
    keep_outputs(experiment, run, log)
    session = ScriptSession(spec, run, device, log, AnnouncedTurns(turns, log), earlier)
    script, folder = _places(experiment)
    if ScriptCheckpoints(run, log).latest() is None:
        # Of an attempt that was cut short, or of a folder from elsewhere: its modules would be
        # imported in place of anybody's.
        shutil.rmtree(run.workplace, ignore_errors=True)
    linked = make_workplace(folder, run.workplace)
    if linked:
        session.workload.notes.append(
            f"Linked into each run's folder, not copied: {_listed(linked)}."
        )
    with Watchdog(session, experiment.script.patience_seconds, log):
        _execute_to_the_end(_inside(script, folder, run.workplace), run, spec, session)
    finished = session.finish()
    if finished or not run.has_checkpoint:
        tidy(folder, run.workplace)
    return finished


def _execute_to_the_end(script: Path, run: RunDir, spec: RunSpec, session: ScriptSession) -> None:
    """Whatever the end is: what a script measured stays, and who it forked says nothing here."""
    process = os.getpid()
    try:
        _execute(script, run, spec, session)
    except Exception:
        if os.getpid() != process:
            os._exit(1)
        with suppress(Exception):  # the device may be gone as well; the script's error counts
            session.end_block()
        raise
    if os.getpid() != process:
        os._exit(0)


def _execute(script: Path, run: RunDir, spec: RunSpec, session: ScriptSession) -> None:
    """Until the script ends by itself, or the session ends it."""
    os.chdir(run.workplace)
    sys.argv = [str(script), *spec.experiment.script.arguments]
    sys.path.insert(0, str(script.parent))
    seed(spec.experiment.training.seed)
    breakeven._attach(session)
    try:
        with (
            explained(spec.variant),
            session.compiler.in_place_of_torch(),
            after_import(TRAINERS, session),
        ):
            runpy.run_path(str(script), run_name="__main__")
    except EndOfScript:
        pass
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            raise WorkloadError(f"{script.name} ended with sys.exit({leaving.code!r})") from leaving
    except EOFError as error:
        raise WorkloadError(f"{script.name}: {error}. {NO_INPUT}") from error
    except ModuleNotFoundError as error:
        raise WorkloadError(f"{script.name}: {error}. {NOT_INSTALLED}") from error
    finally:
        breakeven._attach(None)


def seed(number: int) -> None:
    """Sets all generators of random numbers that a script may draw from without seeding them. The
    order of sets is the same in all runs, too: the supervisor starts them with PYTHONHASHSEED."""
    random.seed(number)
    torch.manual_seed(number)
    with suppress(ImportError):
        import numpy

        numpy.random.seed(number % 2**32)


def _places(experiment: ExperimentSpec) -> tuple[Path, Path]:
    """The script, and the folder that it expects to be started in; raises `CodeNotAllowed`."""
    assert experiment.model.script is not None
    script, _ = locate(experiment.model.script)
    folder = experiment.script.folder
    return script, allowed(folder, Path(folder)) if folder else script.parent


def _inside(script: Path, folder: Path, workplace: Path) -> Path:
    """The script's copy, or itself if it lies elsewhere."""
    is_inside = script.is_relative_to(folder)
    return workplace / script.relative_to(folder) if is_inside else script


def _listed(names: list[str]) -> str:
    rest = len(names) - 5
    return ", ".join(names[:5]) + (f" and {rest} more" if rest > 0 else "")
