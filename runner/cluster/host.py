"""Executes one experiment on a remote machine: the same scheduler, with a temporary data folder.

"Home" is the data folder of the driver. The driver requests new data and stops; without requests
for 10 minutes the process ends, so that no training continues unobserved. Files are sent in parts:
growing files incrementally, others whole. The driver names the parts that it already has, so this
process keeps no state of transfers, and a repeated request returns the same part.
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
from pathlib import Path

from breakeven.runner.errors import InvalidRunFolder, RunnerError
from breakeven.runner.experiments.queue import Experiment, experiments, find_experiment
from breakeven.runner.files import UNFINISHED
from breakeven.runner.machine.capabilities import installed_version
from breakeven.runner.machine.cpus import cpu_allowance, cpus_by_core, cpus_by_device, numa_nodes
from breakeven.runner.machine.placement import Machine, Place
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.plain_files import open_inside, walk
from breakeven.runner.protocol.records import Claim
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.supervision.exit_records import ExitRecords
from breakeven.runner.supervision.supervisor import run_experiment

GROWING = ("events.jsonl", "output.log")
KEPT_AT_HOME = (
    "spec.json",
    "claim.json",
    "cancel",
    "labels.json",
    "devices.json",
    "plan.json",
    "attempts",
)
"""Files that are written at home."""
NOT_SENT = (*KEPT_AT_HOME, "compile-cache", "work")
"""First names of paths that are never sent: files that are written at home, and code."""
LAST = "exit.json"
"""Sent last: its readers assume that all other files are complete."""
PART_BYTES = 4_000_000
ARRIVING = ".arriving"
"""Suffix of a file that has not yet arrived completely."""


@dataclass(frozen=True)
class HomeFile:
    """The part of a file that has arrived at home."""

    size: int
    version: int = 0
    """Modification time in ns of a file that is sent whole; 0 for a growing file."""


Known = Mapping[str, HomeFile]
"""The files of a run at home, by path in the run folder."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a file."""

    run_id: str
    path: str
    offset: int
    data: bytes
    version: int = 0
    is_end: bool = False
    """Whether this is the last part of a file that is sent whole."""


def missing_parts(run: RunDir, known: Known, most_bytes: int = PART_BYTES) -> Iterator[Part]:
    """Yields the next parts, about `most_bytes` in total; none if everything is at home.

    Lists the files that are sent whole before reading the journal, so that home never has a
    checkpoint with steps that are missing in its journal.
    """
    files = [(path, *_version(run.path / path)) for path in _whole_files(run)]
    left = most_bytes
    for name in GROWING:
        for part in _appended(run, name, known.get(name, HomeFile(0)), left):
            left -= len(part.data)
            yield part
    for path, version, size in sorted(files, key=lambda file: file[0] == LAST):
        sent = known.get(path, HomeFile(0, -1))
        if (sent.version, sent.size) == (version, size):
            continue
        # The journal is sent before all other files, exit.json after them.
        if left <= 0:
            return
        offset = sent.size if sent.version == version else 0
        data = _read(run, path, offset, left)
        if size and not data:  # a checkpoint that was removed meanwhile
            continue
        left -= len(data)
        yield Part(
            run_id=run.run_id,
            path=path,
            offset=offset,
            data=data,
            version=version,
            is_end=offset + len(data) >= size,
        )


def _appended(run: RunDir, name: str, sent: HomeFile, most_bytes: int) -> Iterator[Part]:
    try:
        with open_inside(run.path, name) as opened:
            size = os.fstat(opened.fileno()).st_size
    except (OSError, InvalidRunFolder):
        return
    offset = sent.size if size >= sent.size else 0  # output.log is truncated if it grows too long
    if size != sent.size:
        data = _read(run, name, offset, most_bytes)
        yield Part(run_id=run.run_id, path=name, offset=offset, data=data)


def _read(run: RunDir, name: str, offset: int, most_bytes: int) -> bytes:
    """Reads a plain file of the folder; returns no bytes for a pipe or a link out of it."""
    try:
        with open_inside(run.path, name) as opened:
            opened.seek(offset)
            return opened.read(max(0, most_bytes))
    except (OSError, InvalidRunFolder):
        return b""


def _version(file: Path) -> tuple[int, int]:
    try:
        status = file.lstat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def _whole_files(run: RunDir) -> Iterator[str]:
    """Paths of all plain files but growing files, files written at home, and unfinished files."""
    own = (run.compile_cache, run.workplace)
    for parent, folders, files in walk(run.path):
        folder = Path(parent)
        folders[:] = sorted(name for name in folders if folder / name not in (*own, run.attempts))
        for name in sorted(files):
            path = str((folder / name).relative_to(run.path))
            if path in (*GROWING, *KEPT_AT_HOME) or name.startswith("."):
                continue
            if not name.endswith((UNFINISHED, ARRIVING)) and not (folder / name).is_symlink():
                yield path


def sizes_at_home(run: RunDir) -> dict[str, HomeFile]:
    """Sizes of the growing files in a folder at home; all other files are sent again."""
    sizes = {}
    for name in GROWING:
        file = run.path / name
        if file.exists():
            sizes[name] = HomeFile(file.stat().st_size)
    return sizes


def store_part(run: RunDir, part: Part, known: dict[str, HomeFile]) -> None:
    """Writes a part into the folder at home and records it in `known`.

    Raises `InvalidRunFolder` for a path that leads out of the folder, and `OSError`.
    """
    target = run.path / part.path
    inside = target.resolve().is_relative_to(run.path.resolve())
    names = Path(part.path).parts
    if not inside or not names or ".." in names or names[0] in NOT_SENT:
        raise InvalidRunFolder(f"{part.path!r} is not a file that a run writes")
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
"""Initial files of runs: contents by run id and path."""


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """Resources and versions of a machine."""

    host: str
    machine: Machine
    versions: Mapping[str, str]
    """Versions of Python and of packages that influence measurements."""


PACKAGES = ("torch", "transformers", "triton", "numpy")


def node_facts(num_gpus: int = 0) -> NodeFacts:
    """The facts of the current machine."""
    cpus = cpu_allowance().cpus
    devices: dict[str, int | None] = {f"cuda:{number}": None for number in range(num_gpus)}
    installed = {package: installed_version(package) for package in PACKAGES}
    versions = {name: version for name, version in installed.items() if version is not None}
    local_cpus = cpus_by_device(devices, cpus_by_core(cpus), numa_nodes())
    return NodeFacts(
        host=socket.gethostname(),
        machine=Machine(cpus=cpus, cpus_by_device=local_cpus, is_known=True),
        versions=versions | {"python": sys.version.split()[0]},
    )


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """New data since the previous delivery."""

    parts: list[Part]
    claims: dict[str, Claim]
    """The current claim of every started run, by run id."""
    specs: dict[str, str]
    """Specifications of further runs to queue, by run id: if the device could not hold all runs at
    once, another experiment repeats them one after another."""
    host: str
    place: Place
    is_over: bool
    """Whether the experiment has ended and no parts are left to send."""


def delivery(
    data_dir: DataDir, known: Mapping[str, Known], host: str, place: Place, *, is_over: bool
) -> Delivery:
    """About `PART_BYTES` of data in a data folder that home lacks; `known` has the ids of the runs
    that home sent. `is_over`: whether the experiment has ended."""
    parts: list[Part] = []
    claims: dict[str, Claim] = {}
    specs: dict[str, str] = {}
    left = PART_BYTES
    for run in (run for experiment in experiments(data_dir) for run in experiment.runs):
        if run.run_id not in known:
            specs[run.run_id] = run.read_spec().to_json()
            continue
        claim = run.read_claim()
        if claim is not None:
            claims[run.run_id] = claim
        if left > 0:
            parts += missing_parts(run, known[run.run_id], left)
            left = PART_BYTES - sum(len(part.data) for part in parts)
    return Delivery(
        parts=parts,
        claims=claims,
        specs=specs,
        host=host,
        place=place,
        is_over=is_over and not parts,
    )


@dataclass
class Host:
    """Executes one experiment in a thread of this process."""

    experiment_id: str
    files: Files
    place: Place
    worker: Sequence[str] = WORKER
    patience_seconds: float = 600.0
    """Seconds without a request after which this process ends."""
    give_up: Callable[[], None] = field(default=lambda: os._exit(1))
    """Ends this process, and so its children: their pipes close."""

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
        """Runs the experiment to its end; CPU affinity applies to this thread and its children."""
        try:
            experiment = find_experiment(self._data_dir, self.experiment_id)
            machine = Machine(cpus=cpu_allowance().cpus)
            command = (sys.executable, *self.worker)
            # Home accepts no runs that it did not send.
            run_experiment(
                self._data_dir,
                experiment,
                command,
                ExitRecords(),
                self.place,
                machine,
                takes_controls=False,
            )
        finally:
            self._is_over = True

    def _watch(self) -> None:
        while True:
            if time.monotonic() - self._last_request > self.patience_seconds:
                self.give_up()
                return
            time.sleep(LOOK_SECONDS)

    def deliver(self, known: Mapping[str, Known]) -> Delivery:
        """Returns the next data that home lacks; `known` has run ids as keys."""
        self._last_request = time.monotonic()
        is_over = self._is_over  # before the read: later writes go into the next delivery
        return delivery(self._data_dir, known, socket.gethostname(), self.place, is_over=is_over)

    def cancel(self, run_ids: Sequence[str]) -> None:
        """Requests a stop of runs."""
        for run_id in run_ids:
            self._data_dir.run_dir(run_id).request_cancel()

    def clean(self) -> None:
        """Removes the folder after everything was sent home."""
        if not self._is_over:
            raise RunnerError(f"{self.experiment_id} is still running")
        shutil.rmtree(self._data_dir.path, ignore_errors=True)


def initial_files(experiment: Experiment) -> dict[str, dict[str, bytes]]:
    """Initial files of runs: specifications, and for resumed runs also their earlier output."""
    files = {}
    for run in experiment.runs:
        paths = [run.spec_file, *([run.cancel_file] if run.cancel_requested else [])]
        if run.events_file.exists() or run.is_recorded:
            paths += [
                file
                for file in run.path.rglob("*")
                if file.is_file()
                and not file.is_symlink()
                and file.name != "claim.json"
                and run.attempts not in file.parents
            ]
        files[run.run_id] = {
            str(Path(file).relative_to(run.path)): Path(file).read_bytes()
            for file in dict.fromkeys(paths)
        }
    return files
