"""What the page Live costs the machine that is being timed, and how old what it shows is.

    python -m benchmarks.at_size.live [--seconds 60] [--readers 1] [--rate 100]

Six runs write their journals at so many steps a second each, as workers do; a dashboard of its own
serves Live to readers in Chromium. Prints the server's CPU time over the wall time, and the age of
the newest step that the first reader sees, each run at every twentieth of a second.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runner.folders.data_dir import DataDir
from runner.folders.process import ProcessIdentity
from runner.folders.run_dir import RunDir
from runner.locks import FileLock
from tests.helpers.journals import Recording, experiment_spec
from tests.helpers.serving import ROOT, served

BACKENDS = ("inductor", "aot_eager", "eager", "cudagraphs")
EXPERIMENT_ID = "20260401-080000-000000-11fe"
NUM_STEPS = 1_000_000
"""More than are done meanwhile."""
BLOCK_SECONDS = 0.1
SETTLING_SECONDS = 10.0
"""Until what is loaded once is loaded."""
WATCH = """() => {
  window.seen = [];
  setInterval(() => {
    const rows = [...document.querySelectorAll(".run-row")];
    const steps = rows.map((row) => parseInt(
      (/([\\d,]+) \\/ /.exec(row.textContent) ?? ["", "-1"])[1].replaceAll(",", "")));
    window.seen.push([Date.now() / 1000, steps]);
  }, 50);
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--readers", type=int, default=1)
    parser.add_argument("--rate", type=int, default=100, help="steps a second of each run")
    parser.add_argument("--before", type=int, default=0, help="steps that each has done already")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write(DataDir(arguments.write), arguments.rate, arguments.before)
        return
    print(json.dumps(live(arguments.seconds, arguments.readers, arguments.rate, arguments.before)))  # noqa: T201


def write(data_dir: DataDir, rate: int, before: int) -> None:
    """Writes journals until it is ended, in the place of a supervisor, which would take these runs
    for its own."""
    data_dir.path.mkdir(parents=True, exist_ok=True)
    lock = FileLock(data_dir.supervisor_lock)
    assert lock.try_acquire()
    size = round(rate * BLOCK_SECONDS)
    spec = experiment_spec(NUM_STEPS, size, backends=BACKENDS)
    recordings = []
    for variant in spec.variants:
        recording = Recording(data_dir.runs, variant.label, spec, EXPERIMENT_ID)
        recordings.append(recording.claim(ProcessIdentity.of(os.getpid())).start())
    for _ in range(before // size):
        for recording in recordings:
            one_block(recording, size)
    begun, done = time.monotonic(), 0
    while True:
        for recording in recordings:
            one_block(recording, size)
        done += 1
        time.sleep(max(0.0, begun + done * BLOCK_SECONDS - time.monotonic()))


def one_block(recording: Recording, size: int) -> None:
    first = recording.num_steps
    losses = [1 + 1 / (1 + 0.01 * (first + step)) for step in range(size)]
    recording.block([0.001] * size, losses)
    recording.device(wall_seconds=0.001 * size, cpus=2, own_cpu_seconds=0.001 * size,
                     busy_cpu_seconds=0.001 * size, stolen_cpu_seconds=0.0,
                     load_average=1.0, processes=[])  # fmt: skip


@contextmanager
def written(data_dir: DataDir, rate: int, before: int) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.at_size.live", "--write", str(data_dir.path),
               "--rate", str(rate), "--before", str(before)]  # fmt: skip
    writer = subprocess.Popen(command, cwd=ROOT)
    try:
        while len(list(data_dir.run_dirs())) < 2 + len(BACKENDS):
            time.sleep(0.1)
        time.sleep(1 + before / 5000)
        yield
    finally:
        writer.kill()
        writer.wait()


def live(seconds: float, readers: int = 1, rate: int = 100, before: int = 0) -> dict[str, float]:
    """`share`: of a core, by the server alone; `median`, `p95`: age in seconds; `memory`: MB."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(prefix="breakeven-live-") as folder:
        data_dir = DataDir(Path(folder))
        with (
            written(data_dir, rate, before),
            served(data_dir, supervised=False) as (address, server),
            sync_playwright() as playwright,
        ):
            chromium = playwright.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox"]
            )
            tabs = [chromium.new_page(viewport={"width": 1440, "height": 900})
                    for _ in range(readers)]  # fmt: skip
            for tab in tabs:
                tab.goto(f"{address}/live")
                tab.wait_for_selector(".run-row")
            tabs[0].wait_for_timeout(1e3 * SETTLING_SECONDS)
            tabs[0].evaluate(WATCH)
            before_cpu, begun = cpu_seconds(server.pid), time.perf_counter()
            tabs[0].wait_for_timeout(1e3 * seconds)
            share = (cpu_seconds(server.pid) - before_cpu) / (time.perf_counter() - begun)
            seen = tabs[0].evaluate("window.seen")
            memory = resident(server.pid)
            chromium.close()
        return {"share": share, "memory": memory, **ages(data_dir, seen)}


def ages(data_dir: DataDir, seen: list[tuple[float, list[int]]]) -> dict[str, float]:
    """Of the newest step that was shown, over all runs and moments."""
    found = []
    spec = experiment_spec(NUM_STEPS, 10, backends=BACKENDS)
    times = [finished(data_dir, variant.label) for variant in spec.variants]
    for moment, steps in seen:
        found += [moment - of_run[count] for of_run, count in zip(times, steps, strict=False)
                  if count in of_run]  # fmt: skip
    if not found:
        return {"median": float("nan"), "p95": float("nan"), "looks": 0}
    p95 = sorted(found)[int(0.95 * len(found))]
    return {"median": statistics.median(found), "p95": p95, "looks": len(found)}


def finished(data_dir: DataDir, label: str) -> Mapping[int, float]:
    """When the journal had so many steps."""
    journal = RunDir(data_dir.runs / f"{EXPERIMENT_ID}.{label}").events_file.read_bytes()
    lines = [line for line in journal.splitlines() if b'"kind":"step"' in line]
    events: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith(b"}")]
    return {event["step"] + 1: event["time"] for event in events}


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1e3 for line in status.splitlines() if "VmRSS" in line)


if __name__ == "__main__":
    main()
