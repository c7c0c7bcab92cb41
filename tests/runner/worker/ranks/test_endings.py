"""Ranks of one machine talk to nobody in the network; however a run of several ends, it does so in
bounded time, with its reason, leaving nobody behind."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.experiments.queue import submit
from breakeven.runner.processes import end_group, start_in_own_session
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.exit_status import WorkerExit
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.protocol.turns import TURN_PIPES_VARIABLE, Turn, TurnPost
from breakeven.runner.specs.experiment import TrainingSpec
from tests.helpers.loop import FAULTS, NET, experiment
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.heavy
RANK = "breakeven.runner.worker.ranks.rank"
LISTENS = "0A"
LOOPBACK = re.compile("0100007F|0{24}01000000|0{16}FFFF00000100007F")
"""127.0.0.1 and ::1 as Linux's table of sockets has them, words of the machine's order."""


class Work:
    """The process of a run of two ranks that has a turn of very many steps."""

    def __init__(self, folder: DataDir) -> None:
        spec = replace(
            experiment(block_steps=10_000, **NET),
            devices=("cpu", "cpu"),
            cpu_threads=1,
            data=replace(NET["data"], num_train_samples=400, num_eval_samples=4),
            training=TrainingSpec(batch_size=4, epochs=1000),
        )
        allowed = {CODE_VARIABLE: str(FAULTS)}
        with mock.patch.dict(os.environ, allowed):
            experiment_id = submit(folder, spec)
        self.run: RunDir = folder.run_dir(f"{experiment_id}.baseline")
        self.post = TurnPost()
        read_fd, write_fd = self.post.run_fds
        self.process = start_in_own_session(
            [sys.executable, "-m", "breakeven.runner.worker", str(self.run.path)],
            output=self.run.output_file,
            env={**os.environ, **allowed, TURN_PIPES_VARIABLE: f"{read_fd},{write_fd}"},
            pass_fds=(read_fd, write_fd),
        )
        self.post.close_run_ends()
        self._is_set_up = False

    def set_up(self) -> None:
        """Waits until all ranks are, who say so once."""
        if not self._is_set_up:
            wait_until(lambda: "ready" in self.post.read())
        self._is_set_up = True

    def begin(self) -> None:
        """Gives all ranks the turn once they are set up, and lets them begin their steps."""
        self.set_up()
        self.post.give(Turn(round=0, position=0))
        time.sleep(0.2)
        assert self.process.poll() is None and len(self.ranks) == 2

    @property
    def ranks(self) -> list[int]:
        """Process ids, in the order of their ranks."""
        pids = processes(f"{RANK} {self.run.path}")
        return sorted(pids, key=lambda pid: environment(pid).get("RANK", ""))

    def errors(self) -> list[dict[str, object]]:
        return [e for e in read_events(self.run.events_file)[0] if e["kind"] == "error"]


def processes(argument: str) -> list[int]:
    """Of those that were started with it, stopped ones as well, but no zombies."""
    command = ["ps", "-ww", "-eo", "pid=,stat=,args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    return [int(pid) for pid, state, args in rows if argument in args and state[0] != "Z"]


def environment(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    with ended(Work(DataDir(tmp_path))) as work:
        yield work


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    """One that is looked at from outside before a rank of it is killed."""
    with ended(Work(DataDir(tmp_path_factory.mktemp("looked_at")))) as work:
        yield work


@contextmanager
def ended(work: Work) -> Iterator[Work]:
    """Nothing of it is left afterwards."""
    yield work
    for pid in processes(str(work.run.path)):
        os.kill(pid, signal.SIGKILL)
    end_group(work.process)


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's table of sockets")
def test_a_run_on_several_devices_listens_to_nobody_outside(looked_at: Work) -> None:
    """A store of torch's listens to the network, and its agent runs what anybody puts there."""
    work = looked_at
    work.set_up()
    addresses = [address for pid in (work.process.pid, *work.ranks) for address in listening(pid)]
    assert addresses  # Ranks do find each other somehow.
    assert [address for address in addresses if not LOOPBACK.fullmatch(address)] == []
    for pid in work.ranks:  # Where the machine's own name leads to the network, too.
        variables = environment(pid)
        assert variables["GLOO_SOCKET_IFNAME"] == variables["NCCL_SOCKET_IFNAME"] == "lo"


def listening(pid: int) -> list[str]:
    """The addresses of a process's sockets that others may connect to."""
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    own = {link.removeprefix("socket:[").removesuffix("]") for link in links if "socket:" in link}
    rows = [
        row.split()
        for table in ("tcp", "tcp6")
        for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return [row[1].partition(":")[0] for row in rows if row[3] == LISTENS and row[9] in own]


def test_a_rank_that_is_killed_ends_the_run_with_its_reason(looked_at: Work) -> None:
    work = looked_at
    work.begin()
    os.kill(work.ranks[1], signal.SIGKILL)
    assert work.process.wait(PATIENCE_SECONDS) == WorkerExit.RANK_LOST
    (error,) = work.errors()
    assert error["rank"] == 1 and "rank 1: ended by signal SIGKILL" in str(error["message"])
    assert "rank 1 (cpu): rank 1: ended by signal SIGKILL" in work.run.log_tail()
    assert not processes(str(work.run.path))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["asked to stop", "without a supervisor"])
def test_a_stop_in_the_middle_of_a_block_ends_all_ranks_soon(work: Work, how: str) -> None:
    work.begin()
    if how == "asked to stop":
        os.kill(work.process.pid, signal.SIGTERM)
        assert work.process.wait(5) == WorkerExit.CANCELLED
    else:
        work.post.close()
        assert work.process.wait(PATIENCE_SECONDS) == WorkerExit.CANCELLED
    assert not processes(str(work.run.path)) and not work.errors()


@pytest.mark.slow
def test_a_rank_that_is_stopped_counts_as_lost_and_is_killed(work: Work) -> None:
    work.begin()
    os.kill(work.ranks[1], signal.SIGSTOP)
    assert work.process.wait(40) == WorkerExit.RANK_LOST
    (error,) = work.errors()
    assert error["rank"] == 1 and "was silent for 20 s" in str(error["message"])
    assert not processes(str(work.run.path))


@pytest.mark.slow
def test_no_rank_outlives_the_process_of_its_run_not_even_a_stopped_one(work: Work) -> None:
    work.begin()
    os.kill(work.ranks[1], signal.SIGSTOP)
    os.kill(work.process.pid, signal.SIGKILL)
    wait_until(lambda: not processes(str(work.run.path)))


@pytest.mark.slow
def test_what_one_rank_raises_is_the_reason_and_not_what_the_others_say(tmp_path: Path) -> None:
    hook = tmp_path / "hook.py"
    hook.write_text(
        "import os\n"
        "class Fails:\n"
        "    def batch_end(self, state):\n"
        "        if state.step == 2 and os.environ['RANK'] == '1':\n"
        "            raise ValueError('only here')\n"
    )
    folder = DataDir(tmp_path / "data")
    spec = experiment(devices=("cpu", "cpu"), cpu_threads=1, callbacks=(f"{hook}:Fails",))
    run = folder.run_dir(f"{submit(folder, spec)}.baseline")
    command = [sys.executable, "-m", "breakeven.runner.worker", str(run.path)]
    allowed = {**os.environ, "BREAKEVEN_CODE": str(tmp_path)}
    done = subprocess.run(
        command,
        cwd=PROJECT_ROOT,
        env=allowed,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == WorkerExit.FAILED, done.stderr[-2000:]
    (error,) = [e for e in read_events(run.events_file)[0] if e["kind"] == "error"]
    assert (error["rank"], error["error"], error["message"]) == (1, "ValueError", "only here")
    ended = run.read_exit()
    assert isinstance(ended, Exit) and ended.state is RunState.FAILED
