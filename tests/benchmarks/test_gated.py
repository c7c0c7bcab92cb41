"""Breakeven's half of the comparison with the harness: it compiles, waits, and then times."""

import threading

import pytest

from benchmarks.harness_figures import processes
from runner.folders.data_dir import DataDir
from runner.folders.queue import find_experiment, submit
from runner.folders.states import RunState
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.runner.supervision.test_supervisor import events, experiment

pytestmark = pytest.mark.heavy


def test_nothing_is_timed_before_it_may_and_then_all_of_it(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "WORKER_COMMAND", FAKE_WORKER)
    found = find_experiment(data_dir, submit(data_dir, experiment("eager")))
    gated = processes._Gated(data_dir, found)
    thread = threading.Thread(target=gated.run)
    thread.start()
    assert gated.compiled.wait(60)
    assert {block["round"] for run in found.runs for block in events(run, "block")} == {0}
    gated.may_time.set()
    thread.join()
    assert {run.state for run in found.runs} == {RunState.FINISHED}
