"""The work on one experiment as a job of its own, in a folder that home sees, too.

What is asked and answered lies in that folder beside the data: who placed the job touches `asked`,
the job touches `alive`; `stop` ends it, and it writes `over` when it is done.
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from breakeven.runner.cluster.host import WORKER
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import find_experiment
from breakeven.runner.machine.cpus import cpu_allowance
from breakeven.runner.machine.occupancy import wish_of
from breakeven.runner.machine.placement import Machine, Place
from breakeven.runner.specs.place import parse_cpus
from breakeven.runner.supervision.exits import ExitRecords
from breakeven.runner.supervision.supervisor import work_at

LOOK_SECONDS = 1.0


class JobFolder:
    """The files of one job."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data_dir = DataDir(path)
        self.job_file = path / "job"
        self.asked = path / "asked"
        self.alive = path / "alive"
        self.stop = path / "stop"
        self.over = path / "over"


def work(
    folder: str, experiment_id: str, worker: Sequence[str] = WORKER, patience_seconds: float = 600.0
) -> None:
    """Runs the experiment to its end on what this job was given: its CPUs by affinity, its GPUs by
    what is visible."""
    job = JobFolder(Path(folder))
    if job.stop.exists():
        return
    job.alive.write_text(socket.gethostname())
    threading.Thread(target=_watch, args=(job, patience_seconds), daemon=True).start()
    experiment = find_experiment(job.data_dir, experiment_id)
    spec, cpus = experiment.spec, cpu_allowance().cpus
    devices = tuple(f"cuda:{place}" if name.startswith("cuda") else name
                    for place, name in enumerate(wish_of(experiment).devices))  # fmt: skip
    named = cpus if spec.cpus is None else parse_cpus(spec.cpus)
    place = Place(devices=devices, cpus=named, exclusive=spec.exclusive)
    command = (sys.executable, *worker)
    work_at(job.data_dir, experiment, command, ExitRecords(), place, Machine(cpus=cpus))
    job.over.touch()


def _watch(job: JobFolder, patience_seconds: float) -> None:
    """Ends this process when it is told to, or when nobody has asked for a long while; the pipes of
    its runs close with it, and they end themselves."""
    seen, since = 0.0, time.monotonic()
    while not job.over.exists():
        with suppress(OSError):
            os.utime(job.alive)
            asked = job.asked.stat().st_mtime
            if asked != seen:
                seen, since = asked, time.monotonic()
        if job.stop.exists() or time.monotonic() - since > patience_seconds:
            os._exit(1)
        time.sleep(LOOK_SECONDS)
