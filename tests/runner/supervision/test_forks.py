"""Runs that are forked from a process which has imported what they need."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from breakeven.runner.experiments.queue import submit
from breakeven.runner.machine.placement import Place
from breakeven.runner.processes import RUN_VARIABLE, members
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.exit_status import WorkerExit
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs import experiment as specs
from breakeven.runner.supervision import fork_server
from breakeven.runner.supervision.fork_server import ForkServer
from breakeven.runner.supervision.supervisor import WORKER_COMMAND, supervise
from tests.helpers.loop import NET
from tests.helpers.waiting import wait_until
from tests.runner.supervision import test_supervisor as fake
from tests.runner.supervision.supervised import impatience as impatience
from tests.runner.supervision.supervised import supervisor_of as supervisor_of

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not ForkServer.is_possible(), reason="runs are forked on Linux alone"),
]
SERVER = "breakeven.runner.supervision.fork_server"
FAULTY = """
import os, sys, threading, time
from breakeven.runner.worker import forking
from tests.helpers import fake_worker
def fail(like):
    {fault}
fake_worker.import_nothing = fail
sys.exit(fake_worker.main())
"""
"""A fake worker whose process for forks has a fault."""
ANYWHERE = Place(devices=("cpu",), cpus=frozenset())


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[ForkServer]:
    """The processes for forks, as they start."""
    started: list[ForkServer] = []

    class Watched(ForkServer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            started.append(self)

    monkeypatch.setattr(f"{fake.SCHEDULER}.ForkServer", Watched)
    return started


@contextmanager
def without_forks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForkServer, "is_possible", lambda: False)
        yield


def are_forked(runs: dict[str, RunDir]) -> dict[str, bool]:
    claims = {label: run.read_claim() for label, run in runs.items()}
    return {label: claim is not None and claim.is_forked for label, claim in claims.items()}


def pid_of(run: RunDir) -> int:
    claim = run.read_claim()
    assert claim is not None
    return claim.process.pid


def losses(run: RunDir) -> list[float]:
    return [step["loss"] for step in fake.events(run, "step")]


# --- What the system and the record say of a forked run.


def seen_from_outside(run: RunDir) -> dict[str, Any]:
    """What the system tells of a run's process, with `PID` for its number."""
    pid = pid_of(run)
    entry = Path(f"/proc/{pid}")
    status = dict(line.split(":\t", 1) for line in (entry / "status").read_text().splitlines())
    variables = dict(
        variable.split("=", 1)
        for variable in (entry / "environ").read_text().split("\0")
        if "=" in variable
    )
    return {
        "arguments": (entry / "cmdline").read_text().rstrip("\0").split("\0")[1:],
        "run folder": variables[RUN_VARIABLE],
        "parent": int(status["PPid"]),
        "signals": [status[name] for name in ("SigBlk", "SigIgn", "SigCgt")],
        "group, session": ["PID" if os.getpgid(pid) == pid else "", os.getsid(pid) == pid],
        "files": [os.readlink(entry / "fd" / str(number)) for number in range(3)],
        "pipes": sum(os.readlink(file).startswith("pipe:") for file in (entry / "fd").iterdir()),
        "folder": os.readlink(entry / "cwd"),
        "limits": (entry / "limits").read_text(),
        "cpus": status["Cpus_allowed"],
        "score": (entry / "oom_score_adj").read_text(),
        "group of resources": (entry / "cgroup").read_text(),
    }


def while_it_runs(data_dir: DataDir) -> tuple[RunDir, dict[str, Any]]:
    """A run, and what is seen of it from outside while it hangs in its first block."""
    runs = fake.queued(data_dir, "hang")
    with fake.supervised(data_dir, lambda: bool(fake.events(runs["baseline"], "block"))):
        wait_until(lambda: bool(fake.events(runs["hang"], "phase")))
        seen = seen_from_outside(runs["hang"])
        fake.cancel_all(data_dir)
    assert are_forked(runs)["hang"] == are_forked(runs)["baseline"]
    return runs["hang"], seen


def test_a_forked_run_looks_like_one_that_started_afresh(tmp_path: Path) -> None:
    forked_run, forked = while_it_runs(DataDir(tmp_path / "forked"))
    with without_forks():
        fresh_run, fresh = while_it_runs(DataDir(tmp_path / "fresh"))
    claims = [run.read_claim() for run in (forked_run, fresh_run)]
    assert [claim is not None and claim.is_forked for claim in claims] == [True, False]
    for run, seen in ((forked_run, forked), (fresh_run, fresh)):
        assert seen.pop("arguments") == ["-m", "tests.helpers.fake_worker", str(run.path)]
        assert Path(seen.pop("run folder")) == run.path
        output = str(run.output_file)
        assert seen.pop("files") == ["/dev/null", output, output]
        assert seen["parent"] == os.getpid()
    assert forked == fresh


SMALL: dict[str, Any] = {
    "data": specs.DataSpec(num_train_samples=24, num_eval_samples=8, sequence_length=8),
    "training": specs.TrainingSpec(batch_size=4, seed=3),
    "block_steps": 2,
    "profile_steps": 0,
    "more_controls": 0,
}
OF_THE_FOLDER = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def test_a_real_forked_run_computes_what_a_fresh_process_computes(
    data_dir: DataDir, servers: list[ForkServer]
) -> None:
    """Losses are equal bit for bit, and so is what the journal says of machine and workload."""
    spec = fake.experiment("none:optimizer=foreach", **SMALL)
    forked = fake.run_dirs(data_dir, submit(data_dir, spec))
    supervise(data_dir)
    assert fake.states_of(forked) == dict.fromkeys(forked, RunState.FINISHED)
    assert are_forked(forked) == dict.fromkeys(forked, True)
    assert [server.has_exited for server in servers] == [True]
    fresh = fake.run_dirs(data_dir, submit(data_dir, spec))["baseline"]
    subprocess.run([*WORKER_COMMAND, fresh.path], cwd=PROJECT_ROOT, check=True)
    assert len(losses(fresh)) == 6
    assert losses(forked["baseline"]) == losses(forked["none-foreach"]) == losses(fresh)
    for kind in ("environment", "workload", "evaluation"):
        first, second = (fake.events(run, kind) for run in (forked["baseline"], fresh))
        for event in (*first, *second):
            variables = event.get("variables", {})
            for name in ("time", "seconds", "devices", "withheld_variables"):
                event.pop(name, None)
            for name in [*variables]:
                if name in OF_THE_FOLDER:
                    assert "baseline" in variables.pop(name)
        assert first == second


def test_the_first_fork_began_with_the_import_so_that_the_time_of_the_experiment_has_it(
    data_dir: DataDir,
) -> None:
    run = fake.queued(data_dir, "eager")["eager"]
    began = time.time()
    server = ForkServer(run, fake.FAKE_WORKER, ANYWHERE)
    wait_until(lambda: not server.is_loading)
    loaded = time.time()
    forks = [server.fork(), server.fork()]
    assert forks[0] is not None and began <= forks[0].since < loaded
    assert forks[1] is not None and forks[1].since > loaded
    for fork in forks:
        assert fork is not None
        fork.post.close()
        fork.process.wait()
    server.discard()


# --- Where runs start afresh.


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("threading.Thread(target=time.sleep, args=[60], daemon=True).start()", "2 threads"),
        ("forking.HARMLESS_DEVICES = ()", "opened /dev/null"),
        ("1 / 0", "ZeroDivisionError"),
        pytest.param("os._exit(3)", "has ended", marks=pytest.mark.slow),
        pytest.param("time.sleep(600)", "imported for longer than 0.3 s", marks=pytest.mark.slow),
        pytest.param(
            "forking._forked = lambda: time.sleep(600)", "timed out", marks=pytest.mark.slow
        ),
        pytest.param("forking._forked = lambda: os._exit(3)", "has ended", marks=pytest.mark.slow),
        pytest.param(
            "forking._forked = lambda: 1", "process 1 was not adopted", marks=pytest.mark.slow
        ),
        ("forking._forked = lambda: None", "it died at once"),
    ],
)
def test_runs_start_afresh_if_a_process_cannot_be_forked_safely(
    data_dir: DataDir,
    monkeypatch: pytest.MonkeyPatch,
    servers: list[ForkServer],
    fault: str,
    why: str,
) -> None:
    said: list[str] = []
    log = SimpleNamespace(info=lambda text, *values: said.append(text % values))
    monkeypatch.setattr(fork_server, "log", log)
    monkeypatch.setattr(f"{SERVER}.FORKING_SECONDS", 0.3)
    if "longer" in why:
        monkeypatch.setattr(f"{SERVER}.LOADING_SECONDS", 0.3)
    runs = fake.queued(data_dir, "eager")
    supervise(data_dir, [sys.executable, "-c", FAULTY.format(fault=fault)])
    assert fake.states_of(runs) == dict.fromkeys(runs, RunState.FINISHED)
    assert are_forked(runs) == dict.fromkeys(runs, False)
    assert [server.has_exited for server in servers] == [True]
    assert len(said) == 1 and why in said[0]
    assert not [*members(data_dir.runs)]


def test_a_thread_that_begins_later_stops_further_forks(
    data_dir: DataDir, servers: list[ForkServer]
) -> None:
    """Here after the first fork."""
    fault = (
        "fork = forking._forked\n"
        "    def forked():\n"
        "        process = fork()\n"
        "        if process: threading.Thread(target=time.sleep, args=[60], daemon=True).start()\n"
        "        return process\n"
        "    forking._forked = forked"
    )
    runs = fake.queued(data_dir, "eager", "swift")
    supervise(data_dir, [sys.executable, "-c", FAULTY.format(fault=fault)])
    assert fake.states_of(runs) == dict.fromkeys(runs, RunState.FINISHED)
    assert sorted(are_forked(runs).values()) == [False, False, True]


def changed(**fields: Any) -> specs.ExperimentSpec:
    return replace(fake.experiment("eager"), **fields)


@pytest.mark.parametrize(
    ("spec", "may_fork"),
    [
        (changed(), True),
        (changed(backends=("inductor", "none:optimizer=fused")), True),
        (changed(**NET), False),
        (changed(backends=("package.module:backend",)), False),
        (changed(environments=("other=/opt/python",)), False),
        (changed(keep_trace=True), False),
        (changed(devices=("cuda:0", "cuda:1"), training=specs.TrainingSpec(batch_size=2)), False),
        (
            changed(
                task="script",
                model=specs.ModelSpec(source="script:/home/me/train.py"),
                data=specs.DataSpec(source="script"),
                script=specs.ScriptSpec(steps=100),
            ),
            False,
        ),
    ],
)
def test_only_runs_of_built_in_tasks_on_one_device_are_forked(
    spec: specs.ExperimentSpec, may_fork: bool
) -> None:
    assert spec.may_fork_runs == may_fork


def test_one_run_alone_starts_afresh(data_dir: DataDir, servers: list[ForkServer]) -> None:
    runs = fake.queued(data_dir, "eager")
    runs["baseline"].request_cancel()
    runs["baseline"].write_exit(fake.Exit.now(RunState.CANCELLED, "stopped", None))
    supervise(data_dir, fake.FAKE_WORKER)
    assert servers == [] and not are_forked(runs)["eager"]


# --- Deaths.


@pytest.mark.slow
def test_runs_train_on_after_their_server_dies_and_later_ones_start_afresh(
    data_dir: DataDir, servers: list[ForkServer]
) -> None:
    runs = fake.queued(data_dir, "slow", "eager", schedule="sequential")
    with fake.supervised(data_dir, lambda: bool(fake.events(runs["slow"], "step"))):
        os.kill(servers[0].process.pid, signal.SIGKILL)
    assert fake.states_of(runs) == dict.fromkeys(runs, RunState.FINISHED)
    assert are_forked(runs) == {"baseline": True, "slow": True, "eager": False}


def test_a_stop_leaves_no_process(data_dir: DataDir, servers: list[ForkServer]) -> None:
    """Neither of the run, nor of what it started, nor the process that was forked."""
    runs = fake.queued(data_dir, "child", "stubborn")
    with fake.supervised(data_dir, lambda: bool(fake.events(runs["stubborn"], "phase"))):
        wait_until(lambda: bool(fake.events(runs["child"], "block")))
        child = int((runs["child"].artifacts / "child").read_text())
        pids = {child, servers[0].process.pid, *map(pid_of, runs.values())}
        assert are_forked(runs) == dict.fromkeys(runs, True)
        fake.cancel_all(data_dir)
    assert not any(map(fake.is_alive, pids)) and not [*members(data_dir.runs)]
    ends = {label: run.read_exit() for label, run in runs.items()}
    assert ends["stubborn"] is not None and ends["stubborn"].returncode == -signal.SIGKILL
    assert ends["child"] is not None and ends["child"].state is RunState.CANCELLED


def test_a_forked_run_that_crashes_says_by_which_signal(data_dir: DataDir) -> None:
    runs = fake.ran(data_dir, "crash")
    ended = runs["crash"].read_exit()
    assert are_forked(runs)["crash"] and ended is not None
    assert (ended.returncode, ended.reason) == (-signal.SIGSEGV, "ended by signal SIGSEGV")


def test_nothing_outlives_a_killed_supervisor_and_the_next_one_goes_on(
    data_dir: DataDir, supervisor_of: Callable[[DataDir], "subprocess.Popen[bytes]"]
) -> None:
    runs = fake.queued(data_dir, "slow")
    supervisor = supervisor_of(data_dir)
    wait_until(lambda: bool(fake.events(runs["slow"], "step")))
    assert are_forked(runs) == dict.fromkeys(runs, True)
    folders = {member.run_folder.name.partition(".")[2] for member in members(data_dir.runs)}
    assert folders == {"baseline", "slow", "forks"}
    supervisor.kill()
    wait_until(lambda: not [*members(data_dir.runs)])
    supervise(data_dir, fake.FAKE_WORKER)
    assert fake.states_of(runs) == dict.fromkeys(runs, RunState.FINISHED)
    assert runs["slow"].attempt == 2


def test_a_supervisor_kills_a_forked_run_whose_supervisor_vanished(data_dir: DataDir) -> None:
    """It finds the run by what the system shows of it, although it notices nothing itself."""
    runs = fake.queued(data_dir, "eager")
    server = ForkServer(runs["eager"], fake.FAKE_WORKER, ANYWHERE)
    wait_until(lambda: not server.is_loading)
    fork = server.fork()
    assert fork is not None
    fork.post.assign(runs["eager"].path)
    wait_until(
        lambda: runs["eager"].path in [member.run_folder for member in members(data_dir.runs)]
    )
    supervise(data_dir, fake.FAKE_WORKER)
    assert fork.process.wait() == -signal.SIGKILL
    assert server.has_exited and fake.states_of(runs)["eager"] is RunState.FINISHED
    server.discard()


def test_a_fork_that_becomes_no_run_ends(data_dir: DataDir) -> None:
    run = fake.queued(data_dir, "eager")["eager"]
    server = ForkServer(run, fake.FAKE_WORKER, ANYWHERE)
    wait_until(lambda: not server.is_loading)
    fork = server.fork()
    assert fork is not None and not run.output_file.exists()
    fork.post.close()
    assert fork.process.wait() == WorkerExit.CANCELLED
    assert server.fork({"OMP_NUM_THREADS": "3"}) is None, "it was not started with this variable"
    another = server.fork()
    server.discard()
    assert another is not None and server.fork() is None
    assert fake.is_alive(another.process.pid), "the server's end ends no fork"
    another.post.close()
    assert another.process.wait() == WorkerExit.CANCELLED


def test_a_supervisor_adopts_nothing_but_forks(data_dir: DataDir) -> None:
    run = fake.queued(data_dir, "eager")["eager"]
    server = ForkServer(run, fake.FAKE_WORKER, ANYWHERE)
    wait_until(lambda: not server.is_loading)
    fork = server.fork()
    assert fork is not None
    orphan = (
        "import os; pid = os.fork(); pid and (print(pid, flush=True), os._exit(0)); os.read(0, 1)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", orphan], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None and parent.stdin is not None
    pid = int(parent.stdout.readline())
    parent.wait()
    assert not fork_server._is_child(pid) and fork_server._is_child(fork.process.pid)
    parent.stdin.close(), parent.stdout.close()
    fork.post.close()
    fork.process.wait()
    server.discard()
