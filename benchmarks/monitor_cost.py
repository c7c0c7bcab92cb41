"""What watching the device costs per block; none of it is part of a step.

Run from the project's root: `.venv/bin/python -m benchmarks.monitor_cost [device]`

Prints the median time of the two looks at the device, before and after a block, and what that is of
a block of 10 steps of 10 ms, shorter than most.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from runner.events import EventLog
from runner.worker.device_monitor import DeviceMonitor

REPEATS = 300
BLOCK_SECONDS = 0.1


def main() -> None:
    device = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cpu")
    work = torch.randn(512, 512, device=device)
    before, after = [], []
    with tempfile.TemporaryDirectory() as folder:
        log = EventLog(Path(folder) / "cost.jsonl")
        monitor = DeviceMonitor("cost", device, log)
        for repeat in range(REPEATS):
            times = [time.perf_counter()]
            monitor.begin()
            times.append(time.perf_counter())
            work = torch.tanh(work @ work)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times.append(time.perf_counter())
            monitor.end(round=repeat, first_step=repeat)
            times.append(time.perf_counter())
            before.append(times[1] - times[0])
            after.append(times[3] - times[2])
        log.close()
    looks = [statistics.median(seconds) for seconds in (before, after)]
    share = sum(looks) / BLOCK_SECONDS
    print(f"{device}: {looks[0] * 1e6:.0f} µs before a block, {looks[1] * 1e6:.0f} µs after it; "  # noqa: T201
          f"{share * 100:.2f} % of a block of {BLOCK_SECONDS:g} s")  # fmt: skip


if __name__ == "__main__":
    main()
