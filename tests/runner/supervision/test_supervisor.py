"""The supervisor and its races, with real processes that speak the protocol without torch."""

import fcntl
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

from breakeven.runner.experiments import queue_order
from breakeven.runner.experiments.queue import cancel, experiments, find_experiment, submit
from breakeven.runner.machine.cpus import CpuAllowance
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.records import Claim, Exit
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs import experiment as specs
from breakeven.runner.supervision.exit_records import ExitRecords, lacks_memory_alone
from breakeven.runner.supervision.orphans import close_orphans
from breakeven.runner.supervision.supervisor import supervise
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.helpers.journals import Recording
from tests.helpers.waiting import wait_until
from tests.runner.supervision.supervised import impatience as impatience
from tests.runner.supervision.supervised import supervisor_of as supervisor_of
from tests.runner.supervision.witness import Witness

pytestmark = pytest.mark.heavy
SCHEDULER = "breakeven.runner.supervision.scheduler"
SUPERVISOR = "breakeven.runner.supervision.supervisor"


def experiment(*backends: str, steps: int = 30, **changes: Any) -> specs.ExperimentSpec:
    """One sample a step, blocks of 10 steps: 3 rounds by default; no control."""
    data, training = specs.DataSpec(num_train_samples=steps), specs.TrainingSpec(batch_size=1)
    spec = specs.ExperimentSpec(
        name="trial", backends=backends, controls=0, data=data, training=training
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


@contextmanager
def supervised(data_dir: DataDir, until: Callable[[], bool]) -> Iterator[None]:
    """While a supervisor is at work, from a moment on; waits for its end."""
    supervising = threading.Thread(target=supervise, args=(data_dir, FAKE_WORKER))
    supervising.start()
    wait_until(until)
    yield
    supervising.join()


def journal(run: RunDir) -> str:
    return run.events_file.read_text() if run.events_file.exists() else ""


def cancel_all(data_dir: DataDir) -> None:
    for experiment in experiments(data_dir):
        cancel(experiment)


def is_alive(pid: int) -> bool:
    return ProcessIdentity.from_pid(pid).started != ""


def allow_cpus(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    allowance = CpuAllowance(num_in_machine=8, cpus=frozenset(numbers), quota=None)
    for module in (SCHEDULER, SUPERVISOR):
        monkeypatch.setattr(f"{module}.cpu_allowance", lambda: allowance)


def test_what_no_run_can_load_ends_the_experiment_with_the_first_failure(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_cpus(monkeypatch, 3, 4)
    model = specs.ModelSpec(source="no-such/model")
    runs = ran(data_dir, "eager", model=model, time_limit_seconds=20.0, controls=1)
    ends = {label: run.status for label, run in runs.items()}
    first = ends.pop("control")
    assert (first.state, first.reason) == (RunState.FAILED, "there is no such model")
    for end in ends.values():
        assert end.state is RunState.CANCELLED
        assert end.reason == "what all runs share cannot be loaded: there is no such model"
    assert runs["eager"].read_claim() is None, "it is not tried again"


@pytest.mark.parametrize("schedule", ["turns", "sequential"])
def test_a_run_that_cannot_load_leaves_early_or_cannot_be_started_ends_alone(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    allow_cpus(monkeypatch, 3)
    runs = queued(data_dir, "unloadable", "quit", "eager", schedule=schedule)
    content = json.loads(runs["eager"].spec_file.read_text())
    content["experiment"]["training"]["batch_size"] = -1
    runs["eager"].spec_file.write_text(json.dumps(content))
    supervise(data_dir, FAKE_WORKER)
    others = dict.fromkeys(("unloadable", "quit", "eager"), RunState.FAILED)
    assert states_of(runs) == {"baseline": RunState.FINISHED, **others}
    left, edited = runs["quit"].read_exit(), runs["eager"].read_exit()
    assert left and left.returncode == 0 and "before the training was over" in left.reason
    assert edited and "batch_size" in edited.reason and "-1" in edited.reason


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
    assert ended and (ended.state, ended.returncode) == (RunState.CANCELLED, -signal.SIGKILL)
    assert runs["child"].state.is_final
    assert runs["hang"].state is RunState.CANCELLED
    wait_until(lambda: not is_alive(int(child_file.read_text())))


def test_a_run_that_is_stopped_during_its_profile_is_cancelled(data_dir: DataDir) -> None:
    run = queued(data_dir, "profiled")["profiled"]
    with supervised(data_dir, lambda: '"profiling"' in journal(run)):
        cancel_all(data_dir)
    ended = run.read_exit()
    assert ended and (ended.state, ended.returncode) == (RunState.CANCELLED, 0)
    assert ended.reason == "stopped on request"


def test_runs_that_do_not_fit_together_are_repeated_one_after_another(data_dir: DataDir) -> None:
    assert ran(data_dir, "greedy")["greedy"].state is RunState.OUT_OF_MEMORY
    first, repeat = experiments(data_dir)
    assert (repeat.spec.fallback_of, repeat.spec.schedule) == (first.experiment_id, "sequential")
    assert {run.state for run in repeat.runs} == {RunState.FINISHED}
    (ended, *_), (_, claimed) = zip(
        *((run.read_exit(), run.read_claim()) for run in repeat.runs), strict=True
    )
    assert ended and claimed and ended.time <= claimed.time


@pytest.mark.parametrize("nature", [pytest.param("flock", marks=pytest.mark.slow), "sqlite"])
def test_runs_that_need_the_same_lock_are_repeated_one_after_another(
    data_dir: DataDir, nature: str
) -> None:
    runs = ran(data_dir, nature, f"{nature}:scope=forward")
    assert RunState.FAILED in states_of(runs).values()
    first, repeat = experiments(data_dir)
    assert (repeat.spec.fallback_of, repeat.spec.schedule) == (first.experiment_id, "sequential")
    assert {run.state for run in repeat.runs} == {RunState.FINISHED}
    ended = [run.read_exit() for run in runs.values()]
    reason = f"only one run at a time can have; experiment {repeat.experiment_id} repeats them"
    assert any(reason in record.reason for record in ended if record)


def test_a_lock_that_another_program_holds_is_met_twice_and_no_more(data_dir: DataDir) -> None:
    data_dir.path.mkdir(parents=True, exist_ok=True)
    with (data_dir.path / "held").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        ran(data_dir, "flock")
    _, repeat = experiments(data_dir)
    assert [run.state for run in repeat.runs] == [RunState.FINISHED, RunState.FAILED]


def test_what_needs_more_memory_than_there_is_ends_alone(data_dir: DataDir) -> None:
    states = states_of(ran(data_dir, "bottomless"))
    assert len(list(experiments(data_dir))) == 1, "nothing is repeated"
    assert states == {"baseline": RunState.FINISHED, "bottomless": RunState.OUT_OF_MEMORY}


@pytest.mark.parametrize(
    ("requested", "allocated", "is_too_much"),
    # Of 79.11 GiB; what other processes hold does not count.
    [
        ("20.00 GiB", "70.50 GiB", True),
        ("20.00 GiB", "50.00 GiB", False),
        ("80.00 GiB", "512.00 KiB", True),
        ("2.00 MiB", "79.10 GiB", False),
    ],
)
def test_an_error_of_a_device_says_whether_its_memory_would_suffice_for_the_run_alone(
    tmp_path: Path, requested: str, allocated: str, is_too_much: bool
) -> None:
    run = Recording(tmp_path, "inductor")
    message = (
        f"backend='inductor' raised: OutOfMemoryError: CUDA out of memory. Tried to allocate "
        f"{requested}. GPU 0 has a total capacity of 79.11 GiB of which 1.00 GiB is free. Process "
        "7 has 40.00 GiB memory in use. Including non-PyTorch memory, this process has 38.11 GiB "
        f"memory in use. Of the allocated memory {allocated} is allocated by PyTorch, with 12.00 "
        "MiB allocated in private pools (e.g., CUDA Graphs), and 1.00 GiB is reserved by PyTorch."
    )
    run.log.append("error", error="BackendCompilerFailed", message=message)
    run.log.flush()
    assert lacks_memory_alone(run.run) == is_too_much


def test_what_dies_with_its_supervisor_begins_anew_and_a_run_that_dies_alone_has_failed(
    data_dir: DataDir, supervisor_of: Callable[[DataDir], subprocess.Popen[bytes]]
) -> None:
    # Nobody finishes in the first attempt: one run keeps its second turn. In the second attempt
    # another one does, until it is killed.
    runs = queued(data_dir, "stuck", "child", "stuck_later")
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

    killed = runs.pop("stuck_later")

    def pid_again() -> int | None:
        claim = killed.read_claim()
        return None if claim is None or claim.process.pid in pids else claim.process.pid

    # The first attempt's journal is there for a moment of the second one.
    with supervised(data_dir, lambda: bool(pid_again()) and len(events(killed, "step")) >= 10):
        before, pid = len(events(killed, "step")), pid_again()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    ended = killed.read_exit()
    assert ended and (ended.state, ended.returncode) == (RunState.FAILED, -signal.SIGKILL)
    assert "SIGKILL" in ended.reason and len(events(killed, "step")) >= before
    assert set(states_of(runs).values()) == {RunState.FINISHED}
    for label, run in runs.items():
        assert [block["round"] for block in events(run, "block")] == [0, 1, 2]
        assert [step["step"] for step in events(run, "step")] == list(range(30))
        aside, _ = read_events(run.attempts / "1" / "events.jsonl")
        steps = [event for event in aside if event["kind"] == "step"]
        assert steps[: len(written[label])] == written[label], "nothing is lost"


def vanish(*runs: RunDir) -> None:
    """As if a supervisor had begun them and all had been killed."""
    gone = ProcessIdentity(pid=2**31 - 1, started="another-boot/1")
    for run in runs:
        run.write_claim(replace(Claim.by(gone), supervisor=gone))


def leave_checkpoint(run: RunDir) -> None:
    run.checkpoints.mkdir(parents=True)
    (run.checkpoints / "1.pt").touch()


def test_after_five_supervisors_died_with_the_baseline_the_experiment_ends_with_the_reason(
    data_dir: DataDir,
) -> None:
    # One CPU: the baseline alone had begun each time, and the others have attempts left.
    runs = queued(data_dir, "eager")
    alone = queued(data_dir, "eager", schedule="sequential")
    for attempt in range(1, 6):
        assert states_of(runs) == dict.fromkeys(runs, RunState.QUEUED)
        assert runs["baseline"].attempt == attempt
        vanish(runs["baseline"], alone["eager"])
        close_orphans(data_dir, ExitRecords())
    assert states_of(alone) == {"baseline": RunState.QUEUED, "eager": RunState.LOST}
    cancel(find_experiment(data_dir, alone["eager"].read_spec().experiment_id))
    supervise(data_dir, FAKE_WORKER)
    ends = {label: run.status for label, run in runs.items()}
    assert (ends["baseline"].state, runs["baseline"].attempt) == (RunState.LOST, 5)
    assert "5 attempts" in str(ends["baseline"].reason)
    assert ends["eager"].state is RunState.CANCELLED
    assert "no baseline to compare with: its process and" in str(ends["eager"].reason)


def test_runs_that_took_turns_all_begin_anew_if_one_of_them_has_no_checkpoint(
    data_dir: DataDir,
) -> None:
    runs = queued(data_dir, "eager")
    vanish(*runs.values())
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


def test_what_becomes_of_runs_that_vanished_with_their_supervisor(data_dir: DataDir) -> None:
    finished, stopped = queued(data_dir, "eager", "inductor"), queued(data_dir, "eager")
    cache = queued(data_dir, "eager", scenario="cache", cache=specs.CacheSpec(repeats=1, steps=2))
    vanish(*finished.values(), *stopped.values(), *cache.values())
    ExitRecords().write(finished["baseline"], RunState.FINISHED, "training is over", 0)
    leave_checkpoint(finished["inductor"])
    cancel(find_experiment(data_dir, stopped["eager"].read_spec().experiment_id))
    close_orphans(data_dir, ExitRecords())
    # Beside one that has finished none begins anew, and those with checkpoints go on.
    assert [*states_of(finished).values()] == [RunState.FINISHED, RunState.LOST, RunState.QUEUED]
    assert [run.has_checkpoint for run in finished.values()] == [False, False, True]
    assert [*states_of(stopped).values()] == [RunState.CANCELLED] * 2
    # The caches that a warm run began with are gone.
    assert [*states_of(cache).values()] == [RunState.QUEUED, RunState.QUEUED, RunState.LOST]


def test_a_claim_of_a_strangers_pid_is_lost_and_one_of_another_machine_is_left_alone(
    data_dir: DataDir,
) -> None:
    (here,), (elsewhere,) = (queued(data_dir).values() for _ in range(2))
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    gone = ProcessIdentity(pid=stranger.pid, started="another-boot/1")
    try:
        for run, host in ((here, os.uname().nodename), (elsewhere, "another")):
            run.write_claim(Claim(host=host, process=gone, supervisor=gone, time=time.time()))
        assert (here.state, elsewhere.state) == (RunState.LOST, RunState.ELSEWHERE)
        supervise(data_dir, FAKE_WORKER)
        assert stranger.poll() is None, "a stranger's process was killed"
        assert (here.state, elsewhere.state) == (RunState.FINISHED, RunState.ELSEWHERE)
    finally:
        stranger.kill()
        stranger.wait()


def test_a_warm_run_begins_with_the_caches_of_the_cold_one_and_nobody_else_does(
    data_dir: DataDir,
) -> None:
    """Though the folders came with compile caches, which are code of a stranger."""
    cache = specs.CacheSpec(repeats=3, steps=2)
    runs = queued(data_dir, "eager", scenario="cache", cache=cache)
    for run in runs.values():
        run.compile_cache.mkdir()
        (run.compile_cache / "stranger").touch()
    runs.pop("eager-cold-3").write_exit(Exit.now(RunState.FINISHED, "all steps done", 0))
    supervise(data_dir, FAKE_WORKER)
    caches = {
        label: event["found_in_cache"]
        for label, run in runs.items()
        for event in events(run, "phase")
        if event["phase"] == "waiting"
    }
    assert caches == {
        "baseline": [],
        "eager-cold-1": [],
        "eager-warm-1": ["eager-cold-1"],
        "eager-cold-2": [],
        "eager-warm-2": ["eager-cold-2"],
        "eager-warm-3": [],  # the cold one ended elsewhere
    }
    assert not any(run.compile_cache.exists() for run in runs.values())


def test_the_queue_is_worked_off_in_its_order_without_what_is_held_until_it_is_let_go(
    data_dir: DataDir,
) -> None:
    """A higher priority comes first, and a move by hand before it."""
    held, low, high, moved = (
        submit(data_dir, experiment(steps=10, priority=priority)) for priority in (0, 0, 5, -5)
    )
    queue_order.move(data_dir, moved)
    queue_order.hold(data_dir, held)
    order = [waiting.experiment_id for waiting in queue_order.startable(data_dir)]
    assert order == [moved, high, low]
    assert supervise(data_dir, FAKE_WORKER)

    def claimed(experiment_id: str) -> float | None:
        (run,) = find_experiment(data_dir, experiment_id).runs
        claim = run.read_claim()
        return claim and claim.time

    times = [claimed(key) or 0.0 for key in order]
    assert all(times) and times == sorted(times) and claimed(held) is None
    queue_order.pause(data_dir)
    queue_order.release(data_dir, held)
    assert supervise(data_dir, FAKE_WORKER) and claimed(held) is None
    queue_order.pause(data_dir, paused=False)
    assert supervise(data_dir, FAKE_WORKER) and claimed(held) is not None


def test_pages_show_only_what_is_so_and_a_changed_journal_is_noticed(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks at experiments, as pages do, while a supervisor works at them."""
    monkeypatch.setattr("tests.runner.supervision.witness.LOOK_SECONDS", 0.05)
    keys = [submit(data_dir, experiment("slow", steps=steps)) for steps in (20, 5)]
    witness = Witness(data_dir, dict(zip(keys, (20, 5), strict=True)))
    witness.start()
    wait_until(lambda: witness.num_looks > 0)
    supervise(data_dir, FAKE_WORKER)
    before = witness.num_looks
    wait_until(lambda: witness.num_looks > before + 1)
    assert witness.wrong == []
    first, second = ([states for _, states, _ in witness.seen[key]] for key in keys)
    assert second[0] == {"queued"}, "it waits for the first"
    assert first[-1] == second[-1] == {"finished"}
    assert any("running" in states for states in first)
    # Shown as finished, though a step of it is missing from the journal.
    run = run_dirs(data_dir, keys[0])["slow"]
    lines = run.events_file.read_text().splitlines(keepends=True)
    run.events_file.write_text("".join(line for line in lines if '"step":4,' not in line))
    wait_until(lambda: bool(witness.wrong))
    witness.stop()
    assert any("shown as finished after 19 steps" in sentence for sentence in witness.wrong)
