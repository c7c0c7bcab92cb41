"""Runs that write their journals as workers do, so many events a second in all.

    python -m benchmarks.load.writing FOLDER --first N --runs N --rate N --seconds N

A process of its own for some of the runs of a load; says at the end how many steps each wrote.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.folders.data_dir import DataDir
from runner.folders.process import ProcessIdentity
from runner.project import PROJECT_ROOT
from tests.helpers.journals import Recording, experiment_spec

ROUND_SECONDS = 0.1
MOST_STEPS = 10_000_000
"""More than are done meanwhile."""
BLOCK_STEPS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="events a second of all of them")
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    runs = [_begun(DataDir(options.folder), options.first + number)
            for number in range(options.runs)]  # fmt: skip
    begun, written = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < options.seconds:
        # What could not be written in time is made up for: so many a second, or as many as it can.
        missing = int(options.rate * min(passed + ROUND_SECONDS, options.seconds)) - written
        each = missing // len(runs)
        for run in runs:
            _steps(run, each)
        written += each * len(runs)
        time.sleep(max(0.0, ROUND_SECONDS - (time.monotonic() - begun - passed)))
    for run in runs:
        run.log.flush()
    took = time.monotonic() - begun
    print(written, took, max(run.num_steps for run in runs))  # noqa: T201


def _begun(data_dir: DataDir, number: int) -> Recording:
    """One run of an experiment of its own, which this process has claimed."""
    spec = experiment_spec(MOST_STEPS, BLOCK_STEPS, backends=())
    experiment_id = f"20260402-080000-000000-{number:04x}"
    for label in ("control", "baseline"):
        run = Recording(data_dir.runs, label, spec, experiment_id)
        run.claim(ProcessIdentity.of(os.getpid())).start()
        run.log.flush()
    return run


def _steps(run: Recording, count: int) -> None:
    first = run.num_steps
    rows = [{"step": step, "loss": 1 + 1 / (1 + 0.01 * step), "seconds": 0.001}
            for step in range(first, first + count)]  # fmt: skip
    run.log.extend("step", rows, epoch=0, round=first // BLOCK_STEPS, compiled=False)
    run.num_steps += count


@contextmanager
def writing(
    data_dir: DataDir, rate: float, seconds: float, processes: int, runs_each: int
) -> "Iterator[list[subprocess.Popen[str]]]":
    """All writers of a load."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.load.writing", str(data_dir.path),
             "--first", str(number * runs_each), "--runs", str(runs_each),
             "--rate", str(rate / processes), "--seconds", str(seconds)],
            cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True,
        )
        for number in range(processes)
    ]  # fmt: skip
    try:
        yield writers
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()


if __name__ == "__main__":
    main()
