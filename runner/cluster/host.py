"""One experiment on a machine that is not at home: the same scheduler in a folder of its own there.

Whoever placed it reads what it writes, and asks it to stop. Who is not asked for a long while is
forgotten, and ends: nobody trains on unobserved.
"""

import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from breakeven.runner.cluster.parts import PART_BYTES, Known, Part, missing
from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import Experiment, experiments, find_experiment
from breakeven.runner.folders.records import Claim
from breakeven.runner.machine.cpus import cores, cpu_allowance, numa_nodes, shares
from breakeven.runner.machine.placement import Machine, Place
from breakeven.runner.supervision.exits import ExitRecords
from breakeven.runner.supervision.supervisor import work_at

WORKER = ("-m", "breakeven.runner.worker")
LOOK_SECONDS = 1.0
Files = Mapping[str, Mapping[str, bytes]]
"""Contents by run and path: what a run begins with."""


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """What a machine tells of itself."""

    host: str
    cpus: frozenset[int]
    shares: Mapping[str, frozenset[int]]
    versions: Mapping[str, str]
    """Of Python and the packages that decide what is measured."""


PACKAGES = ("torch", "transformers", "triton", "numpy")


def facts(num_gpus: int = 0) -> NodeFacts:
    """Of the machine that this runs on."""
    cpus = cpu_allowance().cpus
    devices: dict[str, int | None] = {f"cuda:{number}": None for number in range(num_gpus)}
    versions = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return NodeFacts(host=socket.gethostname(), cpus=cpus, versions=versions,
                     shares=shares(devices, cores(cpus), numa_nodes()))  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """What has happened since the last one."""

    parts: list[Part]
    claims: dict[str, Claim]
    """Of every run that was started, as it stands there."""
    specs: dict[str, str]
    """Specifications of further runs that are to be queued, by run: of an experiment that begins
    once more, run by run, because the device could not hold all."""
    host: str
    place: Place
    is_over: bool
    """Whether nothing works there any more; all is at home once a delivery brings nothing new."""


@dataclass
class Host:
    """The work on one experiment, in a thread of this process."""

    experiment_id: str
    files: Files
    place: Place
    worker: Sequence[str] = WORKER
    patience_seconds: float = 600.0
    """How long nobody need ask before it ends."""
    give_up: Callable[[], None] = field(default=lambda: os._exit(1))
    """Ends this process, and with it all that it started: their pipes close."""

    def __post_init__(self) -> None:
        self._data_dir = DataDir(tempfile.mkdtemp(prefix="breakeven-"))
        for run_id, files in self.files.items():
            for path, data in files.items():
                target = self._data_dir.run_dir(run_id).path / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
        self.files = {}
        self._asked = time.monotonic()
        self._is_over = False
        threading.Thread(target=self._work, daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()

    def _work(self) -> None:
        """Runs the experiment to its end; affinity is that of this thread and what it starts."""
        try:
            experiment = find_experiment(self._data_dir, self.experiment_id)
            machine = Machine(cpus=cpu_allowance().cpus)
            command = (sys.executable, *self.worker)
            # Home takes in no run that it did not send.
            work_at(self._data_dir, experiment, command, ExitRecords(), self.place, machine,
                    takes_controls=False)  # fmt: skip
        finally:
            self._is_over = True

    def _watch(self) -> None:
        while True:
            if time.monotonic() - self._asked > self.patience_seconds:
                self.give_up()
                return
            time.sleep(LOOK_SECONDS)

    def deliver(self, known: Mapping[str, Known]) -> Delivery:
        """What is not at home yet, about `PART_BYTES` of it; `known` by run."""
        self._asked = time.monotonic()
        is_over = self._is_over  # before reading: what is written after that comes later
        mine, further = self._found()
        parts: list[Part] = []
        claims: dict[str, Claim] = {}
        left = PART_BYTES
        for run in mine.runs if mine else ():
            claim = run.read_claim()
            if claim is not None:
                claims[run.run_id] = claim
            if left > 0:
                parts += missing(run, known.get(run.run_id, {}), left)
                left = PART_BYTES - sum(len(part.data) for part in parts)
        specs = {run.run_id: run.read_spec().to_json() for one in further for run in one.runs}
        return Delivery(parts=parts, claims=claims, specs=specs, host=socket.gethostname(),
                        place=self.place, is_over=is_over and not parts)  # fmt: skip

    def _found(self) -> tuple[Experiment | None, list[Experiment]]:
        every = list(experiments(self._data_dir))
        mine = next((one for one in every if one.experiment_id == self.experiment_id), None)
        return mine, [one for one in every if one is not mine]

    def cancel(self, run_ids: Sequence[str]) -> None:
        """Asks runs to stop."""
        for run_id in run_ids:
            self._data_dir.run_dir(run_id).request_cancel()

    def clean(self) -> None:
        """Removes the folder: all of it is at home."""
        if not self._is_over:
            raise RunnerError(f"{self.experiment_id} still runs")
        shutil.rmtree(self._data_dir.path, ignore_errors=True)


def files_of(experiment: Experiment) -> dict[str, dict[str, bytes]]:
    """What runs begin with: their specifications, and of those that go on also what they wrote."""
    found = {}
    for run in experiment.runs:
        paths = [run.spec_file, *([run.cancel_file] if run.cancel_requested else [])]
        if run.events_file.exists() or run.is_recorded:
            paths += [file for file in run.path.rglob("*") if file.is_file()
                      and not file.is_symlink() and file.name != "claim.json"
                      and run.attempts not in file.parents]  # fmt: skip
        found[run.run_id] = {str(Path(file).relative_to(run.path)): Path(file).read_bytes()
                             for file in dict.fromkeys(paths)}  # fmt: skip
    return found
