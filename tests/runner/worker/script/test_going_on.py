"""Scripts that were killed go on from their own checkpoints, as if nothing had happened."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import breakeven
from breakeven.runner.checks.user_code import CODE_VARIABLE
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.events import read_events
from breakeven.runner.folders.queue import find_experiment, resume, submit
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.experiment import ScriptSpec
from breakeven.runner.supervision.exits import WorkerExit
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from tests.helpers.loop import of_kind
from tests.runner.worker.forked import work_on
from tests.runner.worker.script.scripts import NET, Ran, experiment, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]

KILLER = """
import os, signal, sys
from pathlib import Path

def strike(step):
    '''Ends this process in the first of the planned steps, which is one no more.'''
    plan = Path(sys.argv[1])
    steps = plan.read_text().split()
    if steps and abs(int(steps[0])) == step:
        plan.write_text(" ".join(steps[1:]))
        os.kill(os.getpid(), signal.SIGKILL if int(steps[0]) > 0 else signal.SIGTERM)

"""
PLAIN = """
import torch
from torch import nn
import breakeven

model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
model = breakeven.compile(model)
first = 0
saved = breakeven.load("last.pt")
if saved is not None:
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["done"]
for number in range(first, 40):
    points = torch.randn(8, 4)
    loss = nn.functional.cross_entropy(model(points), (points[:, 0] > 0).long())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    strike(number)
    breakeven.step(loss, samples=8)
    if number % 10 == 9:
        breakeven.evaluated(loss=float(loss))
    if number % 7 == 6:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        breakeven.save({**state, "done": number + 1}, "last.pt")
"""
FAILING = (
    NET
    + """
from pathlib import Path
model = breakeven.compile(model)
first = 0
saved = breakeven.load("last.pt")
if saved is not None:
    model.load_state_dict(saved["model"])
    first = saved["done"]
for number in range(first, 12):
    torch.manual_seed(number)
    breakeven.step(made(torch.randn(8, 4)), samples=8)
    if number == 4:
        breakeven.save({"model": model.state_dict(), "done": 5}, "last.pt")
    if number == 9 and not Path("failed").exists():
        Path("failed").touch()
        raise ValueError("by chance")
"""
)
"""Fails once, in its tenth step; there is one checkpoint, in the middle of its second block."""


def killed_at(folder: Path, plan: str) -> RunDir:
    """A run of the script that ends early in these steps, by -TERM in those that are negative, and
    goes on each time, until it is done."""
    folder.mkdir()
    (folder / "train.py").write_text(KILLER + PLAIN)
    (folder / "plan").write_text(plan)
    spec = experiment(
        folder / "train.py", backends=(), controls=0, block_steps=5, cpu_threads=1,
        script=ScriptSpec(arguments=(str(folder / "plan"),)),
    )  # fmt: skip
    data_dir = DataDir(folder / "data")
    found = find_experiment(data_dir, submit(data_dir, spec))
    (run,) = found.runs
    for step in plan.split():
        status = work_on(run, **{CODE_VARIABLE: str(folder)})
        if int(step) < 0:
            assert (status, run.state) == (WorkerExit.CANCELLED, RunState.CANCELLED)
            assert resume(found) == ["baseline"]
        else:
            assert status == -signal.SIGKILL, run.log_tail()
            run.reopen()
    assert work_on(run, **{CODE_VARIABLE: str(folder)}) == 0, run.log_tail()
    return run


def events(run: RunDir, kind: str) -> list[dict[str, Any]]:
    return of_kind(read_events(run.events_file)[0], kind)


def curve(run: RunDir) -> dict[int, float]:
    return {step["step"]: step["loss"] for step in events(run, "step")}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return killed_at(tmp_path_factory.mktemp("plain") / "killed", "23 -30")


def test_a_script_that_is_killed_and_then_cancelled_has_the_losses_of_one_that_was_not(
    killed: RunDir, tmp_path: Path
) -> None:
    """The cancelled one goes on in the folder that it left. Libraries: `test_libraries.py`."""
    whole = killed_at(tmp_path / "whole", "")
    assert [event["step"] for event in events(killed, "resumed")] == [21, 28]
    assert curve(killed) == curve(whole) and len(curve(killed)) == 40
    told, first = events(killed, "workload")[-1], events(whole, "workload")[-1]
    same = ("weights_sha256", "data_sha256", "code_sha256", "num_steps", "precision")
    assert {name: told[name] for name in same} == {name: first[name] for name in same}
    # What both saw at the same step was the same, and enough was looked at on the way.
    seen = [{one["step"]: one["floats"] + [one["sha256"]] for one in events(each, "inputs")}
            for each in (killed, whole)]  # fmt: skip
    both = seen[0].keys() & seen[1].keys()
    assert {step: seen[0][step] for step in both} == {step: seen[1][step] for step in both}
    assert {step for step in both if step > 28} >= {35}
    assert not (killed.workplace / "train.py").exists(), "its own files are removed at the end"


def failed_once(folder: Path, code: str = FAILING, label: str = "baseline", **changes: Any) -> Ran:
    """What another attempt left, after one that failed."""
    with pytest.raises(ValueError, match="by chance"):
        run(folder, code, label, **changes)
    return run(folder, code, label, again=True, **changes)


def test_blocks_end_where_checkpoints_are_written_so_that_no_step_before_is_lost(
    tmp_path: Path,
) -> None:
    ran = failed_once(tmp_path)
    found = [
        (one["kind"], one.get("first_step", one.get("step")), one.get("num_steps"))
        for one in ran.events
        if one["kind"] in ("block", "checkpoint", "resumed")
    ]
    assert found == [
        ("block", 0, 4), ("block", 4, 1), ("checkpoint", 5, None), ("block", 5, 3), ("block", 8, 2),
        ("resumed", 5, None), ("block", 5, 3), ("block", 8, 4),
    ]  # fmt: skip
    (checkpoint,) = ran.of("checkpoint")
    assert checkpoint["file"] == "work/last.pt" and checkpoint["bytes"] > 500


def test_a_checkpoint_among_steps_that_are_profiled_leaves_their_profile_whole(
    tmp_path: Path,
) -> None:
    ran = run(tmp_path, FAILING.replace("== 4:", "== 10:").replace("== 9 and", "< 0 and"),
              profile_steps=3)  # fmt: skip
    blocks = [(one["first_step"], one["num_steps"]) for one in ran.of("block") if one["warm_up"]]
    (profile,) = ran.of("profile")
    assert blocks == [(8, 3), (11, 1)] and profile.get("failure") is None and profile["steps"] == 3


def test_a_control_that_goes_on_is_not_perturbed_once_more(tmp_path: Path) -> None:
    ran = failed_once(tmp_path, label="control")
    (tmp_path / "other").mkdir()
    undisturbed = run(tmp_path / "other", FAILING.replace("raise", "None and "), "control")
    assert ran.losses[-7:] == undisturbed.losses[-7:]


def test_a_script_that_asks_for_no_checkpoint_begins_anew_and_that_is_said(tmp_path: Path) -> None:
    ran = failed_once(tmp_path, FAILING.replace('breakeven.load("last.pt")', "None"))
    (resumed,) = ran.of("resumed")
    assert (resumed["step"], resumed["file"], resumed["attempt"]) == (0, None, 2)
    assert ran.losses[10:] == pytest.approx(ran.losses[:10] + ran.losses[-2:])
    assert "Attempt 2 began anew" in ran.workload["notes"][-1]


def test_a_file_that_no_attempt_of_this_run_has_saved_is_no_checkpoint(tmp_path: Path) -> None:
    """As one of a training by hand, beside the script; or one that was written over since."""
    (tmp_path / "project").mkdir()
    torch.save({"done": 11, "model": {}}, tmp_path / "project" / "last.pt")
    assert len(run(tmp_path, FAILING.replace("raise", "None and ")).losses) == 12
    written_over = "if number == 8: torch.save(1, 'last.pt')\n    if number == 9"
    # The working folder goes with what is no checkpoint of its own, so the mark lies beside it.
    over = FAILING.replace("if number == 9", written_over).replace(
        'Path("failed")', f"Path({str(tmp_path / 'failed')!r})"
    )
    assert failed_once(tmp_path, over, "control").of("resumed")[0]["step"] == 0


def test_what_was_done_twice_counts_once(killed: RunDir) -> None:
    with Store.in_memory(DataDir(killed.path.parents[1])) as store:
        experiment_id = killed.run_id.partition(".")[0]
        assert queries.step_times(store, experiment_id)["step"].tolist() == list(range(40))
        assert queries.inputs(store, experiment_id)["step"].is_unique
        assert queries.evaluations(store, experiment_id)["step"].tolist() == [10, 20, 30, 40]


def test_by_hand_saving_and_loading_are_torchs(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    assert breakeven.load(file) is None
    breakeven.save({"weights": torch.ones(2)}, file)
    assert torch.equal(breakeven.load(file)["weights"], torch.ones(2))
    assert breakeven.load(file, weights_only=False).keys() == torch.load(file).keys()
