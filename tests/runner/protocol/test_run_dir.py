import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from breakeven.runner.errors import InvalidRunFolder, InvalidSpec, NotEnoughDisk
from breakeven.runner.experiments.queue import new_experiment_id, submit
from breakeven.runner.files import FileLock, is_locked
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import Claim, Exit, RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec

HERE = ProcessIdentity.from_pid(os.getpid())
GONE = ProcessIdentity(pid=os.getpid(), started="another boot/1")


@pytest.fixture
def run(data_dir: DataDir) -> RunDir:
    submit(data_dir, ExperimentSpec(name="trial", backends=(), controls=0))
    (run,) = data_dir.run_dirs()
    return run


def claim(process: ProcessIdentity, supervisor: ProcessIdentity, host: str = "") -> Claim:
    host = host or socket.gethostname()
    return Claim(host=host, process=process, supervisor=supervisor, time=1.8e9)


@pytest.mark.parametrize(
    ("prepare", "state"),
    [
        (lambda run: None, RunState.QUEUED),
        (lambda run: run.request_cancel(), RunState.CANCELLED),
        (lambda run: run.write_claim(claim(HERE, HERE)), RunState.RUNNING),
        (lambda run: run.write_claim(claim(GONE, HERE)), RunState.RUNNING),
        (lambda run: run.write_claim(claim(GONE, GONE)), RunState.LOST),
        (lambda run: run.write_claim(claim(GONE, GONE, "elsewhere")), RunState.ELSEWHERE),
        (lambda run: run.write_exit(Exit.now(RunState.TIMEOUT, "too long", -15)), RunState.TIMEOUT),
    ],
)
def test_the_state_follows_from_the_files(
    run: RunDir, prepare: Callable[[RunDir], None], state: RunState
) -> None:
    prepare(run)
    assert run.state is state


@pytest.mark.heavy
def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    identity = ProcessIdentity.from_pid(child.pid)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert identity.started and not identity.is_alive
    child.wait()


def test_a_copied_folder_under_another_name_is_refused(run: RunDir) -> None:
    copy = run.path.with_name("copy-of-it")
    shutil.copytree(run.path, copy)
    with pytest.raises(InvalidRunFolder, match="rename its folder"):
        RunDir(copy).read_spec()


def test_a_specification_that_is_no_json_is_named(run: RunDir) -> None:
    run.spec_file.write_text("{oops")
    with pytest.raises(InvalidSpec, match=r"spec\.json.*is not valid JSON"):
        run.read_spec()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"state": "asleep"}', "{"])
def test_a_run_whose_exit_record_is_none_is_lost_and_the_reason_names_the_file(
    run: RunDir, content: str
) -> None:
    run.exit_file.write_text(content)
    assert run.state is RunState.LOST and "exit.json" in str(run.status.reason)


def test_the_log_tail_is_the_end_of_the_output(run: RunDir) -> None:
    assert run.log_tail() == ""
    run.output_file.write_text("".join(f"line {number}\n" for number in range(1000)))
    assert run.log_tail(2) == "line 998\nline 999"


def test_nothing_is_queued_on_a_disk_without_room(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=5_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(NotEnoughDisk, match="5 MB free; an experiment needs 200 MB"):
        submit(data_dir, ExperimentSpec(name="trial"))
    assert list(data_dir.runs.iterdir()) == []


def test_ids_sort_by_time_of_submission() -> None:
    ids = [new_experiment_id() for _ in range(200)]
    assert ids == sorted(ids) and len(set(ids)) == 200


@pytest.mark.heavy
def test_a_lock_is_seen_by_others_and_ends_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    code = (
        "import sys; from pathlib import Path; from breakeven.runner.files import FileLock\n"
        "assert FileLock(Path(sys.argv[1])).try_acquire(); print('held', flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    assert is_locked(path) and not FileLock(path).try_acquire()
    holder.kill()
    holder.communicate()
    assert not is_locked(path)


def test_a_checkpoint_of_several_ranks_that_was_not_written_to_its_end_is_none(run: RunDir) -> None:
    partial = run.checkpoints / "step-00000020.tmp"
    partial.mkdir(parents=True)
    (partial / "__0_0.distcp").write_bytes(b"half")
    assert not run.has_checkpoint
    complete = run.checkpoints / "step-00000010.sharded"
    complete.mkdir()
    run.drop_leftovers()
    assert run.has_checkpoint and list(run.checkpoints.iterdir()) == [complete]
