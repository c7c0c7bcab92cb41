"""Devices of each type: what they answer to the worker, where that can be asked here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from breakeven.runner.errors import WorkloadError
from breakeven.runner.folders.events import read_events
from breakeven.runner.worker.device import monitor as device_monitor
from breakeven.runner.worker.device.base import EventClock
from breakeven.runner.worker.device.devices import (
    CpuDevice,
    MpsDevice,
    RocmDevice,
    device_class,
    devices,
    open_device,
)
from breakeven.runner.worker.device.monitor import DeviceMonitor
from breakeven.runner.worker.device.nvml import Unavailable
from breakeven.runner.worker.event_log import EventLog
from tests.helpers.loop import experiment, of_kind, run


@pytest.mark.usefixtures("fresh_torch")
def test_a_run_says_on_which_type_of_device_it_ran(tmp_path: Path) -> None:
    (environment,) = of_kind(run(experiment(), tmp_path / "e.jsonl"), "environment")
    assert environment["device_type"] == "cpu"
    assert environment["device_name"] == environment["cpu_model"]
    assert not {"gpu_memory_bytes", "notes"} & environment.keys()


def test_a_device_that_is_not_there_is_refused_with_those_that_are() -> None:
    assert next(iter(devices())) == "cpu"
    with pytest.raises(WorkloadError, match=r"devices = 'cuda:99': torch .* sees cpu.*; choose"):
        open_device("cuda:99")


def test_only_devices_with_graphs_keep_optimizers_step_counts_on_the_device() -> None:
    captures = {name: device_class(name).captures_graphs for name in ("cpu", "cuda:0", "mps")}
    assert captures == {"cpu": False, "cuda:0": True, "mps": False}


@pytest.mark.parametrize(
    ("kind", "name", "why"),
    [(RocmDevice, "cuda:0", "knows NVIDIA's devices alone"), (MpsDevice, "mps", "Metal does not")],
)
def test_what_cannot_be_measured_is_said(kind: Any, name: str, why: str) -> None:
    device = kind(torch.device(name))
    with pytest.raises(Unavailable, match=f"Clocks, .* were not recorded: .*{why}"):
        device.open_driver("x")
    assert device.notes[0].startswith("Breakeven was never tried on a device of this type")


@dataclass
class PaperEvent:
    """Is recorded when its clock says so."""

    recorded_ms: float = 0.0

    def synchronize(self) -> None: ...

    def elapsed_time(self, end: "PaperEvent") -> float:
        return end.recorded_ms - self.recorded_ms


class PaperClock(EventClock):
    def __init__(self, times_ms: list[float]) -> None:
        super().__init__()
        self._times = iter(times_ms)
        self.made = 0

    def _synchronize(self) -> None: ...

    def _new_event(self) -> PaperEvent:
        self.made += 1
        return PaperEvent()

    def _record(self, event: PaperEvent) -> None:
        event.recorded_ms = next(self._times)


def test_events_at_step_ends_give_each_step_its_own_time_and_serve_every_block() -> None:
    clock = PaperClock([100.0, 150.0, 200.0, 450.0, 1000.0, 1025.0])
    clock.start()
    clock.mark()
    clock.skip()
    clock.mark()
    assert clock.read() == [0.05, 0.25]
    clock.start()
    clock.mark()
    assert clock.read() == [0.025]
    assert clock.made == 4


def test_what_interrupts_a_step_is_no_part_of_it() -> None:
    # From 100 to 200 with 30 between; from 200 to 300; then what is left out as a whole, pause and
    # all, and a step from 400 to 450; a pause behind the last step belongs to none.
    clock = PaperClock([100, 110, 140, 200, 300, 310, 390, 400, 450, 460, 480])
    clock.start()
    for interrupted in (True, False):
        if interrupted:
            clock.pause()
            clock.resume()
        clock.mark()
    clock.pause()
    clock.resume()
    clock.skip()
    clock.mark()
    clock.pause()
    clock.resume()
    assert clock.read() == [0.07, 0.1, 0.05]


class Unasked(CpuDevice):
    """Stands for a device whose driver tells nothing, which this machine may not have."""

    type = "mps"

    def open_driver(self, experiment_id: str) -> None:
        raise Unavailable("no driver")


@pytest.mark.parametrize(("kind", "told"), [(CpuDevice, True), (Unasked, False)])
def test_busy_processes_are_on_the_device_only_where_the_cpus_are_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, told: bool
) -> None:
    monkeypatch.setattr(device_monitor, "WORTH_NAMES", -1.0)
    log = EventLog(tmp_path / "e.jsonl")
    monitor = DeviceMonitor("x", kind(torch.device("cpu")), log)
    monitor.begin()
    monitor.end(round=0, first_step=0)
    log.close()
    (sample,) = of_kind(read_events(tmp_path / "e.jsonl")[0], "device")
    assert sample["cpus"] >= 1 and ("processes" in sample) is told
