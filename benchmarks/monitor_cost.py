"""What watching the device costs per block; none of it is part of a step.

Run from the project's root: `.venv/bin/python -m benchmarks.monitor_cost [device]`

Blocks of 0.1 s, shorter than most. Prints what a look around takes (the blocks in which there was
time for one), what the other blocks take, and the share of the blocks' time that it is in all.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from runner.folders.events import read_events
from runner.worker.device.finding import open_device
from runner.worker.device.monitor import DeviceMonitor
from runner.worker.event_log import EventLog

BLOCKS = 200
BLOCK_SECONDS = 0.1


def main() -> None:
    device = open_device(sys.argv[1] if len(sys.argv) > 1 else "cpu")
    torch.ones(1, device=device.torch_device)
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "cost.jsonl"
        log = EventLog(journal)
        monitor = DeviceMonitor("cost", device, log)
        for block in range(BLOCKS):
            began = time.perf_counter()
            monitor.begin()
            before = time.perf_counter() - began
            time.sleep(BLOCK_SECONDS)
            ended = time.perf_counter()
            monitor.end(round=block, first_step=block)
            spent.append(before + time.perf_counter() - ended)
        log.close()
        events = [event for event in read_events(journal)[0] if "round" in event]
    looked = {event["round"] for event in events if "cpus" in event}
    print(f"{device.name}: {described([spent[block] for block in looked])} with a look around, "  # noqa: T201
          f"{described([spent[block] for block in range(BLOCKS) if block not in looked])} without; "
          f"{sum(spent) / (BLOCKS * BLOCK_SECONDS) * 100:.3f} % of the time of blocks of "
          f"{BLOCK_SECONDS:g} s")  # fmt: skip


def described(seconds: list[float]) -> str:
    median = statistics.median(seconds) if seconds else 0.0
    return f"{len(seconds)} blocks of {median * 1e6:.0f} us"


if __name__ == "__main__":
    main()
