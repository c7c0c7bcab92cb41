"""One experiment on a machine that is not at home: the same scheduler in a folder of its own there.

The driver that placed the experiment reads what this process writes, and requests its stop. Without
requests for a long while the experiment ends, so that no training continues unobserved. Files go
home part by part: growing files as prefixes, others whole. The driver names the parts that it
already has, so that no state is needed here, and repeated requests give the same part.
"""

import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from breakeven.runner.errors import InvalidRunFolder, RunnerError
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.inside import open_inside, walk
from breakeven.runner.folders.queue import Experiment, experiments, find_experiment
from breakeven.runner.folders.run_dir import UNFINISHED, RunDir
from breakeven.runner.folders.states import Claim
from breakeven.runner.machine.cpus import cores, cpu_allowance, numa_nodes, shares
from breakeven.runner.machine.placement import Machine, Place
from breakeven.runner.supervision.exits import ExitRecords
from breakeven.runner.supervision.supervisor import work_at

GROWING = ("events.jsonl", "output.log")
KEPT_AT_HOME = ("spec.json", "claim.json", "cancel", "labels.json", "devices.json",
                "rounds.json", "attempts")  # fmt: skip
"""Whose writer is at home."""
NOT_SENT = (*KEPT_AT_HOME, "compile-cache", "work")
"""By which no path begins that comes home: what home writes, and code."""
LAST = "exit.json"
"""Goes home when all else is there: who reads it takes the rest for complete."""
PART_BYTES = 4_000_000
ARRIVING = ".arriving"
"""How the name of a file ends of which not all has come home."""


@dataclass(frozen=True)
class HomeFile:
    """How much of a file has reached the home folder."""

    size: int
    version: int = 0
    """Of one that is sent whole, its time of change; one that only grows has none."""


Known = Mapping[str, HomeFile]
"""By path in the run folder."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a file."""

    run_id: str
    path: str
    offset: int
    data: bytes
    version: int = 0
    is_end: bool = False
    """Whether the file ends here, as it is now; of those that are sent whole."""


def missing(run: RunDir, known: Known, most_bytes: int = PART_BYTES) -> Iterator[Part]:
    """What is to be sent next, about so many bytes; nothing once all is at home.

    Files that are sent whole are listed before the journal is read: a checkpoint that comes home
    never has steps of which the journal there does not tell.
    """
    whole = [(path, *_version(run.path / path)) for path in _whole(run)]
    left = most_bytes
    for name in GROWING:
        for part in _grown(run, name, known.get(name, HomeFile(0)), left):
            left -= len(part.data)
            yield part
    for path, version, size in sorted(whole, key=lambda one: one[0] == LAST):
        there = known.get(path, HomeFile(0, -1))
        if (there.version, there.size) == (version, size):
            continue
        # Not before all of the journal is on its way, and exit.json not before all of the others.
        if left <= 0:
            return
        offset = there.size if there.version == version else 0
        data = _read(run, path, offset, left)
        if size and not data:  # a checkpoint that is no longer among the latest
            continue
        left -= len(data)
        yield Part(run_id=run.run_id, path=path, offset=offset, data=data, version=version,
                   is_end=offset + len(data) >= size)  # fmt: skip


def _grown(run: RunDir, name: str, there: HomeFile, most_bytes: int) -> Iterator[Part]:
    try:
        with open_inside(run.path, name) as opened:
            size = os.fstat(opened.fileno()).st_size
    except (OSError, InvalidRunFolder):
        return
    offset = there.size if size >= there.size else 0  # output.log is cut where it grows too long
    if size != there.size:
        data = _read(run, name, offset, most_bytes)
        yield Part(run_id=run.run_id, path=name, offset=offset, data=data)


def _read(run: RunDir, name: str, offset: int, most_bytes: int) -> bytes:
    """Nothing of what is no plain file of the folder, such as a link out of it or a pipe."""
    try:
        with open_inside(run.path, name) as opened:
            opened.seek(offset)
            return opened.read(max(0, most_bytes))
    except (OSError, InvalidRunFolder):
        return b""


def _version(file: Path) -> tuple[int, int]:
    try:
        found = file.lstat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _whole(run: RunDir) -> Iterator[str]:
    """Paths of plain files but for those that grow, those of home, and what is being written."""
    own = (run.compile_cache, run.workplace)
    for parent, folders, files in walk(run.path):
        here = Path(parent)
        folders[:] = sorted(name for name in folders if here / name not in (*own, run.attempts))
        for name in sorted(files):
            path = str((here / name).relative_to(run.path))
            if path in (*GROWING, *KEPT_AT_HOME) or name.startswith("."):
                continue
            if not name.endswith((UNFINISHED, ARRIVING)) and not (here / name).is_symlink():
                yield path


def at_home(run: RunDir) -> dict[str, HomeFile]:
    """What a folder has of the files that grow; the others are sent once more."""
    found = {}
    for name in GROWING:
        file = run.path / name
        if file.exists():
            found[name] = HomeFile(file.stat().st_size)
    return found


def store(run: RunDir, part: Part, known: dict[str, HomeFile]) -> None:
    """Puts a part into the folder at home and notes it in `known`.

    Raises `InvalidRunFolder` for a path that leads out of the folder, and `OSError`.
    """
    target = run.path / part.path
    inside = target.resolve().is_relative_to(run.path.resolve())
    names = Path(part.path).parts
    if not inside or not names or ".." in names or names[0] in NOT_SENT:
        raise InvalidRunFolder(f"{part.path!r} is no file that a run writes")
    target.parent.mkdir(parents=True, exist_ok=True)
    grows = part.path in GROWING
    file = target if grows else target.with_name(target.name + ARRIVING)
    mode = "wb" if part.offset == 0 else "r+b"
    with file.open(mode) as opened:
        opened.truncate(part.offset)
        opened.seek(part.offset)
        opened.write(part.data)
        if not grows:
            opened.flush()
            os.fsync(opened.fileno())
    if part.is_end:
        os.replace(file, target)
    known[part.path] = HomeFile(part.offset + len(part.data), part.version)


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
    """Seconds without a request after which it ends."""
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
        self._last_request = time.monotonic()
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
            if time.monotonic() - self._last_request > self.patience_seconds:
                self.give_up()
                return
            time.sleep(LOOK_SECONDS)

    def deliver(self, known: Mapping[str, Known]) -> Delivery:
        """What is not at home yet, about `PART_BYTES` of it; `known` by run."""
        self._last_request = time.monotonic()
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
