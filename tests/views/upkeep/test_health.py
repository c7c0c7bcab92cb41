"""`/healthz` reports the true state, also if it is bad."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from breakeven.runner.experiments.queue import submit
from breakeven.runner.experiments.queue_order import hold, pause
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.heartbeat import read_heartbeat
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.index.store import Store
from breakeven.views.upkeep import serving as state
from tests.helpers.journals import Recording, record_experiment
from tests.helpers.serving import served
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.heavy

HOLDER = """
import sys, time
from pathlib import Path
from breakeven.runner.files import FileLock
assert FileLock(Path(sys.argv[1])).try_acquire()
print("held", flush=True)
time.sleep(600)
"""
SECOND = "20261121-093016-000000-bbbb"


@pytest.fixture
def holder(folder: DataDir) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds the supervisor's lock."""
    command = [sys.executable, "-c", HOLDER, str(folder.supervisor_lock)]
    with subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def get(address: str) -> tuple[int, str, str]:
    """Status, type and text of an answer."""
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.headers["content-type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["content-type"], error.read().decode()


def test_a_served_dashboard_answers_probes(folder: DataDir) -> None:
    record_experiment(folder.runs)
    with served(folder, supervised=False) as (address, _server):
        # A machine at work answers before it has opened the index.
        wait_until(lambda: json.loads(get(f"{address}/healthz")[2])["runs"])
        status, kind, text = get(f"{address}/healthz")
        assert (status, kind) == (200, "application/json"), text
        content = json.loads(text)
        assert (content["status"], content["problems"]) == ("ok", [])
        assert content["runs"] == {"finished": 3} and content["experiments_waiting"] == 0
        assert content["ingest_age_seconds"] < 60 and not content["supervisor_alive"]
        assert 0 < content["disk_free_bytes"] < shutil.disk_usage(folder.path).total
        request = urllib.request.Request(f"{address}/healthz", headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request)
        # The first page has our styles, so that nothing jumps once they come.
        status, kind, text = get(f"{address}/launch")
        assert (status, kind) == (200, "text/html; charset=utf-8")
        assert text.count(".st-key-palette {") == 1


def test_counts_follow_runs_that_come_end_and_go_and_leave_out_the_examples(folder: DataDir):
    examples = folder.path / "examples"
    record_experiment(examples / "shipped", experiment_id="20261121-093010-000000-eeee")
    record_experiment(folder.runs)
    with Store.open(folder, examples=examples) as store:
        store.ingest_all()
        assert store.run_counts == {"finished": 3}
        waiting = submit(folder, ExperimentSpec(name="waits", backends=(), controls=0))
        store.ingest_all()
        assert store.run_counts == {"finished": 3, "queued": 1}
        assert [run.run_id for run in store.open_runs] == [f"{waiting}.baseline"]
        run = folder.run_dir(f"{waiting}.baseline")
        run.request_cancel()
        store.ingest_all()
        assert store.run_counts == {"finished": 3, "cancelled": 1}
        run.path.rename(folder.path / "elsewhere")
        store.ingest_all()
        assert store.run_counts == {"finished": 3}
    with Store.open(folder, examples=examples) as again:  # as the database has it
        again.ingest()
        assert again.run_counts == {"finished": 3}


def test_every_number_of_a_made_folder_is_what_counting_it_by_hand_gives(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "SOONEST_LOOK_SECONDS", 0.0)
    record_experiment(folder.runs)  # three runs
    this_process = ProcessIdentity.from_pid(os.getpid())
    Recording(folder.runs, "baseline", experiment_id=SECOND).claim(this_process).start()
    gone = Recording(folder.runs, "control", experiment_id=SECOND).claim(this_process).start()
    gone.end(RunState.FAILED)
    waiting = [
        submit(folder, ExperimentSpec(name=f"waits {number}", backends=(), controls=1))
        for number in range(3)
    ]
    hold(folder, waiting[1])
    pause(folder)
    state.look()
    seen = state.look()
    # Two runs of each of three experiments are queued; the second experiment is held.
    assert seen.runs == {"finished": 3, "running": 1, "failed": 1, "queued": 6}
    assert seen.experiments_waiting == 2 and not seen.supervisor_alive


def test_what_waits_without_a_supervisor_is_told_once_one_should_be_there(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "SOONEST_LOOK_SECONDS", 0.0)
    submit(folder, ExperimentSpec(name="waits"))
    assert state.look().is_healthy and state.look().experiments_waiting == 1
    monkeypatch.setattr(state, "STARTING_SECONDS", 0.0)
    unwell = state.look()
    assert not unwell.is_healthy and "no supervisor" in unwell.problems[0]
    pause(folder)
    assert state.look().is_healthy


def test_a_supervisor_that_was_stopped_is_told(folder: DataDir, holder: "subprocess.Popen[str]"):
    assert state.look().is_healthy and state.look().supervisor_alive
    long_ago = time.time() - 100
    os.utime(folder.supervisor_lock, (long_ago, long_ago))
    os.kill(holder.pid, signal.SIGSTOP)
    unwell = state.look()
    assert not unwell.is_healthy and "no sign for" in unwell.problems[0]
    wait_until(lambda: read_heartbeat(folder).is_stopped)
    holder.kill()
    holder.wait()
    assert state.look().is_healthy and not state.look().supervisor_alive


def test_a_full_disk_and_pages_that_grow_old_are_told_and_a_question_costs_no_look_at_old_runs(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(folder.runs)
    assert state.look().is_healthy
    opened: list[str] = []
    sys.addaudithook(
        lambda name, arguments: (
            opened.append(str(arguments[0]))
            if name in ("open", "os.listdir", "os.scandir")
            else None
        )
    )
    monkeypatch.setattr(state, "SOONEST_LOOK_SECONDS", 3600.0)
    assert state.look().runs == {str(RunState.FINISHED): 3}
    assert not [file for file in opened if str(folder.runs) in file]
    monkeypatch.setattr(state, "QUEUES_FROM_BYTES", 10**18)
    assert "are free on the disk of the data folder" in state.look().problems[0]
    monkeypatch.undo()
    monkeypatch.setenv("BREAKEVEN_DATA", str(folder.path))
    monkeypatch.setattr(state, "SOONEST_LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(state, "MAX_AGE_SECONDS", 0.0)
    assert "the data on pages are" in state.look().problems[0]
