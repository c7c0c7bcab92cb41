"""How a run watches its device (CPU time, quotas, threads, strangers, NVML), and what devices of
each type answer to the worker."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest
import torch

from breakeven.runner.errors import WorkloadError
from breakeven.runner.machine import cpus as machine
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.specs.place import Parallel
from breakeven.runner.worker.device import device_kinds, nvml, other_processes
from breakeven.runner.worker.device import monitor as device_monitor
from breakeven.runner.worker.device.base import EventClock
from breakeven.runner.worker.device.nvml import NvidiaDriver, Unavailable, named_reasons
from breakeven.runner.worker.device.other_processes import ExperimentProcesses
from breakeven.runner.worker.device.rapl import PackageEnergy
from breakeven.runner.worker.event_log import EventLog
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from tests.helpers.comparisons import device_warnings_of, warnings_of
from tests.helpers.loop import NET, experiment, of_kind, run
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.usefixtures("fresh_torch")
needs_proc = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs Linux's /proc")
BUSY = "import time; end = time.monotonic() + 600\nwhile time.monotonic() < end: pass"
"""Ends by itself, should a test fail to end it."""


def test_cpu_time_is_read_of_the_cpus_that_a_run_may_use(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text(
        "cpu  9 9 9 9 9 9 9 9 9 9\n"
        "cpu0 100 20 30 5000 7 4 6 50 90 0\n"
        "cpu1 1000 0 0 5000 0 0 0 0 0 0\n"
        "cpu2 40 0 0 5000 0 0 0 0 0 0\n"
        "intr 1 2 3\n"
    )
    tick = 1 / os.sysconf("SC_CLK_TCK")
    time_of = device_monitor.machine_time({0, 2}, stat)
    assert time_of is not None
    # 100 + 20 + 30 + 4 + 6 and 40: not idle, not waiting for disks, guests are in the first.
    assert time_of.busy == pytest.approx(200 * tick)
    assert time_of.stolen == pytest.approx(50 * tick)
    assert device_monitor.machine_time({0, 7}, stat) is None
    assert device_monitor.machine_time({0}, tmp_path / "missing") is None


def zone(powercap: Path, name: str, label: str, counter: str, end: int = 999_999) -> Path:
    """A zone as Linux shows it; returns the file of the counter."""
    folder = powercap / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{label}\n")
    (folder / "max_energy_range_uj").write_text(f"{end}\n")
    (folder / "energy_uj").write_text(counter)
    return folder / "energy_uj"


def test_energy_is_that_of_all_packages_each_once_also_past_the_end_of_a_counter(
    tmp_path: Path,
) -> None:
    first = zone(tmp_path, "intel-rapl:0", "package-0", "100000\n")
    cores = zone(tmp_path, "intel-rapl:0:0", "core", "1000\n")
    second = zone(tmp_path, "intel-rapl:1", "package-1", "900000\n")
    platform = zone(tmp_path, "intel-rapl:2", "psys", "5\n")
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", "7\n")
    energy = PackageEnergy(tmp_path)
    energy.begin()
    first.write_text("350000\n")
    second.write_text("50000\n")  # past 999,999
    for counter in (cores, platform):
        counter.write_text("999\n")
    # 0.25 J, and 0.1 J to the end of the counter and 0.05 J after it.
    assert energy.joules() == pytest.approx(0.4)


def test_a_machine_without_readable_counters_of_energy_reports_none(tmp_path: Path) -> None:
    nothing = PackageEnergy(tmp_path / "missing")
    nothing.begin()
    assert nothing.joules() is None
    counter = zone(tmp_path, "intel-rapl:0", "package-0", "not a number")
    damaged = PackageEnergy(tmp_path)
    damaged.begin()
    assert damaged.joules() is None
    counter.write_text("10")
    energy = PackageEnergy(tmp_path)
    energy.begin()
    counter.unlink()  # as if the permission were taken away
    assert energy.joules() is None


class TwoJoulesARead(PackageEnergy):
    """Its counter advances by 2 J with each reading."""

    def _read(self) -> list[int]:
        self.reading = getattr(self, "reading", 0) + 2_000_000
        return [self.reading]


def test_blocks_on_the_cpu_have_the_energy_of_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", "0", end=10**12)
    monkeypatch.setattr(device_monitor, "PackageEnergy", lambda: TwoJoulesARead(tmp_path))
    events = run(experiment(**NET), tmp_path / "e.jsonl")
    samples = of_kind(events, "device")
    assert samples and all(sample["energy_joules"] == 2.0 for sample in samples)


def a_run(spec: ExperimentSpec) -> RunSpec:
    return RunSpec(experiment_id="x", experiment=spec, arm=spec.possible_arms[0])


@pytest.mark.parametrize(
    ("places", "parallel", "joules", "num_metered"),
    [
        (("cpu", "cpu"), "ddp", 5.0, 2),
        (("cpu", "cpu"), "ddp", None, None),
        (("cpu",), "ddp", 5.0, None),
    ],
)
def test_the_energy_of_a_block_is_that_of_all_devices_that_share_the_run(
    places: tuple[str, ...],
    parallel: Parallel,
    joules: float | None,
    num_metered: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared: list[Sequence[str]] = []

    class Metered(QuickDriver):
        def end(self) -> dict[str, Any]:
            return {**super().end(), "energy_joules": joules}

    def open_driver(_: Any, experiment_id: str, sharing: Sequence[str]) -> QuickDriver:
        shared.append(sharing)
        return Metered()

    monkeypatch.setattr(device_kinds.CpuDevice, "open_driver", open_driver)
    spec = a_run(experiment(devices=places, parallel=parallel))
    log = EventLog(tmp_path / "e.jsonl")
    monitor = device_monitor.DeviceMonitor(spec, device_kinds.open_device("cpu"), log)
    monitor.begin()
    monitor.end(round=0, first_step=0)
    log.close()
    *_, sample = read_events(tmp_path / "e.jsonl")[0]
    assert sample.get("energy_devices") == num_metered
    shares = len(places) > 1 and parallel == "ddp"
    assert shared == [places if shares else ()]


@needs_proc
def test_own_work_is_not_that_of_others() -> None:
    """What this process burns shows up as busy and as its own."""
    monitor = device_monitor.CpuMonitor(machine.cpu_allowance(), threads=1)
    monitor.begin()
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    fields = monitor.end()
    assert 0.3 <= fields["own_cpu_seconds"] < 0.5
    assert fields["busy_cpu_seconds"] >= 0.2  # counted in hundredths, at the system's leisure
    assert fields["busy_cpu_seconds"] <= fields["wall_seconds"] * fields["cpus"] + 0.1


def test_where_the_system_tells_nothing_the_rest_is_measured() -> None:
    """As of CPUs that no file of /proc mentions."""
    nowhere = machine.CpuAllowance(num_in_machine=2, cpus=frozenset({99_998, 99_999}), quota=None)
    fields = device_monitor.CpuMonitor(nowhere, threads=1).end()
    assert fields["wall_seconds"] > 0 and fields["cpus"] == 2
    assert not {"busy_cpu_seconds", "stolen_cpu_seconds"} & fields.keys()
    assert fields["cpu_frequency_mhz"] is None


@needs_proc
def test_a_frequency_is_plausible_where_the_system_tells_one() -> None:
    frequency = device_monitor.cpu_frequency(machine.cpu_allowance().cpus, threads=1)
    assert frequency is None or 100 < frequency < 10_000
    monitor = device_monitor.CpuMonitor(machine.cpu_allowance(), threads=1)
    assert "cpu_frequency_mhz" in monitor.end()
    assert "cpu_frequency_mhz" not in monitor.end(), "asking again within a second costs time"


def test_a_quota_is_the_strictest_of_all_groups_around_the_process(tmp_path: Path) -> None:
    membership = tmp_path / "membership"
    membership.write_text("0::/outer/inner\n")
    mount = tmp_path / "cgroup"
    inner = mount / "outer" / "inner"
    inner.mkdir(parents=True)
    for folder, limit, throttled in ((inner, "max", 3), (inner.parent, "150000", 40)):
        (folder / "cpu.max").write_text(f"{limit} 100000\n")
        (folder / "cpu.stat").write_text(f"usage_usec 5\nnr_periods 9\nnr_throttled {throttled}\n")
    groups = machine.control_groups(mount, membership)
    assert groups == (inner, inner.parent)
    assert machine.cpu_quota(groups) == 1.5
    assert machine.throttled_periods(groups) == 43
    none = machine.control_groups(tmp_path, tmp_path / "missing")
    assert (none, machine.cpu_quota(none), machine.throttled_periods(none)) == ((), None, None)


def test_the_older_version_of_control_groups_is_read_too(tmp_path: Path) -> None:
    """In a container the path is the host's, and only its own group is mounted."""
    membership = tmp_path / "membership"
    membership.write_text("9:name=systemd:/x\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/docker/abc\n")
    group = tmp_path / "cgroup" / "cpu"
    group.mkdir(parents=True)
    (group / "cpu.stat").write_text("nr_periods 2\nnr_throttled 1\nthrottled_time 7\n")
    (group / "cpu.cfs_period_us").write_text("100000\n")
    (group / "cpu.cfs_quota_us").write_text("200000\n")
    groups = machine.control_groups(tmp_path / "cgroup", membership)
    assert groups == (group,)
    assert machine.cpu_quota(groups) == 2.0
    (group / "cpu.cfs_quota_us").write_text("-1\n")
    assert machine.cpu_quota(groups) is None
    assert machine.throttled_periods(groups) == 1


@pytest.mark.parametrize(
    ("num_in_machine", "affinity", "quota", "usable", "threads"),
    [
        (64, 64, None, 64, 32),
        (64, 2, None, 2, 1),  # a container pinned to 2 of 64 CPUs
        (64, 64, 4.0, 4, 2),  # one that may use the time of 4 anywhere
        (64, 64, 0.5, 1, 1),
        (1, 1, None, 1, 1),
    ],
)
def test_a_run_gets_half_of_the_cpus_that_it_may_use(
    num_in_machine: int, affinity: int, quota: float | None, usable: int, threads: int
) -> None:
    cpus = frozenset(range(affinity))
    allowance = machine.CpuAllowance(num_in_machine=num_in_machine, cpus=cpus, quota=quota)
    assert (allowance.usable, allowance.default_threads) == (usable, threads)


def test_why_there_are_so_many_threads_is_said() -> None:
    allowance = machine.CpuAllowance(num_in_machine=64, cpus=frozenset(range(8)), quota=2.5)
    assert machine.explain_threads(None, allowance) == (
        "half of the CPUs that the run may use, at least 1: 2 "
        "(64 in the machine, 8 by affinity, a quota of 2.5)"
    )
    assert machine.explain_threads(3, allowance) == "cpu_threads = 3 in the specification"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_process_that_is_pinned_to_one_cpu_counts_one() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from breakeven.runner.machine.cpus import cpu_allowance; a = cpu_allowance(); "
        "print(a.usable, a.default_threads)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == ["1", "1"]


@needs_proc
def test_the_runs_of_an_experiment_and_their_children_are_family() -> None:
    starts_child = (
        "import subprocess, sys, time; "
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid, "
        "flush=True); time.sleep(600)"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", starts_child, "breakeven.runner.worker", "/data/runs/e-1.inductor"],
        stdout=subprocess.PIPE,
    )
    assert worker.stdout is not None
    child = int(worker.stdout.readline())
    try:
        assert ExperimentProcesses("e-1").includes(worker.pid)
        assert ExperimentProcesses("e-1").includes(child)
        assert ExperimentProcesses("e-1").includes(os.getpid())
        # That both descend from this process makes them its family; ask about the run alone.
        arguments = other_processes._arguments(worker.pid)
        assert ExperimentProcesses("e-1")._belongs_to_experiment(arguments)
        assert not ExperimentProcesses("e-2")._belongs_to_experiment(arguments)
        assert not ExperimentProcesses("e-1").includes(os.getppid())
    finally:
        os.kill(child, 9)
        worker.kill()
        worker.wait()


def test_reasons_to_throttle_are_told_from_harmless_ones() -> None:
    idle, application_clocks, power_cap, thermal = 0x1, 0x2, 0x4, 0x20
    assert named_reasons(idle | application_clocks) == []
    assert named_reasons(idle | power_cap | thermal) == ["power cap", "thermal slowdown"]


def test_a_missing_package_and_a_missing_driver_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda:0")
    if nvml.pynvml is not None and not torch.cuda.is_available():
        with pytest.raises(Unavailable, match="were not recorded: NVML answers"):
            NvidiaDriver(device, ExperimentProcesses("x"))
    monkeypatch.setattr(nvml, "pynvml", None)
    with pytest.raises(Unavailable, match="were not recorded: nvidia-ml-py is not installed"):
        NvidiaDriver(device, ExperimentProcesses("x"))


def test_every_block_has_a_sample_as_long_as_samples_are_quick_and_the_run_names_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_monitor, "FIRST_FREE", 1000)
    events = run(experiment(**NET), tmp_path / "e.jsonl")
    places = [(block["round"], block["first_step"]) for block in of_kind(events, "block")]
    samples = of_kind(events, "device")
    assert [(sample["round"], sample["first_step"]) for sample in samples] == places
    assert all(sample["wall_seconds"] > 0 for sample in samples)
    (environment,) = of_kind(events, "environment")
    assert environment["usable_cpus"] == machine.cpu_allowance().usable
    assert environment["cpu_threads_reason"].startswith("half of the CPUs")
    assert environment["interop_threads"] >= 1
    assert environment["device_type"] == "cpu"
    assert environment["device_name"] == environment["cpu_model"]
    assert not {"gpu_memory_bytes", "notes"} & environment.keys()


class Question:
    """Takes its time to answer, by a clock of its own."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def begin(self) -> None: ...

    def end(self) -> dict[str, Any]:
        self.now += self._seconds
        return {"answer": 42}


def test_a_watch_is_free_ten_times_and_then_takes_its_share_of_the_blocks_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0.5 ms of each second: a question of 1.2 ms waits until all before it are paid for."""
    question = Question(0.0012)
    monkeypatch.setattr(device_monitor, "time", question)
    watch = device_monitor.BlockWatch(question.begin, question.end)

    def is_watched(block_seconds: float) -> bool:
        watch.begin()
        return watch.end(block_seconds) == {"answer": 42}

    assert all(is_watched(0.0) for _ in range(10))
    # Allowed before each block: 0, 0.5, 1, 1.5 ms and so on; spent: 0, 1.2, 2.4, 3.6.
    watched = [is_watched(1.0) for _ in range(9)]
    assert watched == [False, True, False, True, False, True, False, False, True]


def test_blocks_that_are_over_too_soon_to_be_watched_have_no_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is watched before anybody knows what that takes."""
    monkeypatch.setattr(device_monitor, "FIRST_FREE", 1)
    monkeypatch.setattr(device_monitor, "MAX_SHARE", 0.0)
    events = run(experiment(**NET), tmp_path / "e.jsonl")
    (sample,) = of_kind(events, "device")
    first, *others = of_kind(events, "block")
    assert others and sample["first_step"] == first["first_step"]


class QuickDriver:
    """Stands for a GPU, which this machine may not have."""

    limits: ClassVar[dict[str, Any]] = {}

    def begin(self) -> None: ...

    def end(self) -> dict[str, Any]:
        return {"sm_clock_mhz": 1980}

    def other_processes(self) -> list[other_processes.OtherProcess]:
        return []


def slow_end(self: device_monitor.CpuMonitor) -> dict[str, Any]:
    time.sleep(0.2)
    return {"wall_seconds": 0.1, "cpus": 2}


def test_a_driver_is_asked_of_as_many_blocks_as_it_is_quick_however_long_the_rest_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_kinds.CpuDevice, "open_driver", lambda *_: QuickDriver())
    monkeypatch.setattr(device_monitor.CpuMonitor, "end", slow_end)
    monkeypatch.setattr(device_monitor, "FIRST_FREE", 1)
    monkeypatch.setattr(device_monitor, "MAX_SHARE", 0.01)
    events = run(experiment(), tmp_path / "e.jsonl")
    before, *samples = of_kind(events, "device")
    assert "round" not in before
    assert len(samples) == len(of_kind(events, "block")) > 3
    assert {sample["sm_clock_mhz"] for sample in samples} == {1980}
    assert all(sample["wall_seconds"] > 0 for sample in samples)
    first, second, *others = samples
    assert {"processes", "cpus"} <= first.keys() and "cpus" in second
    assert not any({"processes", "cpus"} & sample.keys() for sample in others)


def test_there_is_no_sample_of_a_device_without_its_clocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is too slow for two questions; a list of processes would be quick enough."""

    class SlowDriver(QuickDriver):
        def end(self) -> dict[str, Any]:
            time.sleep(0.2)
            return super().end()

    monkeypatch.setattr(device_kinds.CpuDevice, "open_driver", lambda *_: SlowDriver())
    monkeypatch.setattr(
        device_monitor.CpuMonitor, "end", lambda self: {"wall_seconds": 0.1, "cpus": 2}
    )
    monkeypatch.setattr(device_monitor, "FIRST_FREE", 1)
    monkeypatch.setattr(device_monitor, "MAX_SHARE", 0.01)
    events = run(experiment(), tmp_path / "e.jsonl")
    _, *samples = of_kind(events, "device")
    assert 1 <= len(samples) < len(of_kind(events, "block"))
    assert {sample["sm_clock_mhz"] for sample in samples} == {1980}


@needs_proc
def test_a_busy_process_beside_a_run_makes_the_warning_appear(tmp_path: Path) -> None:
    """As many of them as half the CPUs: they take about half of the time, far above a tenth."""
    data_dir = DataDir(tmp_path / "data")
    spec = experiment(backends=(), controls=0)
    spec = replace(spec, training=replace(spec.training, epochs=3))
    (arm,) = spec.arms
    folder = RunDir(data_dir.runs / "x.baseline")
    folder.write_spec(RunSpec(experiment_id="x", experiment=spec, arm=arm))
    usable = len(machine.cpu_allowance().cpus)
    others = [
        subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True)
        for _ in range((usable + 1) // 2)
    ]
    try:
        run(spec, folder.events_file)
    finally:
        for other in others:
            other.kill()
            other.wait()
    with Store.in_memory(data_dir) as store:
        comparison = compare(store, "x")
    said = "Other processes took CPU time while steady blocks ran: baseline "
    assert any(warning.startswith(said) for warning in warnings_of(comparison))
    (baseline,) = comparison.results
    assert any(warning.startswith("Other processes") for warning in device_warnings_of(baseline))


@needs_proc
@pytest.mark.parametrize(
    ("arguments", "is_own"),
    [
        (["/usr/bin/streamlit", "run", "dashboard.py", "--server.port", "8501"], True),
        (["-m", "breakeven", "queue", "start"], True),
        (["-m", "breakeven.storage", "compare", "x"], True),
        (["streamlit", "run", "/elsewhere/dashboard.py"], False),
        (["-m", "runners"], False),
        # Another experiment's training disturbs, even if the same user started it.
        (["-m", "breakeven.runner.worker", "/data/runs/other.baseline"], False),
    ],
)
def test_breakevens_own_processes_and_their_children_are_no_strangers(
    arguments: list[str], is_own: bool
) -> None:
    """A busy child of a busy process that is started like these, neither of them our child."""
    burn = f"import os, sys\nif os.fork(): sys.exit()\nos.setsid()\nos.fork()\n{BUSY}\n"
    # Those of the test before, just killed, may still be listed.
    mark = f"mark-{uuid4().hex}"
    command = [sys.executable, "-c", burn, *arguments, mark]
    subprocess.run(command, check=True, cwd=PROJECT_ROOT)
    wait_until(lambda: len(_all_with(mark)) == 2)
    pids = _all_with(mark)
    try:
        wait_until(lambda: all(pid in _running() for pid in pids))
        strangers = {
            process["pid"] for process in other_processes.busy_processes(ExperimentProcesses("x"))
        }
        assert strangers.isdisjoint(pids) if is_own else strangers & pids
        # Both are named alike on the command line, so both of them are found.
        pids_of_breakeven = other_processes.breakeven_processes()
        assert pids <= set(pids_of_breakeven) if is_own else pids.isdisjoint(pids_of_breakeven)
    finally:
        for pid in pids:
            os.kill(pid, 9)


@needs_proc
def test_the_time_of_breakevens_own_page_is_not_that_of_others() -> None:
    arguments = ["streamlit", "run", "dashboard.py"]
    page = subprocess.Popen([sys.executable, "-c", BUSY, *arguments], cwd=PROJECT_ROOT)
    try:
        monitor = device_monitor.CpuMonitor(machine.cpu_allowance(), 1)
        wait_until(lambda: page.pid in other_processes.breakeven_processes())
        for pids, is_own in (([], False), (other_processes.breakeven_processes(), True)):
            monitor.breakeven_pids = pids
            monitor.begin()
            before = other_processes.cpu_seconds([page.pid])[page.pid]
            wait_until(
                lambda before=before: (
                    other_processes.cpu_seconds([page.pid])[page.pid] > before + 0.3
                )
            )
            spent = other_processes.cpu_seconds([page.pid])[page.pid] - before
            sample = monitor.end()
            assert (sample["own_cpu_seconds"] > 0.9 * spent) is is_own
    finally:
        page.kill()
        page.wait()


REAPS = """
import os, time
if not (child := os.fork()):
    while time.process_time() < 0.3:
        pass
    os._exit(0)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
print("ended", flush=True)
input()
os.wait()
print("seen", flush=True)
input()
"""


@needs_proc
def test_a_run_that_ends_adds_nothing_to_the_time_of_the_supervisor_that_sees_it_end() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", REAPS], text=True, **pipes) as supervisor:  # type: ignore[call-overload]
        assert supervisor.stdout.readline() == "ended\n"
        before = other_processes.cpu_seconds([supervisor.pid])[supervisor.pid]
        supervisor.stdin.write("\n")
        supervisor.stdin.flush()
        assert supervisor.stdout.readline() == "seen\n"
        assert other_processes.cpu_seconds([supervisor.pid])[supervisor.pid] - before < 0.2
        supervisor.stdin.write("\n")


def _running() -> set[int]:
    return set(filter(other_processes._is_running, other_processes._pids()))


def _all_with(argument: str) -> set[int]:
    return {
        int(entry.name)
        for entry in Path("/proc").glob("[0-9]*")
        if argument.encode() in other_processes._arguments(int(entry.name))
    }


def test_the_kernels_own_threads_are_nobody_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lines of /proc, shortened, with the flags that Linux gave to a kworker and to `cat`."""
    monkeypatch.setattr(other_processes, "PROC", tmp_path)
    lines = {
        41: "41 (kworker/u8:1-ext4-rsv) R 2 0 0 0 -1 69238880 0 0 0 0 0 7 0 0 20 0 1 0 25 0 0",
        42: "42 (cat) R 40 40 38 0 -1 4194304 127 0 0 0 0 0 0 0 20 0 1 0 25 0 0",
    }
    for pid, line in lines.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(line)
        (tmp_path / str(pid) / "comm").write_text(line.split()[1][1:-1])
    assert [
        stranger["name"] for stranger in other_processes.busy_processes(ExperimentProcesses("x"))
    ] == ["cat"]


def test_a_device_that_is_not_there_is_refused_with_those_that_are() -> None:
    assert next(iter(device_kinds.devices())) == "cpu"
    with pytest.raises(WorkloadError, match=r"devices = 'cuda:99': torch .* sees cpu.*; choose"):
        device_kinds.open_device("cuda:99")


def test_only_devices_with_graphs_keep_optimizers_step_counts_on_the_device() -> None:
    captures = {
        name: device_kinds.device_class(name).captures_graphs for name in ("cpu", "cuda:0", "mps")
    }
    assert captures == {"cpu": False, "cuda:0": True, "mps": False}


@pytest.mark.parametrize(
    ("kind", "name", "why"),
    [
        (device_kinds.RocmDevice, "cuda:0", "knows NVIDIA's devices alone"),
        (device_kinds.MpsDevice, "mps", "Metal does not"),
    ],
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


class Unasked(device_kinds.CpuDevice):
    """Stands for a device whose driver tells nothing, which this machine may not have."""

    type = "mps"

    def open_driver(self, experiment_id: str, sharing: Sequence[str] = ()) -> None:
        raise Unavailable("no driver")


@pytest.mark.parametrize(
    ("kind", "names_processes"), [(device_kinds.CpuDevice, True), (Unasked, False)]
)
def test_busy_processes_are_on_the_device_only_where_the_cpus_are_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, names_processes: bool
) -> None:
    monkeypatch.setattr(device_monitor, "WORTH_NAMES", -1.0)
    log = EventLog(tmp_path / "e.jsonl")
    monitor = device_monitor.DeviceMonitor(a_run(experiment()), kind(torch.device("cpu")), log)
    monitor.begin()
    monitor.end(round=0, first_step=0)
    log.close()
    (sample,) = of_kind(read_events(tmp_path / "e.jsonl")[0], "device")
    assert sample["cpus"] >= 1 and ("processes" in sample) is names_processes
