"""The supervisor and its races, with real processes that speak the protocol without torch."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import breakeven.runner.supervision.run_process
import breakeven.runner.supervision.supervisor
from breakeven.runner.folders import queue_order
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.events import read_events
from breakeven.runner.folders.process import ProcessIdentity
from breakeven.runner.folders.queue import cancel, experiments, find_experiment, submit
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import Claim, Exit, RunState
from breakeven.runner.machine.cpus import CpuAllowance
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.experiment import (
    CacheSpec,
    DataSpec,
    ExperimentSpec,
    ModelSpec,
    TrainingSpec,
)
from breakeven.runner.supervision.exits import ExitRecords, lacks_memory_alone
from breakeven.runner.supervision.orphans import close_orphans
from breakeven.runner.supervision.supervisor import supervise
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.helpers.journals import Recording
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.heavy

SUPERVISE = """
import sys
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.supervision.supervisor import supervise
supervise(DataDir(sys.argv[1]), (sys.executable, "-m", "tests.helpers.fake_worker"))
"""


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakeven.runner.supervision.supervisor, "LINGER_SECONDS", 0.0)
    monkeypatch.setattr(breakeven.runner.supervision.supervisor, "LOCK_PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(breakeven.runner.supervision.run_process, "GRACE_SECONDS", 1.0)


@pytest.fixture
def supervisor(data_dir: DataDir) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts a supervisor as a process of its own; kills what is left of it afterwards."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", SUPERVISE, str(data_dir.path)]
        started.append(subprocess.Popen(command, cwd=PROJECT_ROOT, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def experiment(*backends: str, steps: int = 30, **changes: Any) -> ExperimentSpec:
    """One sample a step, blocks of 10 steps: 3 rounds unless told otherwise; no control."""
    spec = ExperimentSpec(
        name="trial",
        backends=backends,
        controls=0,
        data=DataSpec(num_train_samples=steps),
        training=TrainingSpec(batch_size=1),
    )
    return replace(spec, **changes)


def run_dirs(data_dir: DataDir, experiment_id: str) -> dict[str, RunDir]:
    runs = find_experiment(data_dir, experiment_id).runs
    return {run.run_id.partition(".")[2]: run for run in runs}


def states(data_dir: DataDir, experiment_id: str) -> dict[str, str]:
    return {label: run.state for label, run in run_dirs(data_dir, experiment_id).items()}


def events(run: RunDir, kind: str) -> list[dict[str, Any]]:
    return [event for event in read_events(run.events_file)[0] if event["kind"] == kind]


def is_alive(pid: int) -> bool:
    return ProcessIdentity.of(pid).started != ""


def test_what_no_run_can_load_ends_the_experiment_with_the_first_failure_and_its_sentence(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = CpuAllowance(in_machine=8, cpus=frozenset({3, 4}), quota=None)
    monkeypatch.setattr(breakeven.runner.supervision.scheduler, "cpu_allowance", lambda: two)
    spec = experiment("eager", model=ModelSpec(source="no-such/model"), time_limit_seconds=20.0,
                      controls=1)  # fmt: skip
    runs = run_dirs(data_dir, submit(data_dir, spec))
    supervise(data_dir, FAKE_WORKER)
    ends = {label: run.status for label, run in runs.items()}
    first = ends.pop("control")
    assert (first.state, first.reason) == (RunState.FAILED, "there is no such model")
    for end in ends.values():
        assert end.state is RunState.CANCELLED
        assert end.reason == "what all runs share cannot be loaded: there is no such model"
    assert runs["eager"].read_claim() is None, "it is not tried again"


def test_what_others_could_load_is_one_runs_own_failure_and_the_others_go_on(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = CpuAllowance(in_machine=8, cpus=frozenset({3}), quota=None)
    monkeypatch.setattr(breakeven.runner.supervision.scheduler, "cpu_allowance", lambda: one)
    for schedule in ("turns", "sequential"):
        experiment_id = submit(data_dir, experiment("unloadable", "eager", schedule=schedule))
        supervise(data_dir, FAKE_WORKER)
        found = states(data_dir, experiment_id)
        assert found.pop("unloadable") is RunState.FAILED
        assert set(found.values()) == {RunState.FINISHED}


def test_a_run_that_leaves_politely_in_the_middle_has_not_finished(data_dir: DataDir) -> None:
    experiment_id = submit(data_dir, experiment("quit"))
    supervise(data_dir, FAKE_WORKER)
    ended = run_dirs(data_dir, experiment_id)["quit"].read_exit()
    assert ended is not None and (ended.state, ended.returncode) == (RunState.FAILED, 0)
    assert "before the training was over" in ended.reason
    assert states(data_dir, experiment_id)["baseline"] is RunState.FINISHED


def test_a_run_that_ignores_sigterm_is_killed(data_dir: DataDir) -> None:
    experiment_id = submit(data_dir, experiment("stubborn"))
    stubborn = run_dirs(data_dir, experiment_id)["stubborn"]
    supervising = threading.Thread(target=supervise, args=(data_dir, FAKE_WORKER))
    supervising.start()
    wait_until(lambda: bool(events(stubborn, "phase")))  # from then on it ignores the signal
    cancel(find_experiment(data_dir, experiment_id))
    supervising.join()
    ended = stubborn.read_exit()
    assert ended is not None
    assert (ended.state, ended.returncode) == (RunState.CANCELLED, -signal.SIGKILL)


def test_cancelling_stops_a_running_experiment_with_all_its_processes(data_dir: DataDir) -> None:
    experiment_id = submit(data_dir, experiment("child", "hang"))
    runs = run_dirs(data_dir, experiment_id)
    child_file = runs["child"].artifacts / "child"
    supervising = threading.Thread(target=supervise, args=(data_dir, FAKE_WORKER))
    supervising.start()
    wait_until(lambda: child_file.exists() and child_file.read_text() != "")
    cancel(find_experiment(data_dir, experiment_id))
    supervising.join()
    assert runs["child"].state.is_final
    assert runs["hang"].state == RunState.CANCELLED
    wait_until(lambda: not is_alive(int(child_file.read_text())))


def test_a_run_that_is_stopped_during_its_profile_is_cancelled_and_did_not_fail(
    data_dir: DataDir,
) -> None:
    experiment_id = submit(data_dir, experiment("profiled"))
    run = run_dirs(data_dir, experiment_id)["profiled"]
    supervising = threading.Thread(target=supervise, args=(data_dir, FAKE_WORKER))
    supervising.start()
    wait_until(lambda: any(one["phase"] == "profiling" for one in events(run, "phase")))
    cancel(find_experiment(data_dir, experiment_id))
    supervising.join()
    ended = run.read_exit()
    assert ended is not None and ended.returncode == 0
    assert (ended.state, ended.reason) == (RunState.CANCELLED, "stopped on request")


def test_a_queued_experiment_can_be_cancelled(data_dir: DataDir) -> None:
    experiment_id = submit(data_dir, experiment())
    cancel(find_experiment(data_dir, experiment_id))
    supervise(data_dir, FAKE_WORKER)
    assert set(states(data_dir, experiment_id).values()) == {RunState.CANCELLED}


def test_runs_that_do_not_fit_together_are_repeated_one_after_another(data_dir: DataDir) -> None:
    experiment_id = submit(data_dir, experiment("greedy"))
    supervise(data_dir, FAKE_WORKER)
    first, repeat = experiments(data_dir)
    assert first.experiment_id == experiment_id
    assert states(data_dir, experiment_id)["greedy"] == RunState.OUT_OF_MEMORY
    assert (repeat.spec.fallback_of, repeat.spec.schedule) == (experiment_id, "sequential")
    assert {run.state for run in repeat.runs} == {RunState.FINISHED}
    exits = [run.read_exit() for run in repeat.runs]
    claims = [run.read_claim() for run in repeat.runs]
    for ended, claimed in zip(exits, claims[1:], strict=False):
        assert ended is not None and claimed is not None and ended.time <= claimed.time


def test_what_needs_more_memory_than_there_is_ends_alone(data_dir: DataDir) -> None:
    experiment_id = submit(data_dir, experiment("bottomless", "eager"))
    supervise(data_dir, FAKE_WORKER)
    assert len(list(experiments(data_dir))) == 1, "nothing is repeated"
    found = states(data_dir, experiment_id)
    assert found.pop("bottomless") is RunState.OUT_OF_MEMORY
    assert set(found.values()) == {RunState.FINISHED}


@pytest.mark.parametrize(
    ("asked", "allocated", "is_too_much"),
    # Of 79.11 GiB; what other processes hold does not count.
    [("20.00 GiB", "70.50 GiB", True), ("20.00 GiB", "50.00 GiB", False),
     ("80.00 GiB", "512.00 KiB", True), ("2.00 MiB", "79.10 GiB", False)],
)  # fmt: skip
def test_an_error_of_a_device_says_whether_its_memory_would_suffice_for_the_run_alone(
    tmp_path: Path, asked: str, allocated: str, is_too_much: bool
) -> None:
    run = Recording(tmp_path, "inductor")
    message = (
        f"backend='inductor' raised: OutOfMemoryError: CUDA out of memory. Tried to allocate "
        f"{asked}. GPU 0 has a total capacity of 79.11 GiB of which 1.00 GiB is free. Process 7 "
        "has 40.00 GiB memory in use. Including non-PyTorch memory, this process has 38.11 GiB "
        f"memory in use. Of the allocated memory {allocated} is allocated by PyTorch, with 12.00 "
        "MiB allocated in private pools (e.g., CUDA Graphs), and 1.00 GiB is reserved by PyTorch."
    )
    run.log.append("error", error="BackendCompilerFailed", message=message)
    run.log.flush()
    assert lacks_memory_alone(run.run) == is_too_much


def test_a_specification_edited_into_nonsense_fails_alone(data_dir: DataDir) -> None:
    experiment_id = submit(data_dir, experiment("eager"))
    runs = run_dirs(data_dir, experiment_id)
    content = json.loads(runs["eager"].spec_file.read_text())
    content["experiment"]["training"]["batch_size"] = -1
    runs["eager"].spec_file.write_text(json.dumps(content))
    supervise(data_dir, FAKE_WORKER)
    assert runs["baseline"].state == RunState.FINISHED
    ended = runs["eager"].read_exit()
    assert ended is not None and ended.state == RunState.FAILED
    assert "batch_size" in ended.reason and "-1" in ended.reason


def test_a_second_supervisor_leaves_at_once(
    data_dir: DataDir, supervisor: Callable[[], subprocess.Popen[bytes]]
) -> None:
    submit(data_dir, experiment("hang"))
    supervisor()
    wait_until(lambda: any(run.claim_file.exists() for run in data_dir.run_dirs()))
    assert not supervise(data_dir, FAKE_WORKER)


def test_what_is_killed_with_its_supervisor_before_a_checkpoint_begins_anew_and_nobody_is_left(
    data_dir: DataDir, supervisor: Callable[[], subprocess.Popen[bytes]]
) -> None:
    # Nobody finishes in the first attempt: one run keeps its second turn.
    experiment_id = submit(data_dir, experiment("stuck", "child"))
    process = supervisor()
    runs = run_dirs(data_dir, experiment_id)
    child_file = runs["child"].artifacts / "child"
    wait_until(lambda: all(events(run, "block") for run in runs.values()))
    written = {label: events(run, "step") for label, run in runs.items()}
    claims = [run.read_claim() for run in runs.values()]
    process.kill()
    process.wait()
    pids = [claim.process.pid for claim in claims if claim] + [int(child_file.read_text())]
    wait_until(lambda: not any(is_alive(pid) for pid in pids))
    assert {run.state for run in runs.values()} == {RunState.LOST}
    supervise(data_dir, FAKE_WORKER)
    assert set(states(data_dir, experiment_id).values()) == {RunState.FINISHED}
    for label, run in runs.items():
        assert [block["round"] for block in events(run, "block")] == [0, 1, 2]
        assert [step["step"] for step in events(run, "step")] == list(range(30))
        aside, _ = read_events(run.attempts / "1" / "events.jsonl")
        steps = [event for event in aside if event["kind"] == "step"]
        assert steps[: len(written[label])] == written[label], "nothing is lost"


def test_an_experiment_whose_supervisor_died_before_every_run_had_a_turn_begins_anew_whole(
    data_dir: DataDir, supervisor: Callable[[], subprocess.Popen[bytes]]
) -> None:
    experiment_id = submit(data_dir, experiment("unready"))
    runs = run_dirs(data_dir, experiment_id)
    process = supervisor()
    wait_until(lambda: len(events(runs["baseline"], "block")) == 1)
    process.kill()
    process.wait()
    first = events(runs["baseline"], "step")
    supervise(data_dir, FAKE_WORKER)
    assert set(states(data_dir, experiment_id).values()) == {RunState.FINISHED}
    rounds = {
        label: [block["round"] for block in events(run, "block")] for label, run in runs.items()
    }
    assert rounds == {"baseline": [0, 1, 2], "unready": [0, 1, 2]}
    aside, _ = read_events(runs["baseline"].attempts / "1" / "events.jsonl")
    assert [event for event in aside if event["kind"] == "step"] == first, "nothing is lost"


def vanish(run: RunDir) -> None:
    """As if a supervisor had begun it and both had been killed."""
    gone = ProcessIdentity(pid=2**31 - 1, started="another-boot/1")
    run.write_claim(replace(Claim.by(gone), supervisor=gone))


def leave_checkpoint(run: RunDir) -> None:
    run.checkpoints.mkdir(parents=True)
    (run.checkpoints / "1.pt").touch()


def test_after_five_supervisors_died_with_the_baseline_the_experiment_ends_with_the_reason(
    data_dir: DataDir,
) -> None:
    # One CPU: the baseline alone had begun each time, and the others have attempts left.
    experiment_id = submit(data_dir, experiment("eager"))
    runs = run_dirs(data_dir, experiment_id)
    for attempt in range(1, 6):
        assert states(data_dir, experiment_id) == dict.fromkeys(runs, RunState.QUEUED)
        assert runs["baseline"].attempt == attempt
        vanish(runs["baseline"])
        close_orphans(data_dir, ExitRecords())
    supervise(data_dir, FAKE_WORKER)
    ends = {label: run.status for label, run in runs.items()}
    assert (ends["baseline"].state, runs["baseline"].attempt) == (RunState.LOST, 5)
    assert "5 attempts" in str(ends["baseline"].reason)
    assert ends["eager"].state is RunState.CANCELLED
    assert "no baseline to compare with: its process and" in str(ends["eager"].reason)


def test_a_backend_that_takes_turns_with_nobody_is_lost_alone_after_five_attempts(
    data_dir: DataDir,
) -> None:
    spec = experiment("eager", schedule="sequential")
    experiment_id = submit(data_dir, spec)
    runs = run_dirs(data_dir, experiment_id)
    for _ in range(5):
        vanish(runs["eager"])
        close_orphans(data_dir, ExitRecords())
    assert states(data_dir, experiment_id) == {"baseline": RunState.QUEUED, "eager": RunState.LOST}


def test_runs_that_took_turns_all_begin_anew_if_one_of_them_has_no_checkpoint(
    data_dir: DataDir,
) -> None:
    experiment_id = submit(data_dir, experiment("eager"))
    runs = run_dirs(data_dir, experiment_id)
    for run in runs.values():
        vanish(run)
    leave_checkpoint(runs["baseline"])
    close_orphans(data_dir, ExitRecords())
    assert states(data_dir, experiment_id) == dict.fromkeys(runs, RunState.QUEUED)
    assert not runs["baseline"].has_checkpoint
    assert (runs["baseline"].attempts / "1" / "artifacts" / "checkpoints" / "1.pt").exists()
    # Also where the next supervisor died when it had put one of them aside.
    leave_checkpoint(runs["baseline"])
    vanish(runs["baseline"])
    close_orphans(data_dir, ExitRecords())
    assert not runs["baseline"].has_checkpoint


def test_beside_a_run_that_has_finished_none_begins_anew_and_those_with_checkpoints_go_on(
    data_dir: DataDir,
) -> None:
    experiment_id = submit(data_dir, experiment("eager", "inductor"))
    runs = run_dirs(data_dir, experiment_id)
    for run in runs.values():
        vanish(run)
    ExitRecords().write(runs["baseline"], RunState.FINISHED, "training is over", 0)
    leave_checkpoint(runs["inductor"])
    close_orphans(data_dir, ExitRecords())
    assert states(data_dir, experiment_id) == {
        "baseline": RunState.FINISHED,
        "eager": RunState.LOST,
        "inductor": RunState.QUEUED,
    }
    assert runs["inductor"].has_checkpoint


def test_what_was_to_be_stopped_when_its_supervisor_vanished_is_recorded_as_stopped(
    data_dir: DataDir,
) -> None:
    experiment_id = submit(data_dir, experiment("eager"))
    for run in run_dirs(data_dir, experiment_id).values():
        vanish(run)
    cancel(find_experiment(data_dir, experiment_id))
    close_orphans(data_dir, ExitRecords())
    assert set(states(data_dir, experiment_id).values()) == {RunState.CANCELLED}


def test_a_warm_run_that_vanished_is_lost_for_the_caches_it_began_with_are_gone(
    data_dir: DataDir,
) -> None:
    spec = experiment("eager", scenario="cache", cache=CacheSpec(repeats=1, steps=2))
    runs = run_dirs(data_dir, submit(data_dir, spec))
    for run in runs.values():
        vanish(run)
    close_orphans(data_dir, ExitRecords())
    assert {label: run.state for label, run in runs.items()} == {
        "baseline": RunState.QUEUED,
        "eager-cold-1": RunState.QUEUED,
        "eager-warm-1": RunState.LOST,
    }


def test_sigkill_of_a_run_is_recorded_and_loses_no_written_step(
    data_dir: DataDir, supervisor: Callable[[], subprocess.Popen[bytes]]
) -> None:
    experiment_id = submit(data_dir, experiment("slow", "eager", steps=40))
    supervisor()
    runs = run_dirs(data_dir, experiment_id)
    wait_until(lambda: len(events(runs["slow"], "step")) >= 10)
    claim = runs["slow"].read_claim()
    assert claim is not None
    written = len(events(runs["slow"], "step"))
    os.kill(claim.process.pid, signal.SIGKILL)
    wait_until(lambda: all(run.state.is_final for run in runs.values()))
    ended = runs["slow"].read_exit()
    assert ended is not None and (ended.state, ended.returncode) == (RunState.FAILED, -9)
    assert "SIGKILL" in ended.reason
    assert len(events(runs["slow"], "step")) >= written
    assert runs["eager"].state == runs["baseline"].state == RunState.FINISHED


def test_a_claim_whose_pid_now_belongs_to_another_process_is_lost(data_dir: DataDir) -> None:
    experiment_id = submit(data_dir, experiment())
    (run,) = run_dirs(data_dir, experiment_id).values()
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        claim = {
            "host": os.uname().nodename,
            "process": {"pid": stranger.pid, "started": "another-boot/1"},
            "supervisor": {"pid": stranger.pid, "started": "another-boot/2"},
            "time": time.time(),
        }
        run.claim_file.write_text(json.dumps(claim))
        assert run.state == RunState.LOST
        supervise(data_dir, FAKE_WORKER)
        assert stranger.poll() is None, "a stranger's process was killed"
    finally:
        stranger.kill()
        stranger.wait()


def test_a_run_claimed_on_another_machine_is_left_alone(data_dir: DataDir) -> None:
    experiment_id = submit(data_dir, experiment())
    (run,) = run_dirs(data_dir, experiment_id).values()
    process = {"pid": 1, "started": "x"}
    claim = {"host": "another", "process": process, "supervisor": process, "time": time.time()}
    run.claim_file.write_text(json.dumps(claim))
    supervise(data_dir, FAKE_WORKER)
    assert run.state == RunState.ELSEWHERE
    assert not Path(run.exit_file).exists()


def test_a_warm_run_begins_with_the_caches_of_the_cold_one_and_nobody_else_does(
    data_dir: DataDir,
) -> None:
    """Though the folders came with compile caches, which are code of a stranger."""
    spec = experiment("eager", scenario="cache", cache=CacheSpec(repeats=2, steps=2))
    experiment_id = submit(data_dir, spec)
    for run in run_dirs(data_dir, experiment_id).values():
        run.compile_cache.mkdir()
        (run.compile_cache / "stranger").touch()
    supervise(data_dir, FAKE_WORKER)
    runs = run_dirs(data_dir, experiment_id)
    found = {
        label: event["found_in_cache"]
        for label, run in runs.items()
        for event in read_events(run.events_file)[0]
        if event.get("phase") == "waiting"
    }
    assert found == {
        "baseline": [],
        "eager-cold-1": [],
        "eager-warm-1": ["eager-cold-1"],
        "eager-cold-2": [],
        "eager-warm-2": ["eager-cold-2"],
    }
    assert not any(run.compile_cache.exists() for run in runs.values())


def test_a_warm_run_whose_cold_one_ended_elsewhere_believes_no_cache_that_came_with_it(
    data_dir: DataDir,
) -> None:
    spec = experiment("eager", scenario="cache", cache=CacheSpec(repeats=1, steps=2))
    runs = run_dirs(data_dir, submit(data_dir, spec))
    runs["eager-cold-1"].write_exit(Exit.now(RunState.FINISHED, "all steps done", 0))
    warm = runs["eager-warm-1"]
    warm.compile_cache.mkdir()
    (warm.compile_cache / "stranger").touch()
    supervise(data_dir, FAKE_WORKER)
    found = [event["found_in_cache"] for event in read_events(warm.events_file)[0]
             if event.get("phase") == "waiting"]  # fmt: skip
    assert found == [[]]


def test_the_queue_is_worked_off_in_its_order_without_what_is_held_until_it_is_let_go(
    data_dir: DataDir,
) -> None:
    first, second, third = (submit(data_dir, experiment("plain", steps=10)) for _ in range(3))
    queue_order.move(data_dir, third)
    queue_order.hold(data_dir, first)
    assert supervise(data_dir, FAKE_WORKER)

    def claimed(experiment_id: str) -> float | None:
        claims = [run.read_claim() for run in find_experiment(data_dir, experiment_id).runs]
        return min((claim.time for claim in claims if claim is not None), default=None)

    times = [claimed(third), claimed(second)]
    assert None not in times and times == sorted(times)  # type: ignore[type-var]
    assert claimed(first) is None
    queue_order.pause(data_dir)
    queue_order.release(data_dir, first)
    assert supervise(data_dir, FAKE_WORKER) and claimed(first) is None
    queue_order.pause(data_dir, paused=False)
    assert supervise(data_dir, FAKE_WORKER) and claimed(first) is not None
