"""Runs experiments as Slurm jobs through submitit: one job for each, in the order of Slurm.

A job works in a folder that the driver can read, too. They communicate through files in it: the
driver touches `asked` and the job `alive`; the driver writes `stop` to end the job, and the job
writes `over` at its end.
"""

import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import submitit

from breakeven.runner.cluster.driver import JobLost
from breakeven.runner.cluster.host import WORKER, Delivery, HomeFile, NodeFacts, delivery
from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments.queue import find_experiment
from breakeven.runner.machine.cpus import cpu_allowance
from breakeven.runner.machine.occupancy import resource_request
from breakeven.runner.machine.placement import Machine, Place
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.place import parse_cpus
from breakeven.runner.supervision.exit_records import ExitRecords
from breakeven.runner.supervision.supervisor import run_experiment
from breakeven.runner.texts import printable

LOOK_SECONDS = 1.0


class JobFolder:
    """The files of one job."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data_dir = DataDir(path)
        self.job_file = path / "job"
        self.request_file = path / "asked"
        self.alive = path / "alive"
        self.stop = path / "stop"
        self.over = path / "over"


def work(
    folder: str, experiment_id: str, worker: Sequence[str] = WORKER, patience_seconds: float = 600.0
) -> None:
    """Runs the experiment to its end on the resources of this job: the CPUs of its affinity and its
    visible GPUs."""
    job = JobFolder(Path(folder))
    if job.stop.exists():
        return
    job.alive.write_text(socket.gethostname())
    threading.Thread(target=_watch, args=(job, patience_seconds), daemon=True).start()
    experiment = find_experiment(job.data_dir, experiment_id)
    spec, cpus = experiment.spec, cpu_allowance().cpus
    devices = tuple(
        f"cuda:{place}" if name.startswith("cuda") else name
        for place, name in enumerate(resource_request(experiment).devices)
    )
    named = cpus if spec.cpus is None else parse_cpus(spec.cpus)
    place = Place(devices=devices, cpus=named, exclusive=spec.exclusive)
    command = (sys.executable, *worker)
    run_experiment(job.data_dir, experiment, command, ExitRecords(), place, Machine(cpus=cpus))
    job.over.touch()


def _watch(job: JobFolder, patience_seconds: float) -> None:
    """Ends this process at the file `stop`, or after `patience_seconds` without requests. Then the
    pipes of its runs close, and the runs end themselves."""
    seen, since = 0.0, time.monotonic()
    while not job.over.exists():
        with suppress(OSError):
            os.utime(job.alive)
            requested = job.request_file.stat().st_mtime
            if requested != seen:
                seen, since = requested, time.monotonic()
        if job.stop.exists() or time.monotonic() - since > patience_seconds:
            os._exit(1)
        time.sleep(LOOK_SECONDS)


MOST_JOBS = 64
MOST_GPUS = 16
"""Most GPUs of one job; Slurm decides whether a machine has so many."""
LOST_SECONDS = 60.0
"""Longest time without a sign of life of a job that has begun."""


class SubmititEngine:
    """Jobs of a Slurm cluster that has the data folder under the same path. With the cluster
    `local`: processes of this machine, all on the same CPUs unless experiments name some."""

    def __init__(
        self,
        data_dir: DataDir,
        *,
        cluster: str = "slurm",
        parameters: Mapping[str, str | int] | None = None,
        worker: Sequence[str] = WORKER,
        patience_seconds: float = 600.0,
    ) -> None:
        """`parameters`: names and values for submitit (`slurm_partition`, `timeout_min`). Raises
        `RunnerError` without Slurm."""
        self._folder = data_dir.path / "cluster"
        self._worker = tuple(worker)
        self._patience_seconds = patience_seconds
        self._numbers = count(1)
        self.jobs: dict[str, SubmititJob] = {}
        self._cluster = cluster
        self._parameters = dict(parameters or {})
        try:
            self._executor()
        except (RuntimeError, TypeError, NameError) as error:
            raise RunnerError(f"--slurm: {error}") from error

    def _executor(self, **resources: str | int) -> submitit.AutoExecutor:
        """A new executor for each job: an executor remembers the resources of earlier jobs."""
        executor = submitit.AutoExecutor(self._folder / "logs", cluster=self._cluster)
        executor.update_parameters(**(self._parameters | resources))
        return executor

    def nodes(self) -> dict[str, NodeFacts]:
        """One dummy machine for each further job that may wait: Slurm chooses the real machines and
        queues the jobs."""
        self.jobs = {key: job for key, job in self.jobs.items() if not job.has_ended}
        cpus = frozenset({0})
        cpus_by_device = {f"cuda:{number}": cpus for number in range(MOST_GPUS)}
        machine = Machine(cpus=cpus, cpus_by_device=cpus_by_device, is_known=True)
        facts = NodeFacts(host="of Slurm", machine=machine, versions={})
        free = max(0, MOST_JOBS - len(self.jobs))
        return {f"job {next(self._numbers)}": facts for _ in range(free)}

    def start(
        self, key: str, node: str, place: Place, files: Mapping[str, Mapping[str, bytes]]
    ) -> "SubmititJob":
        job = JobFolder(self._folder / key)
        shutil.rmtree(job.path, ignore_errors=True)
        for run_id, contents in files.items():
            for path, data in contents.items():
                target = job.data_dir.run_dir(run_id).path / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
        job.request_file.touch()
        gpus = sum(name.startswith("cuda") for name in place.devices)
        resources = {"gpus_per_node": gpus} if gpus else {}
        executor = self._executor(name=f"breakeven-{key}", **resources)
        try:
            submitted = executor.submit(
                work, str(job.path), key.rpartition(".")[0], self._worker, self._patience_seconds
            )
        except RuntimeError as error:  # from sbatch, which may refuse this job but accept the next
            shutil.rmtree(job.path, ignore_errors=True)
            raise RunnerError(f"Slurm refused the job: {printable(error, 500)}") from error
        job.job_file.write_text(submitted.job_id)
        self.jobs[key] = SubmititJob(job, node, submitted)
        return self.jobs[key]

    def left_behind(self) -> dict[str, "SubmititJob"]:
        for file in self._folder.glob("*/job"):
            job = JobFolder(file.parent)
            if not job.stop.exists():
                self.jobs[file.parent.name] = SubmititJob(job, None, None)
        return dict(self.jobs)


class SubmititJob:
    """A job, identified by its folder; `submitted` is None for a job of an earlier driver."""

    node: str | None

    def __init__(
        self, job: JobFolder, node: str | None, submitted: "submitit.Job[None] | None"
    ) -> None:
        self.node = node
        self.has_ended = False
        self._job = job
        self._submitted = submitted
        self._alive = 0.0
        self._alive_since = time.monotonic()

    def delivery(self, known: Mapping[str, Mapping[str, HomeFile]]) -> Delivery | None:
        try:
            self._job.request_file.touch()
        except FileNotFoundError:
            raise JobLost(f"its folder {self._job.path} is gone") from None
        is_over = self._job.over.exists()  # before the read: the next delivery has later writes
        if not is_over:
            self._check_alive()
            if not self._job.alive.exists():
                return None  # The job still waits in Slurm's queue.
        # The job itself keeps to Slurm's allocation; home needs no place.
        place = Place(devices=(), cpus=frozenset())
        host = self._job.alive.read_text()
        return delivery(self._job.data_dir, known, host, place, is_over=is_over)

    def _check_alive(self) -> None:
        """Raises `JobLost` if the file `alive` stops changing; its time is not compared, since
        clocks of machines differ."""
        seen = self._job.alive.stat().st_mtime if self._job.alive.exists() else 0.0
        if seen != self._alive:
            self._alive, self._alive_since = seen, time.monotonic()
        silent = time.monotonic() - self._alive_since
        if self._submitted is not None and self._submitted.done() and not self._job.over.exists():
            raise JobLost(f"job {self._submitted.job_id} ended without a result")
        if seen and silent > LOST_SECONDS:
            raise JobLost(f"its job showed no sign of life for {silent:.0f} s")

    def cancel(self, run_ids: list[str]) -> None:
        for run_id in run_ids:
            self._job.data_dir.run_dir(run_id).request_cancel()
        runs = list(self._job.data_dir.run_dirs())
        waits = self._submitted is not None and not self._job.alive.exists()
        if waits and all(run.cancel_requested for run in runs):
            self._submitted.cancel(check=False)  # type: ignore[union-attr]

    def end(self) -> None:
        self.has_ended = True
        self._job.stop.touch()
        if self._submitted is not None and not self._submitted.done():
            self._submitted.cancel(check=False)
        if self._job.over.exists():
            shutil.rmtree(self._job.path, ignore_errors=True)
