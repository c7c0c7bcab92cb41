"""The driver of a cluster, with machines that are threads of this process and processes without
torch: what it makes of a lost machine, of an earlier driver, of what is to be stopped."""

import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner import notifications
from breakeven.runner.cluster import driver
from breakeven.runner.cluster.driver import JobLost, drive
from breakeven.runner.cluster.host import Delivery, HomeFile, Host, NodeFacts, Part, node_facts
from breakeven.runner.experiments import queue_order
from breakeven.runner.experiments.queue import cancel, experiments, find_experiment, submit
from breakeven.runner.machine.placement import Place
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.heartbeat import read_heartbeat
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import CheckpointSpec, TrainingSpec
from breakeven.runner.supervision import run_process
from tests.helpers.serving import Receiver
from tests.helpers.waiting import wait_until
from tests.runner.supervision.test_supervisor import events, experiment, run_dirs, states

pytestmark = pytest.mark.heavy
WORKER = ("-m", "tests.helpers.fake_worker")


@dataclass
class LocalJob:
    """A host in this process; it can be cut off as if its machine were gone."""

    host: Host
    node: str | None
    is_cut: bool = False
    is_ended: bool = False

    def delivery(self, known: Mapping[str, Mapping[str, HomeFile]]) -> Delivery | None:
        if self.is_cut:
            raise JobLost("the machine is gone")
        return self.host.deliver(known)

    def cancel(self, run_ids: list[str]) -> None:
        self.host.cancel(run_ids)

    def end(self) -> None:
        self.is_ended = True
        if not self.is_cut:
            return
        for run in self.host._data_dir.run_dirs():  # as they end when their pipes close
            run.request_cancel()


class LocalEngine:
    """Machines that are all this one."""

    def __init__(self, *names: str, versions: Mapping[str, str] | None = None) -> None:
        self.names = list(names)
        self.jobs: dict[str, LocalJob] = {}
        self.versions = versions
        self.num_looks = 0
        self.leaving: set[str] = set()
        """Machines that are gone when something is started there."""

    def nodes(self) -> dict[str, NodeFacts]:
        self.num_looks += 1
        own = node_facts()
        other = replace(own, versions=self.versions) if self.versions else own
        return dict.fromkeys(self.names, other)

    def start(
        self, key: str, node: str, place: Place, files: dict[str, dict[str, bytes]]
    ) -> LocalJob:
        if node in self.leaving:
            self.names.remove(node)
            raise JobLost("its machine has left the cluster")
        host = Host(key.rpartition(".")[0], files, place, WORKER, give_up=lambda: None)
        self.jobs[key] = LocalJob(host, node)
        return self.jobs[key]

    def left_behind(self) -> dict[str, LocalJob]:
        return {key: job for key, job in self.jobs.items() if not job.is_ended}


@pytest.fixture(autouse=True)
def impatience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines that are lost leave their folders behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(driver, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(driver, "QUEUE_SECONDS", 0.1)
    monkeypatch.setattr(run_process, "GRACE_SECONDS", 1.0)


def driving(data_dir: DataDir, engine: LocalEngine, **how: Any) -> Callable[[], None]:
    """Starts a driver; what is given back waits for its end."""
    thread = threading.Thread(target=drive, args=(data_dir, engine), kwargs={"linger": 0.0, **how})
    thread.start()
    return thread.join


def steps_of(data_dir: DataDir, key: str) -> dict[str, list[int]]:
    return {
        label: [event["step"] for event in events(run, "step")]
        for label, run in run_dirs(data_dir, key).items()
    }


def test_experiments_go_to_machines_and_come_home_complete_while_the_driver_shows_as_working(
    data_dir: DataDir,
) -> None:
    data_dir.path.mkdir(parents=True, exist_ok=True)
    data_dir.supervisor_lock.touch()
    os.utime(data_dir.supervisor_lock, (0, 0))
    engine = LocalEngine("one", "two")
    keys = [submit(data_dir, experiment("slow", steps=6, block_steps=2)) for _ in range(3)]
    wait = driving(data_dir, engine)
    wait_until(lambda: len(engine.jobs) == 2)
    live = run_dirs(data_dir, keys[0])
    wait_until(lambda: bool(events(live["slow"], "block")))
    assert live["slow"].state is RunState.RUNNING, "as it is where it runs"
    wait_until(lambda: read_heartbeat(data_dir).is_alive and not read_heartbeat(data_dir).is_hung)
    wait()
    assert {job.node for job in list(engine.jobs.values())[:2]} == {"one", "two"}
    for key in keys:
        assert set(states(data_dir, key).values()) == {RunState.FINISHED}
        assert set(map(tuple, steps_of(data_dir, key).values())) == {tuple(range(6))}
        claims = [run.read_claim() for run in run_dirs(data_dir, key).values()]
        assert all(claim is not None and claim.node and claim.is_from_this_host for claim in claims)
    assert all(job.is_ended for job in engine.jobs.values())


@pytest.mark.slow
def test_a_driver_tells_of_runs_that_failed_and_of_experiments_that_ended(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver()
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    monkeypatch.setenv("BREAKEVEN_NOTIFY", receiver.address)
    monkeypatch.setattr(notifications, "TREND_COMMAND", ("/bin/echo", "[]"))
    key = submit(data_dir, experiment("crash", steps=20))
    driving(data_dir, LocalEngine("one"))()
    receiver.shutdown()
    titles = [notification["title"].partition(": ")[2] for notification in receiver.received]
    assert titles == [f"{key}.crash: failed", f"experiment {key} ended: partly failed"]


def test_what_was_on_a_lost_machine_begins_anew_as_a_whole_and_says_so(data_dir: DataDir) -> None:
    engine = LocalEngine("one", "two")
    key = submit(data_dir, experiment("slow", steps=20, block_steps=2))
    wait = driving(data_dir, engine)
    wait_until(lambda: bool(events(run_dirs(data_dir, key)["slow"], "block")))
    engine.jobs[f"{key}.1"].is_cut = True
    wait()
    assert set(states(data_dir, key).values()) == {RunState.FINISHED}
    assert set(map(tuple, steps_of(data_dir, key).values())) == {tuple(range(20))}
    for run in run_dirs(data_dir, key).values():
        assert run.attempt == 2
        kept = run.attempts / "1"
        assert "was lost; it starts again elsewhere" in (kept / "exit.json").read_text()
        assert (kept / "events.jsonl").exists()


def test_a_machine_that_leaves_before_something_begins_there_is_as_one_that_went_away(
    data_dir: DataDir,
) -> None:
    engine = LocalEngine("one", "two")
    engine.leaving = {"one"}
    key = submit(data_dir, experiment(steps=10))
    driving(data_dir, engine)()
    assert {job.node for job in engine.jobs.values()} == {"two"}
    assert set(states(data_dir, key).values()) == {RunState.FINISHED}
    assert {run.attempt for run in run_dirs(data_dir, key).values()} == {1}


@pytest.mark.slow
def test_with_checkpoints_of_all_runs_it_goes_on_from_them(data_dir: DataDir) -> None:
    engine = LocalEngine("one")
    every = CheckpointSpec(every=10, unit="steps")
    spec = experiment("slow", steps=20, block_steps=2, checkpoints=every)
    key = submit(data_dir, spec)
    wait = driving(data_dir, engine)
    wait_until(lambda: bool(events(run_dirs(data_dir, key)["slow"], "block")))
    there = engine.jobs[f"{key}.1"].host._data_dir
    for run in there.run_dirs():
        run.checkpoints.mkdir(parents=True)
        (run.checkpoints / "step-10.pt").write_bytes(b"weights")
    wait_until(lambda: all(run.has_checkpoint for run in run_dirs(data_dir, key).values()))
    before = {label: run.events_file.read_bytes() for label, run in run_dirs(data_dir, key).items()}
    engine.jobs[f"{key}.1"].is_cut = True
    wait_until(lambda: f"{key}.2" in engine.jobs)
    second = engine.jobs[f"{key}.2"].host._data_dir
    for label, run in ((run.run_id.partition(".")[2], run) for run in second.run_dirs()):
        assert (run.checkpoints / "step-10.pt").read_bytes() == b"weights"
        assert run.events_file.read_bytes().startswith(before[label])
    wait()
    for label, run in run_dirs(data_dir, key).items():
        assert run.state is RunState.FINISHED
        assert run.events_file.read_bytes().startswith(before[label]), "a prefix, still"


def test_a_run_is_stopped_where_it_is_and_no_lost_machine_has_it_begin_again(
    data_dir: DataDir,
) -> None:
    engine = LocalEngine("one")
    for is_lost in (True, False):
        key = submit(data_dir, experiment("hang"))
        wait = driving(data_dir, engine)
        wait_until(lambda key=key: states(data_dir, key)["hang"] is RunState.RUNNING)
        engine.jobs[f"{key}.1"].is_cut = is_lost
        cancel(find_experiment(data_dir, key))
        wait()
        assert states(data_dir, key)["hang"] is RunState.CANCELLED
        assert len(engine.jobs) == (1 if is_lost else 2)
    assert (run_dirs(data_dir, key)["hang"].path / "exit.json").exists()


def test_a_machine_with_other_versions_is_skipped_on_request(data_dir: DataDir) -> None:
    engine = LocalEngine("other", versions={"python": "2.7"})
    key = submit(data_dir, experiment())
    wait = driving(data_dir, engine, linger=0.3, same_versions=True)
    wait_until(lambda: engine.num_looks > 5)
    assert not engine.jobs
    engine.versions = None
    wait()
    assert set(states(data_dir, key).values()) == {RunState.FINISHED}


def test_a_run_over_several_machines_is_refused_with_words(data_dir: DataDir) -> None:
    spec = experiment(training=TrainingSpec(batch_size=2), nodes=2)
    key = submit(data_dir, spec)
    assert drive(data_dir, LocalEngine("one", "two"), linger=0.5)
    assert set(states(data_dir, key).values()) == {RunState.FAILED}
    for run in run_dirs(data_dir, key).values():
        assert "run `breakeven queue start --join` on the others" in str(run.status.reason)


@pytest.mark.slow
def test_what_did_not_fit_is_repeated_run_by_run_once(data_dir: DataDir) -> None:
    submit(data_dir, experiment("greedy"))
    driving(data_dir, LocalEngine("one"))()
    first, repeat = experiments(data_dir)
    assert repeat.spec.fallback_of == first.experiment_id
    assert {run.state for run in repeat.runs} == {RunState.FINISHED}


def test_a_machine_that_sends_what_no_run_writes_ends_its_experiment_and_no_other(
    data_dir: DataDir, tmp_path: Path
) -> None:
    good, way_out, anothers_run, anothers_part = (
        submit(data_dir, experiment(steps=10)) for _ in range(4)
    )
    others = submit(data_dir, experiment())
    queue_order.hold(data_dir, others)
    stranger = data_dir.run_dir(f"{others}.baseline")
    spec = replace(stranger.read_spec(), experiment_id="20990101-000000-000000-ffff")
    part = Part(run_id=stranger.run_id, path="exit.json", offset=0, data=b"{}", is_end=True)
    lies: dict[str, dict[str, Any]] = {
        way_out: {"specs": {"../../evil.baseline": spec.to_json()}},
        anothers_run: {"specs": {spec.run_id: spec.to_json()}},
        anothers_part: {"parts": [part]},
    }

    class Lying(LocalJob):
        def delivery(self, known: Mapping[str, Mapping[str, HomeFile]]) -> Delivery | None:
            parts = super().delivery(known)
            return parts and replace(parts, **lies.get(self.host.experiment_id, {}))

    class Engine(LocalEngine):
        def start(
            self, key: str, node: str, place: Place, files: dict[str, dict[str, bytes]]
        ) -> LocalJob:
            made = super().start(key, node, place, files)
            self.jobs[key] = Lying(made.host, node)
            return self.jobs[key]

    assert drive(data_dir, Engine("one", "two", "three", "four"), linger=0.3)
    assert set(states(data_dir, good).values()) == {RunState.FINISHED}
    for bad in lies:
        assert set(states(data_dir, bad).values()) == {RunState.FAILED}
    assert stranger.state is RunState.QUEUED and not data_dir.run_dir(spec.run_id).path.exists()
    assert not [path for path in tmp_path.rglob("*evil*")]
