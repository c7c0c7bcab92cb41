"""`breakeven tune`, from the command to the confirmed answer; only its runs are fake."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import breakeven.runner.commands.waiting
from breakeven.runner.arguments.lengths import read_budget
from breakeven.runner.commands.cli import main
from breakeven.runner.commands.waiting import Storage
from breakeven.runner.experiments.queue import experiments
from breakeven.runner.experiments.unconfirmed_searches import STOPPED, TOO_SHORT, UNCONFIRMED
from breakeven.runner.files import is_locked
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import each_event
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.supervision.search import Search
from breakeven.runner.supervision.supervisor import supervise
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.helpers.in_process import torch_asked_here
from tests.helpers.machine import MACHINE, keep
from tests.helpers.waiting import wait_until
from tests.runner.supervision.supervised import commands_here

pytestmark = pytest.mark.heavy


@pytest.fixture(autouse=True)
def supervised_here() -> Iterator[pytest.MonkeyPatch]:
    """Further patches, which end before those of the supervisor."""
    with torch_asked_here(), commands_here(FAKE_WORKER) as patch:
        yield patch


def blocks(run: RunDir) -> int:
    """The number of recorded blocks."""
    return sum(event["kind"] == "block" for event in each_event(run.events_file))


def tuned(folder: Path, *options: str) -> tuple[int, list[str]]:
    """Exit status, and the scenarios of the experiments that were made."""
    data_dir = DataDir(folder)
    keep(data_dir, MACHINE)
    status = main(
        [
            "tune",
            f"--data-folder={folder}",
            "--device=cpu",
            "--train-samples=50",
            "--batch-size=1",
            "--block-steps=2",
            "--set=speed.batches=2",
            "--set=speed.warm_up_blocks=1",
            "--set=more_controls=0",
            *options,
        ]
    )
    return status, [experiment.spec.scenario for experiment in experiments(data_dir)]


def test_the_answer_is_confirmed_for_the_planned_length(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], supervised_here: pytest.MonkeyPatch
) -> None:
    supervised_here.setattr("breakeven.runner.supervision.search.CONFIRMING_SHARE", 0.0)
    status, scenarios = tuned(
        tmp_path, "--backends=none:optimizer=fused", "--plan=5000", "--budget=60s"
    )
    shown = capfd.readouterr().out
    # What the fake runs record is too little to show parity.
    assert (status, scenarios) == (4, ["tune", "train"])
    assert "1 candidate for a training of 5,000 steps; the search takes at most 1 min" in shown
    assert "to confirm the answer" in shown
    assert "Use none-fused for 5,000 steps" in shown
    assert "torch.optim.Adam(model.parameters(), ..., fused=True)" in shown


@pytest.mark.slow
def test_the_command_waits_for_a_supervisor_that_takes_long_to_queue_the_confirmation(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], supervised_here: pytest.MonkeyPatch
) -> None:
    confirm = Search.confirm
    supervisors = []

    def late(*arguments: Any) -> str | None:
        time.sleep(2)
        return confirm(*arguments)

    def ensure_supervisor(data_dir: DataDir) -> None:
        if not supervisors:
            supervisors.append(threading.Thread(target=supervise, args=(data_dir, FAKE_WORKER)))
            supervisors[0].start()
            wait_until(lambda: is_locked(data_dir.supervisor_lock))

    patch = supervised_here
    patch.setattr(Search, "confirm", late)
    patch.setattr("breakeven.runner.supervision.search.CONFIRMING_SHARE", 0.0)
    # As on a machine without duckdb, where no table comes between search and confirmation.
    patch.setattr(Storage, "run", lambda *arguments: 0)
    patch.setattr(breakeven.runner.commands.waiting, "ensure_supervisor", ensure_supervisor)
    _, scenarios = tuned(tmp_path, "--backends=none:optimizer=fused", "--plan=5000", "--budget=60s")
    supervisors[0].join()
    assert scenarios == ["tune", "train"]
    assert "to confirm the answer" in capfd.readouterr().out
    assert all(
        run.state is RunState.FINISHED
        for experiment in experiments(DataDir(tmp_path))
        for run in experiment.runs
    )


def test_ctrl_c_stops_all_runs_and_leaves_the_best_so_far_unconfirmed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], supervised_here: pytest.MonkeyPatch
) -> None:
    data_dir = DataDir(tmp_path)

    def press_ctrl_c() -> None:
        """Once the first candidate has won, when the second one has joined, which is as fast."""
        wait_until(lambda: any(blocks(run) >= 15 for run in runs("eager-fused")))
        os.kill(os.getpid(), signal.SIGINT)

    def runs(*labels: str) -> list[RunDir]:
        known = [run for experiment in experiments(data_dir) for run in experiment.runs]
        return [run for run in known if run.run_id.partition(".")[2] in labels]

    threads = [
        threading.Thread(target=supervise, args=(data_dir, FAKE_WORKER)),
        threading.Thread(target=press_ctrl_c),
    ]
    supervised_here.setattr(
        breakeven.runner.commands.waiting,
        "ensure_supervisor",
        lambda data_dir: [thread.start() for thread in threads],
    )
    ended = tuned(tmp_path, "--backends=none:optimizer=fused,eager:optimizer=fused", "--plan=5000")
    for thread in threads:
        thread.join()
    assert ended == (1, ["tune"])
    shown = capfd.readouterr().out
    assert STOPPED in shown and UNCONFIRMED not in shown
    assert "Use none-fused for 5,000 steps" in shown
    everyone = runs("baseline", "control", "none-fused", "eager-fused")
    assert [run.state for run in everyone] == 4 * [RunState.CANCELLED]


@pytest.mark.slow
def test_without_a_gain_the_answer_is_to_leave_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, scenarios = tuned(tmp_path, "--backends=eager", "--plan=2 epochs")
    assert (status, scenarios) == (0, ["tune"])
    shown = capfd.readouterr().out
    assert UNCONFIRMED in shown and "Do not compile for 100 steps" in shown
    (search,) = experiments(DataDir(tmp_path))
    assert search.spec.tune.steps == 100  # two epochs of 50 samples, one by one


def test_a_script_that_ends_before_its_search_starts_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of 4 steps in blocks of 2; without a gain a candidate ends after 60 rounds."""
    script = tmp_path / "project" / "train.py"
    script.parent.mkdir()
    script.write_text("import breakeven")
    keep(DataDir(tmp_path), MACHINE)
    options = [f"--data-folder={tmp_path}", "--set=script.steps=4", "--block-steps=2"]
    assert main(["tune", *options, "--device=cpu", "--backends=eager", str(script)]) == 0
    shown = capfd.readouterr().out
    assert UNCONFIRMED in shown and TOO_SHORT not in shown
    assert "for a training of 4 steps" in shown
    (search,) = experiments(DataDir(tmp_path))
    assert all(blocks(run) > 60 for run in search.runs)


def test_a_length_in_hours_and_a_budget_without_a_unit_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert tuned(tmp_path, "--plan=3h") == (2, [])
    assert "use steps, epochs, samples or tokens" in capfd.readouterr().err
    assert [read_budget(text) for text in ("90s", "1.5m", "2h")] == [90, 90, 7200]
    with pytest.raises(ValueError, match="is not a time"):
        read_budget("90")


def test_arms_are_no_candidates_of_a_search(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        tuned(tmp_path, "--arm=low=--lr 1")
    assert "`breakeven run --arm NAME='CHANGES' --plan LENGTH -- COMMAND`" in capfd.readouterr().err
