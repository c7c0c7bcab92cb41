"""A real Ray cluster of three nodes on this machine, one of them killed in the middle of a suite.

Run by `make test-slow MARK=cluster`; docs/devices.md describes clusters.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.experiments.queue import cancel, experiments, find_experiment, submit
from breakeven.runner.machine.placement import Place
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ModelSpec
from tests.helpers.waiting import wait_until
from tests.runner.cluster.either_worker import REAL
from tests.runner.supervision.test_supervisor import events, experiment, run_dirs, states
from tests.runner.supervision.witness import Witness

pytestmark = [pytest.mark.cluster, pytest.mark.heavy]
STEPS = 100
REAL_STEPS = 20
TINY = ModelSpec(source="builtin:bert-tiny")
MOST_SECONDS_TOLD_ALIVE = 20.0
"""After a machine is lost: Ray notices after two, and the driver asks every other second or so."""
DRIVE = """
import sys
from breakeven.runner.cluster.driver import drive
from breakeven.runner.cluster.ray_engine import PACKAGES, RayEngine
from breakeven.runner.protocol.data_dir import DataDir
folder, address, patience = sys.argv[1:]
engine = RayEngine(address, namespace=folder, packages=(*PACKAGES, "tests"),
                   worker=("-m", "tests.runner.cluster.either_worker"),
                   patience_seconds=float(patience))
drive(DataDir(folder), engine, linger=3.0)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and two further nodes, each a raylet of its own with a CPU."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    soon = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": soon})
    yield started
    started.shutdown()


class Drivers:
    """Drivers as processes of their own."""

    def __init__(self, data_dir: DataDir, address: str) -> None:
        self._data_dir, self._address = data_dir, address
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, patience: float = 600.0) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-c",
            DRIVE,
            str(self._data_dir.path),
            self._address,
            str(patience),
        ]
        self._data_dir.path.mkdir(exist_ok=True)
        with self._data_dir.supervisor_log.open("ab") as log:
            self.started.append(subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=log, stderr=log))
        return self.started[-1]


@pytest.fixture
def drivers(data_dir: DataDir, cluster: Any) -> Iterator[Drivers]:
    drivers = Drivers(data_dir, cluster.address)
    yield drivers
    for process in drivers.started:
        process.kill()
        process.wait()


def actors() -> list[int]:
    """Processes of Ray that hold an experiment."""
    pids = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"ray::Host" in file.read_bytes():
                pids.append(int(file.parent.name))
    return pids


def check_whole(data_dir: DataDir, experiment_id: str, steps: int) -> None:
    """Nothing lost, nothing doubled: every step once in each journal, and the numbering of lines
    without a gap."""
    for label, run in run_dirs(data_dir, experiment_id).items():
        assert run.state is RunState.FINISHED, f"{label}: {run.status}"
        events, _ = read_events(run.events_file)
        assert [event["step"] for event in events if event["kind"] == "step"] == list(range(steps))
        numbers = Counter(json.loads(line)["seq"] for line in run.events_file.open())
        assert set(numbers.values()) == {1} and sorted(numbers) == list(range(len(numbers)))


def test_a_node_that_dies_between_listing_and_starting_has_left_the_cluster(
    cluster: Any, data_dir: DataDir
) -> None:
    import ray

    from breakeven.runner.cluster.driver import JobLost
    from breakeven.runner.cluster.ray_engine import RayEngine

    engine = RayEngine(cluster.address, namespace=str(data_dir.path))
    try:
        node = cluster.add_node(num_cpus=1)
        alive = {node.node_id: True}
        wait_until(
            lambda: (
                alive.items()
                <= {listed["NodeID"]: listed["Alive"] for listed in ray.nodes()}.items()
            )
        )
        cluster.remove_node(node)
        wait_until(
            lambda: (
                not any(
                    listed["Alive"] for listed in ray.nodes() if listed["NodeID"] == node.node_id
                )
            )
        )
        place = Place(devices=("cpu",), cpus=frozenset({0}))
        with pytest.raises(JobLost, match="has left the cluster"):
            engine.start("key.1", node.node_id, place, {})
    finally:
        ray.shutdown()


def test_a_suite_goes_through_three_nodes_although_one_is_killed(
    data_dir: DataDir, cluster: Any, drivers: Drivers
) -> None:
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    cluster.wait_for_nodes()
    # Steps of a tenth of a second: 15 s for each experiment, which needs a whole node.
    real = submit(data_dir, experiment("eager", steps=REAL_STEPS, name=REAL, model=TINY))
    keys = [submit(data_dir, experiment("slow", steps=STEPS, name=f"cell {n}")) for n in range(5)]
    steps = dict.fromkeys(keys, STEPS) | {real: REAL_STEPS}
    keys = list(steps)
    witness = Witness(data_dir, steps)
    drivers.start()
    witness.start()

    def at_work() -> list[str]:
        return [key for key in keys if RunState.RUNNING in states(data_dir, key).values()]

    wait_until(lambda: len(at_work()) == 3)
    wait_until(
        lambda: any(
            events(run, "block") for key in at_work() for run in run_dirs(data_dir, key).values()
        )
    )
    time.sleep(2)
    kill_machine(nodes[1])
    began = time.monotonic()
    drivers.started[0].wait(timeout=400)
    seconds = time.monotonic() - began
    witness.stop()
    for key in keys:
        check_whole(data_dir, key, steps[key])
    assert witness.wrong == [] and witness.num_looks > 20
    again = [
        key for key in keys if any(run.attempt > 1 for run in run_dirs(data_dir, key).values())
    ]
    assert len(again) == 1, "that of the lost node"
    lost = [
        run.attempts / "1" / "exit.json"
        for run in run_dirs(data_dir, again[0]).values()
        if (run.attempts / "1" / "exit.json").exists()
    ]
    assert lost and all("was lost; it begins anew elsewhere" in file.read_text() for file in lost)
    shown_alive = witness.seconds_shown_alive(again[0], began)
    assert shown_alive < MOST_SECONDS_TOLD_ALIVE
    assert len(list(experiments(data_dir))) == 6
    wait_until(lambda: not actors())
    sys.stdout.write(
        f"one node of three killed: all six whole {seconds:.0f} s later; "
        f"{witness.num_looks} looks at what pages show saw nothing wrong, "
        f"and of the lost node for {shown_alive:.1f} s that it worked\n"
    )
    cluster.remove_node(nodes[0])


def kill_machine(node: Any) -> None:
    """As if the power went: the raylet and all that it started, at once and without a word."""
    (raylet,) = (info.process.pid for info in node.all_processes["raylet"])
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    doomed = [raylet]
    for pid in doomed:
        doomed += [child for child, parent in parents.items() if parent == pid]
    for pid in doomed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_new_driver_continues_jobs_of_a_killed_one_and_stops_runs_on_request(
    data_dir: DataDir, cluster: Any, drivers: Drivers
) -> None:
    key = submit(data_dir, experiment("slow", steps=60))
    first = drivers.start()
    runs = run_dirs(data_dir, key)
    wait_until(lambda: len(events(runs["slow"], "block")) >= 1)
    first.kill()
    first.wait()
    assert runs["slow"].state is RunState.LOST, "until a supervisor resumes it"
    before = runs["slow"].events_file.read_bytes()
    time.sleep(3)
    second = drivers.start()
    wait_until(lambda: runs["slow"].state is RunState.RUNNING)
    second.wait(timeout=200)
    assert runs["slow"].events_file.read_bytes().startswith(before)
    check_whole(data_dir, key, 60)
    assert all(run.attempt == 1 for run in runs.values())
    long = submit(data_dir, experiment("hang"))
    third = drivers.start()
    wait_until(lambda: states(data_dir, long)["hang"] is RunState.RUNNING)
    cancel(find_experiment(data_dir, long))
    wait_until(lambda: states(data_dir, long)["hang"] is RunState.CANCELLED)
    third.wait(timeout=60)
    wait_until(lambda: not actors())


def test_work_that_no_driver_asks_for_ends(
    data_dir: DataDir, cluster: Any, drivers: Drivers
) -> None:
    key = submit(data_dir, experiment("hang"))
    driver = drivers.start(patience=4.0)
    wait_until(lambda: states(data_dir, key)["hang"] is RunState.RUNNING)
    assert actors()
    driver.kill()
    driver.wait()
    wait_until(lambda: not actors())
