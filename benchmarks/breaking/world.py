"""A data folder with a real supervisor and real runs, for a trial to break and examine."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from breakeven.runner.experiments.queue import submit
from breakeven.runner.processes import members
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec

try:
    import duckdb as _  # noqa: F401

    HAS_DUCKDB = True
except ImportError:  # a borrowed machine with torch only
    HAS_DUCKDB = False

FAKE = (sys.executable, "-m", "tests.helpers.fake_worker")
"""A run that speaks the protocol without training: trials take a second."""
REAL = (sys.executable, "-m", "breakeven.runner.worker")
SUPERVISE = """
import sys
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.supervision import supervisor
supervisor.LINGER_SECONDS = 0.0
supervisor.supervise(DataDir(sys.argv[1]), tuple(sys.argv[2:]))
"""
HOLDERS = ("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader")
"""A line for each process that holds memory of a CUDA device, according to the driver."""
PATIENCE_SECONDS = 240.0
LOOK_SECONDS = 0.02
Acknowledged = dict[str, list[str]]
"""Complete lines of journals by run: runs have handed them to the system, so none may get lost."""


class Impatience(Exception):
    """An expected event did not happen in a long time."""


@dataclass(kw_only=True)
class Outcome:
    """The result of one trial."""

    lost: int = 0
    doubled: int = 0
    left: int = 0
    """Processes of runs that are alive after the state is reported."""
    seconds: float = 0.0
    """Seconds until the reported state was true."""
    was_late: bool = False
    """Whether the target had ended before the fault."""
    is_indexed: bool = True
    """Whether the index was checked too, which needs DuckDB."""
    problems: list[str] = field(default_factory=list)
    """Other problems."""

    def expect(self, runs: Iterable[RunDir], *states: RunState) -> None:
        """Each run that is in another state is a problem."""
        self.problems += [f"{run.run_id} is {run.state}" for run in runs if run.state not in states]


class World:
    """One trial's data folder and processes."""

    def __init__(self, folder: Path, command: Sequence[str] = FAKE, device: str = "cpu") -> None:
        self.data_dir = DataDir(folder)
        self.data_dir.path.mkdir(parents=True, exist_ok=True)
        self.command = command
        self.device = device
        """Device of real trainings."""
        self.processes: list[subprocess.Popen[bytes]] = []

    def submit(self, spec: ExperimentSpec) -> list[RunDir]:
        experiment_id = submit(self.data_dir, spec)
        return [self.data_dir.run_dir(f"{experiment_id}.{arm.label}") for arm in spec.arms]

    def supervise(
        self, environment: Mapping[str, str] | None = None, before: Callable[[], None] | None = None
    ) -> "subprocess.Popen[bytes]":
        """Starts a supervisor; its process calls `before` first."""
        log = (self.data_dir.path / "supervisor.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISE, str(self.data_dir.path), *self.command],
            cwd=PROJECT_ROOT,
            env={**os.environ, **(environment or {})},
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=before,
        )
        log.close()
        self.processes.append(process)
        return process

    def wait(self, condition: Callable[[], bool], what: str) -> float:
        """Seconds until a condition holds; raises `Impatience`."""
        begun = time.monotonic()
        while not condition():
            if time.monotonic() - begun > PATIENCE_SECONDS:
                raise Impatience(f"{what}: not within {PATIENCE_SECONDS:.0f} s")
            time.sleep(LOOK_SECONDS)
        return time.monotonic() - begun

    def recorded(self, runs: Sequence[RunDir]) -> Outcome:
        """Waits until the ends of the runs are recorded, and takes the time."""
        return Outcome(seconds=self.wait(lambda: all(run.is_recorded for run in runs), "the end"))

    def acknowledged(self) -> Acknowledged:
        """All complete lines of the journals, including earlier attempts."""
        return {run.run_id: lines_of(run) for run in self.data_dir.run_dirs()}

    def alive(self) -> int:
        """Number of living processes of runs."""
        return sum(1 for _ in members(self.data_dir.runs))

    def judge(self, before: Acknowledged, outcome: Outcome) -> Outcome:
        """Counts acknowledged lines that are lost, and duplicates: in journals by line number, in
        the index by run and step."""
        for run_id, lines in self.acknowledged().items():
            have, had = Counter(lines), Counter(before.get(run_id, []))
            outcome.lost += (had - have).total()
        for run in self.data_dir.run_dirs():
            numbers = Counter(_number(line) for line in _event_lines(run.events_file))
            outcome.doubled += sum(count - 1 for count in numbers.values())
        outcome.is_indexed = HAS_DUCKDB
        if HAS_DUCKDB:
            outcome.doubled += self._steps_doubled()
        outcome.left = self.alive()
        if self.device.startswith("cuda"):
            self.wait(lambda: not _held_by_the_dead(), "free memory of the device")
        return outcome

    def _steps_doubled(self) -> int:
        """Duplicate steps in an index built from the current journals."""
        from breakeven.storage.index.store import Store

        with Store.in_memory(self.data_dir) as store:
            ((rows, pairs),) = store.rows(
                "SELECT count(*), count(DISTINCT (run_id, step)) FROM steps"
            )
        return int(rows - pairs)

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        process.kill()
        process.wait()

    def close(self) -> None:
        """Ends all remaining processes."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        for member in members(self.data_dir.runs):
            with suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGKILL)


def _held_by_the_dead() -> list[str]:
    """Dead processes that hold memory of a device; living ones are counted elsewhere."""
    listing = subprocess.run(HOLDERS, capture_output=True, text=True, check=True)
    return [pid for pid in listing.stdout.split() if not os.path.exists(f"/proc/{pid}")]


def leader(run: RunDir) -> int | None:
    """The process that a supervisor started for a run, if it is alive."""
    claim = run.read_claim()
    alive = claim is not None and claim.process.is_alive
    return claim.process.pid if alive and claim is not None else None


def kinds(run: RunDir) -> list[str]:
    """Kinds of the events in a journal; phases by name."""
    names = []
    for line in _event_lines(run.events_file):
        event = json.loads(line)
        names.append(event["phase"] if event["kind"] == "phase" else event["kind"])
    return names


def lines_of(run: RunDir) -> list[str]:
    """Complete lines of its journal and of those of earlier attempts."""
    files = [run.events_file, *run.attempts.glob(f"*/{run.events_file.name}")]
    return [line for file in files for line in _event_lines(file)]


def _event_lines(file: Path) -> list[str]:
    """Complete lines that a reader accepts as events."""
    try:
        complete = file.read_bytes().rpartition(b"\n")[0].decode(errors="replace")
    except FileNotFoundError:
        return []
    return [line for line in complete.splitlines() if line.startswith("{") and line.endswith("}")]


def _number(line: str) -> object:
    return json.loads(line)["seq"]
