"""Running an experiment to its end, and having storage/ say what it came to."""

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from types import FrameType

from breakeven.runner.checks.experiment import check_user_code
from breakeven.runner.commands.terminal import watch
from breakeven.runner.files import is_locked
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import (
    Experiment,
    cancel,
    ensure_supervisor,
    experiments,
    find_experiment,
    submit,
)
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.experiment import ExperimentSpec

BAD_INPUT = 2


def run_through(data_dir: DataDir, spec: ExperimentSpec) -> Experiment:
    """Submits an experiment and waits until it is over; the one that repeats it run by run, if the
    device could not hold all of its runs at once."""
    if not is_locked(data_dir.supervisor_lock):
        check_user_code(spec)
    experiment = find_experiment(data_dir, submit(data_dir, spec))
    while True:
        ensure_supervisor(data_dir)
        _print(f"experiment {experiment.experiment_id}, {_length(experiment.spec)}")
        _watch(data_dir, experiment)
        repeat = _fallback_of(data_dir, experiment)
        if repeat is None:
            return experiment
        _print("The device cannot hold all runs at once; repeating them one after another.")
        experiment = repeat


def _watch(data_dir: DataDir, experiment: Experiment) -> None:
    """Until all have ended, also the controls that it takes once the others have."""
    while True:
        with _interrupt_cancels(experiment):
            watch(experiment)
        grown = find_experiment(data_dir, experiment.experiment_id)
        if len(grown.runs) == len(experiment.runs):
            return
        _print(f"One control more, {grown.variants[-1].label}: the losses of a backend lie too far "
               "from those of equal trainings to call them the same.")  # fmt: skip
        experiment = grown


def _length(spec: ExperimentSpec) -> str:
    if not spec.num_steps:
        return "as many steps a run as the script makes"
    most = "at most " if spec.kind.ends_by_width or spec.is_script else ""
    return f"{most}{spec.num_steps} steps a run"


def with_storage(data_dir: DataDir, command: str, arguments: Sequence[str]) -> int:
    """Runs a command of storage/, and returns its exit status.

    The runner may not import it: a process of its own.
    """
    if find_spec("duckdb") is None:
        _print(
            f"The runs are in {data_dir.runs}. Comparing them takes duckdb, which is not installed "
            "here: install it, or copy them into `runs/` of a data folder on a machine that has "
            f"it, and say `breakeven {shlex.join([command, *arguments])} --data-folder "
            "FOLDER`."
        )
        return BAD_INPUT
    whole = [
        sys.executable,
        "-m",
        "breakeven.storage",
        command,
        f"--data-folder={data_dir.path}",
        *arguments,
    ]
    return subprocess.run(whole, cwd=PROJECT_ROOT).returncode


def _fallback_of(data_dir: DataDir, experiment: Experiment) -> Experiment | None:
    for other in experiments(data_dir):
        if other.spec.fallback_of == experiment.experiment_id:
            return other
    return None


@contextmanager
def _interrupt_cancels(experiment: Experiment) -> Iterator[None]:
    """Ctrl-C stops the experiment, and the command still waits for its last words."""

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        cancel(experiment)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
