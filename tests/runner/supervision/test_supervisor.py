"""The supervisor and its races, with real processes that speak the protocol without torch."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import breakeven.runner.supervision.scheduler
from breakeven.runner.folders import queue_order
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.events import read_events
from breakeven.runner.folders.process import ProcessIdentity
from breakeven.runner.folders.queue import cancel, experiments, find_experiment, submit
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import Claim, Exit, RunState
from breakeven.runner.machine.cpus import CpuAllowance
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
from tests.runner.supervision.supervised import impatience as impatience
from tests.runner.supervision.supervised import supervisor_of as supervisor_of

pytestmark = pytest.mark.heavy


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


def queued(data_dir: DataDir, *backends: str, **changes: Any) -> dict[str, RunDir]:
    return run_dirs(data_dir, submit(data_dir, experiment(*backends, **changes)))


def ran(data_dir: DataDir, *backends: str, **changes: Any) -> dict[str, RunDir]:
    """The runs of an experiment that a supervisor has brought to its end."""
    runs = queued(data_dir, *backends, **changes)
    supervise(data_dir, FAKE_WORKER)
    return runs


def states_of(runs: dict[str, RunDir]) -> dict[str, RunState]:
    return {label: run.state for label, run in runs.items()}


def phases(run: RunDir) -> list[str]:
    return [one["phase"] for one in events(run, "phase")]


def found_in_cache(run: RunDir) -> list[str]:
    (waits,) = (one for one in events(run, "phase") if one["phase"] == "waiting")
    names: list[str] = waits["found_in_cache"]
    return names


@contextmanager
def supervised(data_dir: DataDir, until: Callable[[], bool]) -> Iterator[None]:
    """While a supervisor is at work, from a moment on; waits for its end."""
    supervising = threading.Thread(target=supervise, args=(data_dir, FAKE_WORKER))
    supervising.start()
    wait_until(until)
    yield
    supervising.join()


def cancel_all(data_dir: DataDir) -> None:
    for one in experiments(data_dir):
        cancel(one)


def is_alive(pid: int) -> bool:
    return ProcessIdentity.of(pid).started != ""


def allow_cpus(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    allowance = CpuAllowance(in_machine=8, cpus=frozenset(numbers), quota=None)
    scheduler = breakeven.runner.supervision.scheduler
    monkeypatch.setattr(scheduler, "cpu_allowance", lambda: allowance)


def test_what_no_run_can_load_ends_the_experiment_with_the_first_failure_and_its_sentence(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_cpus(monkeypatch, 3, 4)
    model = ModelSpec(source="no-such/model")
    runs = ran(data_dir, "eager", model=model, time_limit_seconds=20.0, controls=1)
    ends = {label: run.status for label, run in runs.items()}
    first = ends.pop("control")
    assert (first.state, first.reason) == (RunState.FAILED, "there is no such model")
    for end in ends.values():
        assert end.state is RunState.CANCELLED
        assert end.reason == "what all runs share cannot be loaded: there is no such model"
    assert runs["eager"].read_claim() is None, "it is not tried again"


@pytest.mark.parametrize("schedule", ["turns", "sequential"])
def test_what_others_could_load_is_one_runs_own_failure_and_the_others_go_on(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    allow_cpus(monkeypatch, 3)
    found = states_of(ran(data_dir, "unloadable", "eager", schedule=schedule))
    assert found.pop("unloadable") is RunState.FAILED
    assert set(found.values()) == {RunState.FINISHED}


def test_one_run_leaves_politely_one_has_a_nonsensical_specification_and_the_others_go_on(
    data_dir: DataDir,
) -> None:
    runs = queued(data_dir, "quit", "eager")
    content = json.loads(runs["eager"].spec_file.read_text())
    content["experiment"]["training"]["batch_size"] = -1
    runs["eager"].spec_file.write_text(json.dumps(content))
    supervise(data_dir, FAKE_WORKER)
    left, edited = runs["quit"].read_exit(), runs["eager"].read_exit()
    assert left is not None and (left.state, left.returncode) == (RunState.FAILED, 0)
    assert "before the training was over" in left.reason
    assert edited is not None and edited.state is RunState.FAILED
    assert "batch_size" in edited.reason and "-1" in edited.reason
    assert runs["baseline"].state is RunState.FINISHED


def test_cancelling_stops_all_processes_and_kills_a_run_that_ignores_sigterm(
    data_dir: DataDir,
) -> None:
    runs = queued(data_dir, "child", "hang", "stubborn")
    child_file = runs["child"].artifacts / "child"

    def all_work() -> bool:
        # From its first phase on one of them ignores the signal.
        has_child = child_file.exists() and child_file.read_text() != ""
        return has_child and all(events(run, "phase") for run in runs.values())

    with supervised(data_dir, all_work):
        cancel_all(data_dir)
    ended = runs["stubborn"].read_exit()
    assert ended is not None
    assert (ended.state, ended.returncode) == (RunState.CANCELLED, -signal.SIGKILL)
    assert runs["child"].state.is_final
    assert runs["hang"].state is RunState.CANCELLED
    wait_until(lambda: not is_alive(int(child_file.read_text())))


def test_a_run_that_is_stopped_during_its_profile_is_cancelled_and_did_not_fail(
    data_dir: DataDir,
) -> None:
    run = queued(data_dir, "profiled")["profiled"]
    with supervised(data_dir, lambda: "profiling" in phases(run)):
        cancel_all(data_dir)
    ended = run.read_exit()
    assert ended is not None and ended.returncode == 0
    assert (ended.state, ended.reason) == (RunState.CANCELLED, "stopped on request")


def test_a_queued_experiment_can_be_cancelled(data_dir: DataDir) -> None:
    runs = queued(data_dir)
    cancel_all(data_dir)
    supervise(data_dir, FAKE_WORKER)
    assert states_of(runs) == {"baseline": RunState.CANCELLED}


def test_runs_that_do_not_fit_together_are_repeated_one_after_another(data_dir: DataDir) -> None:
    assert ran(data_dir, "greedy")["greedy"].state is RunState.OUT_OF_MEMORY
    first, repeat = experiments(data_dir)
    assert (repeat.spec.fallback_of, repeat.spec.schedule) == (first.experiment_id, "sequential")
    assert {run.state for run in repeat.runs} == {RunState.FINISHED}
    exits = [run.read_exit() for run in repeat.runs]
    claims = [run.read_claim() for run in repeat.runs]
    for ended, claimed in zip(exits, claims[1:], strict=False):
        assert ended is not None and claimed is not None and ended.time <= claimed.time


def test_what_needs_more_memory_than_there_is_ends_alone(data_dir: DataDir) -> None:
    found = states_of(ran(data_dir, "bottomless", "eager"))
    assert len(list(experiments(data_dir))) == 1, "nothing is repeated"
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


def test_what_is_killed_with_its_supervisor_before_a_checkpoint_begins_anew_and_nobody_is_left(
    data_dir: DataDir, supervisor_of: Callable[[DataDir], subprocess.Popen[bytes]]
) -> None:
    # Nobody finishes in the first attempt: one run keeps its second turn.
    runs = queued(data_dir, "stuck", "child")
    process = supervisor_of(data_dir)
    child_file = runs["child"].artifacts / "child"
    wait_until(lambda: all(events(run, "block") for run in runs.values()))
    assert not supervise(data_dir, FAKE_WORKER), "a second supervisor leaves at once"
    written = {label: events(run, "step") for label, run in runs.items()}
    claims = [run.read_claim() for run in runs.values()]
    process.kill()
    process.wait()
    pids = [claim.process.pid for claim in claims if claim] + [int(child_file.read_text())]
    wait_until(lambda: not any(is_alive(pid) for pid in pids))
    assert set(states_of(runs).values()) == {RunState.LOST}
    supervise(data_dir, FAKE_WORKER)
    assert set(states_of(runs).values()) == {RunState.FINISHED}
    for label, run in runs.items():
        assert [block["round"] for block in events(run, "block")] == [0, 1, 2]
        assert [step["step"] for step in events(run, "step")] == list(range(30))
        aside, _ = read_events(run.attempts / "1" / "events.jsonl")
        steps = [event for event in aside if event["kind"] == "step"]
        assert steps[: len(written[label])] == written[label], "nothing is lost"


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
    runs = queued(data_dir, "eager")
    for attempt in range(1, 6):
        assert states_of(runs) == dict.fromkeys(runs, RunState.QUEUED)
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
    runs = queued(data_dir, "eager", schedule="sequential")
    for _ in range(5):
        vanish(runs["eager"])
        close_orphans(data_dir, ExitRecords())
    assert states_of(runs) == {"baseline": RunState.QUEUED, "eager": RunState.LOST}


def test_runs_that_took_turns_all_begin_anew_if_one_of_them_has_no_checkpoint(
    data_dir: DataDir,
) -> None:
    runs = queued(data_dir, "eager")
    for run in runs.values():
        vanish(run)
    leave_checkpoint(runs["baseline"])
    close_orphans(data_dir, ExitRecords())
    assert states_of(runs) == dict.fromkeys(runs, RunState.QUEUED)
    assert not runs["baseline"].has_checkpoint
    assert (runs["baseline"].attempts / "1" / "artifacts" / "checkpoints" / "1.pt").exists()
    # Also where the next supervisor died when it had put one of them aside.
    leave_checkpoint(runs["baseline"])
    vanish(runs["baseline"])
    close_orphans(data_dir, ExitRecords())
    assert not runs["baseline"].has_checkpoint


def finish_baseline(data_dir: DataDir, runs: dict[str, RunDir]) -> None:
    ExitRecords().write(runs["baseline"], RunState.FINISHED, "training is over", 0)
    leave_checkpoint(runs["inductor"])


CACHE = CacheSpec(repeats=1, steps=2)


@pytest.mark.parametrize(
    ("spec", "happens", "after"),
    [
        # Beside one that has finished none begins anew, and those with checkpoints go on.
        (experiment("eager", "inductor"), finish_baseline,
         {"baseline": RunState.FINISHED, "eager": RunState.LOST, "inductor": RunState.QUEUED}),
        (experiment("eager"), lambda data_dir, runs: cancel_all(data_dir),
         {"baseline": RunState.CANCELLED, "eager": RunState.CANCELLED}),
        # The caches that a warm run began with are gone.
        (experiment("eager", scenario="cache", cache=CACHE), lambda data_dir, runs: None,
         {"baseline": RunState.QUEUED, "eager-cold-1": RunState.QUEUED,
          "eager-warm-1": RunState.LOST}),
    ],
)  # fmt: skip
def test_what_becomes_of_runs_that_vanished_with_their_supervisor(
    data_dir: DataDir, spec: ExperimentSpec, happens: Callable[..., None],
    after: dict[str, RunState],
) -> None:  # fmt: skip
    runs = run_dirs(data_dir, submit(data_dir, spec))
    for run in runs.values():
        vanish(run)
    happens(data_dir, runs)
    close_orphans(data_dir, ExitRecords())
    assert states_of(runs) == after
    assert [run.has_checkpoint for run in runs.values()] == [
        label == "inductor" for label in runs
    ]  # fmt: skip


def test_sigkill_of_a_run_is_recorded_and_loses_no_written_step(
    data_dir: DataDir, supervisor_of: Callable[[DataDir], subprocess.Popen[bytes]]
) -> None:
    runs = queued(data_dir, "slow", "eager", steps=40)
    supervisor_of(data_dir)
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


@pytest.mark.parametrize("host", ["this one", "another"])
def test_a_claim_of_a_strangers_pid_is_lost_and_one_of_another_machine_is_left_alone(
    data_dir: DataDir, host: str
) -> None:
    (run,) = queued(data_dir).values()
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    gone = ProcessIdentity(pid=stranger.pid, started="another-boot/1")
    here = os.uname().nodename if host == "this one" else host
    try:
        run.write_claim(Claim(host=here, process=gone, supervisor=gone, time=time.time()))
        assert run.state is (RunState.LOST if host == "this one" else RunState.ELSEWHERE)
        supervise(data_dir, FAKE_WORKER)
        assert stranger.poll() is None, "a stranger's process was killed"
        assert run.state is (RunState.FINISHED if host == "this one" else RunState.ELSEWHERE)
    finally:
        stranger.kill()
        stranger.wait()


def test_a_warm_run_begins_with_the_caches_of_the_cold_one_and_nobody_else_does(
    data_dir: DataDir,
) -> None:
    """Though the folders came with compile caches, which are code of a stranger."""
    runs = queued(data_dir, "eager", scenario="cache", cache=replace(CACHE, repeats=3))
    for run in runs.values():
        run.compile_cache.mkdir()
        (run.compile_cache / "stranger").touch()
    runs["eager-cold-3"].write_exit(Exit.now(RunState.FINISHED, "all steps done", 0))
    supervise(data_dir, FAKE_WORKER)
    ran_here = {label: run for label, run in runs.items() if label != "eager-cold-3"}
    assert {label: found_in_cache(run) for label, run in ran_here.items()} == {
        "baseline": [],
        "eager-cold-1": [],
        "eager-warm-1": ["eager-cold-1"],
        "eager-cold-2": [],
        "eager-warm-2": ["eager-cold-2"],
        "eager-warm-3": [],  # the cold one ended elsewhere
    }
    assert not any(run.compile_cache.exists() for run in ran_here.values())


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
