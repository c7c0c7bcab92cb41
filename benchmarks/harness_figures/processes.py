"""The two tools at work: both prepare, wait until they may time, and can be made to stand still."""

import csv
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.harness_figures.cells import SCRIPTS, Cell
from benchmarks.harness_figures.checkout import Checkout
from benchmarks.harness_figures.gated_harness import Kernel, listed
from runner.errors import RunnerError
from runner.folders.data_dir import DataDir
from runner.folders.events import read_events
from runner.folders.process import signal_group
from runner.folders.queue import Experiment, experiments, submit
from runner.folders.run_dir import RunDir
from runner.machine.cpus import cpu_allowance
from runner.machine.placement import Place
from runner.supervision.exit_records import ExitRecords
from runner.supervision.run_process import RunProcess
from runner.supervision.scheduler import Scheduler
from runner.supervision.supervisor import WORKER_COMMAND
from runner.supervision.turns import Turn

GATED = Path(__file__).with_name("gated_harness.py")
MEASURING_SECONDS = 90.0
PROFILES = 2
"""Turns with steps that are waited for, of each run, that are enough; what comes after is not
needed."""
POLL_SECONDS = 0.1
NAMED, REASON_CHARACTERS = 3, 300
"""Tensors and lines that stand for all, and how much of a line."""

Times = dict[str, list[Any]]
"""Seconds of single steps, by what was timed; and of what is compiled `kernels`: name, calls and
seconds of each."""


class Lost(Exception):
    """A tool came to no figures, and why."""


class Harness:
    """One process of PyTorch's harness."""

    def __init__(self, cell: Cell, checkout: Checkout, device: str, folder: Path) -> None:
        self._csv = folder / "harness.csv"
        self._log = folder / "harness.log"
        self._checks = cell.checks
        its_read, self._tell = os.pipe()
        self._read, its_write = os.pipe()
        script = SCRIPTS[cell.suite]
        command = [sys.executable, str(GATED), str(checkout.path), script, str(its_read),
                   str(its_write), *cell.harness_arguments(device, str(self._csv))]  # fmt: skip
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log.open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(its_read, its_write),
            env={
                **os.environ,
                "TORCHINDUCTOR_CACHE_DIR": str(checkout.path.parent / "cache"),
                # It works on the first device that it sees.
                "CUDA_VISIBLE_DEVICES": device.partition(":")[2] or "0",
            },
        )
        os.close(its_read)
        os.close(its_write)
        self._unread = b""
        self._ready = False

    @property
    def is_ready(self) -> bool:
        """Whether all is compiled and warm; raises `Lost`."""
        if self._checks:
            return self._process.poll() is not None
        self._ready = self._ready or self._answer(0.0) is not None
        return self._ready

    def time(self) -> Times:
        """One whole run of the harness's timing; raises `Lost`."""
        os.write(self._tell, b"time\n")
        answer: Times | None = self._answer(MEASURING_SECONDS)
        if answer is None:
            raise Lost(f"the harness timed for more than {MEASURING_SECONDS:g} s")
        return answer

    def prepare_our_way(self) -> None:
        """Has it compile the same step as Breakeven would; it is ready when that is done."""
        self._ready = False
        os.write(self._tell, b"prepare ours\n")

    def take_apart(self) -> dict[str, Any]:
        """What `apart` of `gated_harness` finds; raises `Lost`."""
        os.write(self._tell, b"take apart\n")
        answer: dict[str, Any] | None = self._answer(MEASURING_SECONDS)
        if answer is None:
            raise Lost(f"the harness took its step apart for more than {MEASURING_SECONDS:g} s")
        return answer

    def status(self) -> tuple[str, str]:
        """How its accuracy check ended, and what it said of it; raises `Lost`."""
        try:
            with self._csv.open() as file:
                status = str([row["accuracy"] for row in csv.DictReader(file)][-1])
        except (OSError, KeyError, IndexError):
            raise Lost(f"the harness: {_last_line(self._log)}") from None
        if "OOM" in status:
            raise Lost(f"the harness: {status}")
        log = self._log.read_text(errors="replace").splitlines()
        said = [
            line[:REASON_CHARACTERS] for line in log if "Accuracy failed" in line or "RMSE" in line
        ]
        return status, "; ".join(said[:NAMED])

    def groups(self) -> Iterator[int]:
        if self._process.poll() is None:
            yield self._process.pid

    def end(self) -> None:
        signal_group(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._tell)
        os.close(self._read)

    def _answer(self, seconds: float) -> Any:
        until = time.monotonic() + seconds
        while b"\n" not in self._unread:
            readable, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            if not readable:
                return None
            data = os.read(self._read, 65536)
            if not data:
                raise Lost(f"the harness: {_last_line(self._log)}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)


class _Gated(Scheduler):
    """A supervisor that gives the first turn, in which everything compiles, and then waits."""

    def __init__(self, data_dir: DataDir, experiment: Experiment) -> None:
        every = Place(devices=experiment.spec.devices, cpus=cpu_allowance().cpus)
        super().__init__(data_dir, experiment, WORKER_COMMAND, ExitRecords(), every)
        self.compiled = threading.Event()
        self.may_time = threading.Event()

    def _compile_effort(self, run: RunDir) -> int:
        """What compiles goes first: so what does not takes its share of the device late."""
        return -super()._compile_effort(run)

    def _pass_turn(self, process: RunProcess, turn: Turn) -> None:
        if turn.round > 0:
            self.compiled.set()
            self.may_time.wait()
        super()._pass_turn(process, turn)


class Ours:
    """An experiment of Breakeven's with its run processes."""

    def __init__(self, cell: Cell, checkout: Checkout, device: str, folder: Path) -> None:
        data_dir = DataDir(folder / "ours")
        self._checks = cell.checks
        submit(data_dir, cell.experiment(device, checkout))
        experiment = next(experiments(data_dir))
        self._runs = {"baseline": experiment.runs[0], "inductor": experiment.runs[1]}
        self._scheduler = _Gated(data_dir, experiment)
        if cell.checks:  # nothing is timed
            self._scheduler.may_time.set()
        self._thread = threading.Thread(target=self._scheduler.run, daemon=True)
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        """Whether both runs had their first turn; raises `Lost`."""
        if self._checks:
            return not self._thread.is_alive()
        self._check_alive()
        return self._scheduler.compiled.is_set()

    def time(self) -> dict[str, Times]:
        """All rounds, and steps that are waited for; by run. Raises `Lost`."""
        self._scheduler.may_time.set()
        until = time.monotonic() + MEASURING_SECONDS
        while self._thread.is_alive() and not self._has_profiles(PROFILES):
            if time.monotonic() > until:
                raise Lost(f"Breakeven timed for more than {MEASURING_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
        if not self._has_profiles(1):
            raise Lost(f"Breakeven: {self._why()}")
        times = {label: _times(run) for label, run in self._runs.items()}
        if not all(found["waited"] for found in times.values()):
            raise Lost("Breakeven: the device had no room for an uncompiled model as well")
        times["inductor"]["kernels"] = listed(_kernels(self._runs["inductor"]))
        return times

    def status(self) -> tuple[str, str]:
        """How the backend's accuracy check ended, and what was wrong; raises `Lost`."""
        events = read_events(self._runs["inductor"].events_file)[0]
        ended = [event for event in events if event["kind"] == "accuracy_status"]
        if not ended:
            raise Lost(f"Breakeven: {self._why()}")
        wrong = [
            f"{one['quantity']} {one['tensor']}: {one['rmse']:.3g}, "
            f"eager {one['baseline_rmse']:.3g}, scale {one['scale']:.3g}"
            for one in events
            if one["kind"] == "accuracy" and not one["passed"] and one["rmse"] is not None
        ]
        said = [ended[0]["message"] or "", *ended[0]["notes"], *wrong[:NAMED]]
        if "OutOfMemoryError" in "".join(said):  # of the reference too, which others left no room
            raise Lost(f"Breakeven: {said[0] or said[1]}"[:REASON_CHARACTERS])
        if len(wrong) > NAMED:
            said.append(f"{len(wrong)} tensors in all")
        return str(ended[0]["status"]), "; ".join(filter(None, said))

    def environment(self) -> dict[str, Any]:
        """Device, driver and versions, as the run recorded them."""
        events = read_events(self._runs["baseline"].events_file)[0]
        found = next((event for event in events if event["kind"] == "environment"), {})
        names = ("device_name", "driver", "cuda", "python", "versions", "cpu_model", "num_cpus")
        return {name: found[name] for name in names if name in found}

    def groups(self) -> Iterator[int]:
        for run in self._runs.values():
            with suppress(RunnerError):
                claim = run.read_claim()
                if claim is not None and not run.exit_file.exists():
                    yield claim.process.pid

    def end(self) -> None:
        for group in list(self.groups()):
            signal_group(group, signal.SIGKILL)
        self._scheduler.may_time.set()
        self._thread.join(10.0)

    def _has_profiles(self, number: int) -> bool:
        return all(len(_profiles(run)) >= number for run in self._runs.values())

    def _check_alive(self) -> None:
        if not self._thread.is_alive():
            raise Lost(f"Breakeven: {self._why()}")

    def _why(self) -> str:
        for run in self._runs.values():
            for event in read_events(run.events_file)[0]:
                if event["kind"] == "error":
                    return f"{event['error']}: {event['message']}"[:300]
        return _last_line(self._runs["inductor"].output_file)


def _profiles(run: RunDir) -> list[dict[str, Any]]:
    return [one for one in read_events(run.events_file)[0] if one["kind"] == "profile"]


def _times(run: RunDir) -> Times:
    steps = [one["seconds"] for one in read_events(run.events_file)[0]
             if one["kind"] == "step" and one["round"] > 0]  # fmt: skip
    profiles = [one for one in _profiles(run) if "failure" not in one]
    waited = [one for profile in profiles for one in profile["waited_seconds"] or ()]
    return {"steps": steps, "waited": waited, "busy": [one["busy_seconds"] for one in profiles]}


def _kernels(run: RunDir) -> list[Kernel]:
    """Of the last turn that was profiled."""
    rows = [one for one in read_events(run.events_file)[0] if one["kind"] == "profile_kernel"]
    last = max((row["round"] for row in rows), default=None)
    return [(row["name"], row["calls"], row["seconds"]) for row in rows if row["round"] == last]


def _last_line(file: Path) -> str:
    try:
        lines = file.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "it left no word"
    return (lines or ["it left no word"])[-1][:300]
