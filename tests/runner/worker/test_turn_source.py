"""The journal says whose turn it is, before the block and after it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.exit_status import WorkerExit
from breakeven.runner.protocol.turns import TURN_PIPES_VARIABLE, Turn, TurnPost
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.turn_source import Turns
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.views.shared import words
from tests.helpers.journals import EXPERIMENT_ID, Recording
from tests.helpers.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.heavy


class TwoTurns:
    """A supervisor's two turns, then a request to stop."""

    def __init__(self) -> None:
        self.left = [Turn(round=0, position=0), Turn(round=1, position=0)]
        self.finished: list[bool] = []

    def wait(self) -> Turn | None:
        return self.left.pop(0) if self.left else None

    def done(self, *, finished: bool) -> None:
        self.finished.append(finished)


def phases(run: Recording) -> list[str]:
    events, _ = read_events(run.run.events_file, 0)
    return [event["phase"] for event in events if event["kind"] == "phase"]


def test_a_turn_is_written_down_while_it_lasts_and_so_is_its_end(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "baseline")
    inner = TwoTurns()
    turns = Turns(inner, log=run.log)
    assert turns.wait() == Turn(round=0, position=0)
    assert phases(run) == ["training"], "on the disk before the block begins"
    turns.done(finished=False)
    assert phases(run) == ["training", "waiting"]
    turns.wait()
    turns.done(finished=True)
    assert turns.wait() is None
    assert phases(run) == ["training", "waiting", "training"], "that it is done, the run says"
    assert inner.finished == [False, True]


def test_whoever_watches_sees_one_run_that_has_the_turn(data_dir: DataDir) -> None:
    runs = [Recording(data_dir.runs, label).claim() for label in ("baseline", "control")]
    for run in runs:
        run.log.append("phase", phase="waiting")
    log = EventLog(runs[1].run.events_file)
    Turns(TwoTurns(), log=log).wait()
    log.close()
    runs[0].log.flush()
    with Store.in_memory(data_dir) as store:
        listed = queries.list_runs(store, EXPERIMENT_ID).assign(state="running")
    assert [words.has_turn(run) for run in listed.itertuples()] == [False, True]


DEAF = """
import os, sys, time
from pathlib import Path
from breakeven.runner.protocol.turns import TurnTaker
from breakeven.runner.worker.turn_source import open_turns

turns = open_turns(lambda: Path(sys.argv[1]).write_text("saved"))
print("listening", flush=True)
while True:  # as a compilation that looks at nothing
    time.sleep(0.05)
"""


def test_a_run_that_does_not_look_up_leaves_by_itself_and_saves_what_it_has(tmp_path: Path) -> None:
    post = TurnPost()
    fds = post.run_fds
    environment = {**os.environ, TURN_PIPES_VARIABLE: f"{fds[0]},{fds[1]}"}
    saved = tmp_path / "saved"
    process = subprocess.Popen(
        [sys.executable, "-c", DEAF, str(saved)],
        env=environment,
        pass_fds=fds,
        cwd=PROJECT_ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    post.close_run_ends()
    assert process.stdout is not None and process.stdout.readline() == "listening\n"
    process.terminate()
    assert process.wait(PATIENCE_SECONDS) == WorkerExit.CANCELLED
    assert saved.read_text() == "saved"
    process.stdout.close()
    post.close()
